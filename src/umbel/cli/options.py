"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from umbel.runtime.deployment import SHARDS, Deployment

PORT = 8425

Module = Annotated[
    str,
    typer.Argument(metavar="MODULE[:APP]", help="Where datasets and featuresets are defined, or an umbel.App in it."),
]
Directory = Annotated[Path, typer.Option("--dir", envvar="UMBEL_DIR", help="Where umbel keeps everything.")]
Port = Annotated[int, typer.Option("--port", "-p", envvar="UMBEL_PORT", help="The port of the HTTP server.")]
Workers = Annotated[int, typer.Option("-w", "--workers", min=1, help="How many Spark tasks run at once.")]
Servers = Annotated[int, typer.Option("--servers", min=1, help="How many server processes answer requests.")]
Url = Annotated[str, typer.Option("--url", envvar="UMBEL_URL", help="Where the server is.")]
Shards = Annotated[
    int, typer.Option("--shards", min=1, help="In how many parts state is kept; fixed at the first start.")
]
Catalog = Annotated[
    str | None, typer.Option("--catalog", envvar="UMBEL_CATALOG", help="URL of the catalog's database.")
]
Store = Annotated[str | None, typer.Option("--store", envvar="UMBEL_STORE", help="URL of the store.")]

DIRECTORY = Path(".umbel")
URL = f"http://127.0.0.1:{PORT}"


def deployment(
    directory: Path, catalog: str | None = None, store: str | None = None, shards: int = SHARDS
) -> Deployment:
    """Return the deployment the options name."""
    return Deployment.at(directory, catalog_url=catalog, store_url=store, shards=shards)
