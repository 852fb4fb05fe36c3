"""The server's processes: uvicorn, with the application in each of its workers.

One worker is the process itself. Several are new processes, since Polars does not survive a fork, under a parent that imports
nothing heavy.
"""

from __future__ import annotations

import os
import signal
import tempfile
from typing import TYPE_CHECKING

from umbel.serving.environment import SHARED, Place

if TYPE_CHECKING:
    from uvicorn import Config

THREADS = "POLARS_MAX_THREADS"
FINISH = 10
"""Seconds in which what has begun may be answered when the server stops."""
IDLE = 75
"""Seconds a connection may be silent before it is closed; load balancers give up after 60."""
HUNG = 60
"""Seconds in which one of several processes must show that it lives, or another takes its place."""


def serve(place: Place, host: str, port: int, servers: int) -> None:
    """Answer requests until stopped.

    Args:
        place: where things are.
        host: the address to listen on.
        port: the port to listen on.
        servers: how many processes answer.
    """
    place.hand_on()
    os.environ.setdefault(THREADS, "1")  # a request is too small to be worth a second thread
    if servers == 1:
        _alone(_config(host, port, servers))
        return
    with tempfile.TemporaryDirectory(prefix="umbel-metrics-") as folder:
        os.environ[SHARED] = folder
        _together(_config(host, port, servers))


def _alone(config: Config) -> None:
    """Answer in this process."""
    from uvicorn import Server

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: None)  # uvicorn raises again what it has stopped for
    server = Server(config)
    server.run()
    if not server.started:
        raise SystemExit(1)


def _together(config: Config) -> None:
    """Answer in processes that share a socket; one that ends is replaced."""
    from uvicorn.supervisors import Multiprocess

    with config.bind_socket() as listening:
        Multiprocess(config, [listening]).run()


def _config(host: str, port: int, servers: int) -> Config:
    from uvicorn import Config

    from umbel.serving.connection import Connection

    return Config(
        "umbel.serving.app:from_environment",
        factory=True,
        host=host,
        port=port,
        workers=servers,
        http=Connection,
        loop="asyncio",
        ws="none",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=FINISH,
        timeout_worker_healthcheck=HUNG,
    )
