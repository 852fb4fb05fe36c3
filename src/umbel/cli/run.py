"""Commit a module and run everything."""

from __future__ import annotations

from rich.console import Console

from umbel.cli.loading import definitions
from umbel.cli.options import (
    DIRECTORY,
    PORT,
    Catalog,
    Directory,
    Module,
    Port,
    Servers,
    Shards,
    Store,
    Workers,
    deployment,
)
from umbel.cli.up import up
from umbel.runtime.commit import commit
from umbel.runtime.deployment import SHARDS


def command(
    module: Module,
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    workers: Workers = 2,
    servers: Servers = 1,
    env: str | None = None,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = SHARDS,
) -> None:
    """Commit what MODULE defines, and run the server and the worker for it. Ctrl-C stops both.

    Example: umbel run examples.flights.features -w 2
    """
    place = deployment(directory, catalog, store, shards)
    told = commit(place, definitions(module, env), message=f"umbel run {module}")
    console = Console(stderr=True)
    for kind in ("new", "changed", "removed", "recomputed"):
        if told[kind]:
            console.print(f"umbel: {kind}: {', '.join(told[kind])}", highlight=False)
    up(place, port, workers, servers)
