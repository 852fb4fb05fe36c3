"""Run everything in one process tree."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from umbel.cli.options import DIRECTORY, PORT, Catalog, Directory, Port, Servers, Shards, Store, Workers, deployment
from umbel.runtime.deployment import SHARDS, Deployment
from umbel.runtime.supervise import Child, Supervisor


def command(
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    workers: Workers = 2,
    servers: Servers = 1,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = SHARDS,
) -> None:
    """Start the server and the worker for what is committed, and keep them running. Ctrl-C stops both."""
    up(deployment(directory, catalog, store, shards), port, workers, servers)


def up(place: Deployment, port: int, workers: int, servers: int) -> None:
    """Run a server and a worker until stopped."""
    console = Console(stderr=True)
    common = ["--dir", str(place.directory), "--catalog", place.catalog_url, "--store", place.store_url]
    children = [
        Child("server", ["serve", *common, "--port", str(port), "--servers", str(servers)]),
        Child("worker", ["work", *common, "-w", str(workers)]),
    ]
    Path(place.directory, "work.json").unlink(missing_ok=True)
    place.catalog.close()
    console.print(
        f"umbel: http://127.0.0.1:{port}, everything is kept in {place.directory}; Ctrl-C stops it", highlight=False
    )

    def tell(text: str) -> None:
        console.print(f"umbel: {text}", highlight=False)

    Supervisor(children, tell).run()
    tell("stopped")
