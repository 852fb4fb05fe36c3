"""Run everything in one process tree."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from umbel.cli.options import (
    DIRECTORY,
    LOOPBACK,
    PORT,
    Catalog,
    Directory,
    Host,
    Port,
    Servers,
    Shards,
    Store,
    Workers,
    deployment,
)

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment


def command(
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    workers: Workers = 2,
    servers: Servers = 1,
    host: Host = LOOPBACK,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = None,
) -> None:
    """Run the server and the worker for what is committed, until Ctrl-C; commit with `umbel commit`.

    Examples:
        umbel up

        umbel up --dir /var/lib/umbel --servers 2 -w 4
    """
    check(host, port)
    up(deployment(directory, catalog, store, shards), host, port, workers, servers)


def check(host: str, port: int) -> None:
    """Refuse a port that is taken.

    Raises:
        Transient: it is.
    """
    from umbel.cli.checks import holder
    from umbel.errors import Transient

    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        by = holder(port)
        raise Transient(
            f"cannot listen on {host}:{port}: {error.strerror}{f'; process {by} does' if by else ''}",
            hint=f"stop it, or choose another port: --port {port + 1}",
        ) from None


def up(place: Deployment, host: str, port: int, workers: int, servers: int) -> None:
    """Run a server and a worker until stopped."""
    from umbel.cli.watching import Watch
    from umbel.runtime.locks import alone
    from umbel.runtime.status import forget_status
    from umbel.runtime.supervise import Child, Supervisor

    common = ["--dir", str(place.directory), "--catalog", place.catalog_url, "--store", place.store_url]
    logs = place.directory / "logs"
    serve = ["serve", *common, "--host", host, "--port", str(port), "--servers", str(servers)]
    children = [
        Child.umbel("server", serve, logs / "server.log"),
        Child.umbel("worker", ["work", *common, "-w", str(workers)], logs / "worker.log"),
    ]
    with alone(place.directory, "supervisor"):
        forget_status(place.directory)
        with Watch(place, host, port) as watch:
            Supervisor(children, watch.tell).run(watch.look)
        watch.tell("stopped")
