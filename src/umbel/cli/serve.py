"""Answer requests: the HTTP server."""

from __future__ import annotations

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
)


def command(
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    servers: Servers = 1,
    host: Host = LOOPBACK,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = None,
) -> None:
    """Answer HTTP requests, until stopped: the server alone, without a worker.

    Examples:
        umbel serve --servers 4

        UMBEL_CATALOG=postgresql://… umbel serve --host 0.0.0.0
    """
    from umbel.cli.up import check
    from umbel.runtime.kinship import die_with_parent
    from umbel.serving.environment import Place
    from umbel.serving.server import serve

    die_with_parent()
    check(host, port)
    serve(Place(str(directory), catalog, store, shards), host, port, servers)
