"""The server's processes: uvicorn, with the application in each of its workers.

One worker is the process itself. Several are new processes, since Polars does not survive a fork, under a parent that imports
nothing heavy.
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.processes.locks import beside_others
from umbel.processes.open_files import raise_limit
from umbel.processes.stopping import stop_signals
from umbel.serving.environment import SHARED, DeploymentLocation
from umbel.serving.policy import Policy

if TYPE_CHECKING:
    from uvicorn import Config

THREADS = "POLARS_MAX_THREADS"
FINISH = 10
"""Seconds in which open requests may be answered when the server stops."""
IDLE = 75
"""Seconds a connection may be silent before it is closed; load balancers give up after 60."""
HUNG = 60
"""Seconds without a sign of life after which one of several processes is replaced."""


def serve(location: DeploymentLocation, policy: Policy, port: int, servers: int) -> None:
    """Serve requests until stopped.

    Args:
        location: of the deployment.
        policy: the access policy, with the address to listen on.
        port: the port to listen on.
        servers: the number of server processes.
    """
    location.hand_on()
    policy.hand_on()
    raise_limit()
    os.environ.setdefault(THREADS, "1")  # a request is too small to gain from a second thread
    with beside_others(Path(location.directory), "server"), ExitStack() as folders:
        if servers == 1:
            _alone(_config(policy, port, servers))
            return
        shared, reasons = (
            folders.enter_context(tempfile.TemporaryDirectory(prefix=f"umbel-{each}-")) for each in ("metrics", "start")
        )
        os.environ[SHARED] = shared
        _together(_config(policy, port, servers), Path(reasons))


def _alone(config: Config) -> None:
    """Serve in this process."""
    from uvicorn import Server

    server = Server(config)
    for each in stop_signals():  # uvicorn raises the signal again after it has stopped
        signal.signal(each, server.handle_exit)
    server.run()
    if not server.started:
        raise SystemExit(1)


def _together(config: Config, reasons: Path) -> None:
    """Serve in processes that share a socket; a process that ends is replaced."""
    from umbel.serving.processes import REASONS, Servers

    os.environ[REASONS] = str(reasons)
    with config.bind_socket() as listening:
        Servers(config, [listening], reasons).run()


def _config(policy: Policy, port: int, servers: int) -> Config:
    from uvicorn import Config

    from umbel.serving.connection import Connection

    return Config(
        "umbel.serving.app:from_environment",
        factory=True,
        host=policy.host,
        port=port,
        workers=servers,
        ssl_certfile=policy.tls_cert,
        ssl_keyfile=policy.tls_key,
        http=Connection,
        loop="asyncio",
        ws="none",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="error",  # its warnings are mistakes of clients, who could fill the disk with them
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=FINISH,
        timeout_worker_healthcheck=HUNG,
    )
