"""Look up a row of a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import MAIN, URL, Branch, Url
from umbel.cli.tables import committed_types, pairs, show


def command(
    dataset: Annotated[str, typer.Argument(help="A dataset with keys.", show_default=False)],
    keys: Annotated[list[str], typer.Argument(help="KEY=VALUE for each key field.", show_default=False)],
    as_of: Annotated[str | None, typer.Option(help="The instant to answer for; now when left out.")] = None,
    url: Url = URL,
    branch: Branch = MAIN,
) -> None:
    """Look up the row of a key in a dataset.

    Examples:
        umbel lookup Plane tailnum=N14228

        umbel lookup OriginDelays origin=JFK --as-of 2013-12-24T18:00:00Z
    """
    from umbel.client.connection import HttpConnection

    connection = HttpConnection(url, "")
    row = pairs(keys, committed_types(connection, branch, "datasets"), f"{dataset}.")
    body = {"keys": [row], "as_of": as_of}
    found = connection.send("POST", f"/api/v1/dataset/{dataset}/lookup", branch, body=body).json()
    if not found["found"][0]:
        typer.echo("not found")
        raise typer.Exit(1)
    show(found["data"])
