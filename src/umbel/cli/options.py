"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

PORT = 8425
LOOPBACK = "127.0.0.1"
DIRECTORY = Path(".umbel")
MAIN = "main"
URL = f"http://{LOOPBACK}:{PORT}"

Module = Annotated[
    str,
    typer.Argument(
        metavar="MODULE[:APP]",
        help="A module or a file: every dataset and featureset in it; or the name of an umbel.App in it.",
        show_default=False,
    ),
]
Directory = Annotated[Path, typer.Option("--dir", envvar="UMBEL_DIR", help="Where umbel keeps everything.")]
Port = Annotated[int, typer.Option("--port", "-p", envvar="UMBEL_PORT", min=1, max=65535, help="Of the HTTP server.")]
Host = Annotated[str, typer.Option("--host", envvar="UMBEL_HOST", help="The address the HTTP server listens on.")]
Workers = Annotated[int, typer.Option("-w", "--workers", min=1, help="How many Spark tasks run at once.")]
Servers = Annotated[int, typer.Option("--servers", min=1, help="How many server processes answer requests.")]
Url = Annotated[str, typer.Option("--url", envvar="UMBEL_URL", help="Where the server is.")]
Branch = Annotated[str, typer.Option("--branch", envvar="UMBEL_BRANCH", help="Whose definitions and data.")]
Env = Annotated[
    str | None,
    typer.Option("--env", help="Selects sources, sinks, pipelines and extractors; all when left out."),
]
Shards = Annotated[
    int | None,
    typer.Option(
        "--shards", min=1, help="In how many parts state is kept; fixed at the first start.", show_default="4"
    ),
]
Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog", envvar="UMBEL_CATALOG", help="URL of the catalog's database.", show_default="SQLite in --dir"
    ),
]
Store = Annotated[
    str | None,
    typer.Option("--store", envvar="UMBEL_STORE", help="URL of the store.", show_default="LMDB in --dir"),
]


def deployment(
    directory: Path, catalog: str | None = None, store: str | None = None, shards: int | None = None
) -> Deployment:
    """Return the deployment the options name."""
    from umbel.runtime.deployment import SHARDS, Deployment

    return Deployment.at(directory, catalog_url=catalog, store_url=store, shards=shards or SHARDS)
