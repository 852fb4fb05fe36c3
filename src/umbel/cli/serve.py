"""Answer requests: the HTTP server."""

from __future__ import annotations

import os

from umbel.cli.options import DIRECTORY, PORT, Catalog, Directory, Port, Servers, Shards, Store, deployment
from umbel.runtime.deployment import SHARDS
from umbel.runtime.supervise import die_with_parent

LOOPBACK = "127.0.0.1"


def command(
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    servers: Servers = 1,
    host: str = LOOPBACK,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = SHARDS,
) -> None:
    """Answer HTTP requests, until stopped."""
    from granian.constants import Interfaces
    from granian.server import Server

    from umbel.serving.app import DEPLOYMENT

    die_with_parent()
    os.environ[DEPLOYMENT] = deployment(directory, catalog, store, shards).encode()
    os.environ.setdefault("POLARS_MAX_THREADS", "2")
    Server(
        "umbel.serving.app:from_environment",
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        workers=servers,
        factory=True,
        log_access=False,
        log_level="warning",  # type: ignore[arg-type]
    ).serve()
