"""Commit a module and run everything."""

from __future__ import annotations

from umbel.cli.options import (
    DIRECTORY,
    LOOPBACK,
    PORT,
    Catalog,
    Directory,
    Env,
    Host,
    Module,
    Port,
    Servers,
    Shards,
    Store,
    Workers,
    deployment,
)


def command(
    module: Module,
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    workers: Workers = 2,
    servers: Servers = 1,
    env: Env = None,
    host: Host = LOOPBACK,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = None,
) -> None:
    """Commit what MODULE defines, and run the server and the worker for it, until Ctrl-C.

    Everything is kept in one folder, .umbel unless --dir says otherwise; the next run goes on where this one stopped.
    A process that ends is started again.

    Examples:
        umbel run examples.flights.features -w 2

        umbel run my_features.py:app --dir /var/lib/umbel --port 9000
    """
    from rich.console import Console

    from umbel.cli.loading import definitions
    from umbel.cli.up import check, up
    from umbel.runtime.commit import commit

    check(host, port)
    place = deployment(directory, catalog, store, shards)
    told = commit(place, definitions(module, env), message=f"umbel run {module}")
    console = Console(stderr=True)
    for kind in ("new", "changed", "removed", "recomputed"):
        if told[kind]:
            console.print(f"umbel: {kind}: {', '.join(told[kind])}", highlight=False, markup=False)
    up(place, host, port, workers, servers)
