"""The server's processes: Granian, with the application in each of its workers.

The parent imports nothing heavy, and its workers are new processes: Polars does not survive a fork.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile

from umbel.serving.environment import SHARED, Place

THREADS = "POLARS_MAX_THREADS"
KILL_AFTER = 10
"""Seconds a process gets to answer what it has begun before it is killed."""


def serve(place: Place, host: str, port: int, servers: int) -> None:
    """Answer requests until stopped.

    Args:
        place: where things are.
        host: the address to listen on.
        port: the port to listen on.
        servers: how many processes answer.
    """
    from granian.constants import HTTPModes, Interfaces
    from granian.log import LogLevels
    from granian.server import Server

    multiprocessing.set_start_method("spawn", force=True)
    place.hand_on()
    os.environ.setdefault(THREADS, "1")  # a request is too small to be worth a second thread
    with tempfile.TemporaryDirectory(prefix="umbel-metrics-") as folder:
        if servers > 1:
            os.environ[SHARED] = folder
        Server(
            "umbel.serving.app:from_environment",
            address=host,
            port=port,
            interface=Interfaces.ASGI,
            workers=servers,
            http=HTTPModes.http1,
            websockets=False,
            factory=True,
            respawn_failed_workers=servers > 1,  # a single one takes its parent along, whose supervisor tells of it
            respawn_interval=1.0,
            workers_kill_timeout=KILL_AFTER,
            log_access=False,
            log_level=LogLevels.warning,
        ).serve()
