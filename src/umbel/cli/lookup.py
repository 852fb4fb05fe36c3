"""Look up a row of a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import URL, Url
from umbel.cli.tables import pairs, show


def command(
    dataset: str,
    keys: Annotated[list[str], typer.Argument(help="KEY=VALUE for each key field.")],
    as_of: Annotated[str | None, typer.Option(help="The instant to answer for; now when left out.")] = None,
    url: Url = URL,
) -> None:
    """Look up the row of a key in a dataset.

    Example: umbel lookup Plane tailnum=N14228
    """
    from umbel.client.transport import Transport

    body = {"keys": [pairs(keys)], "as_of": as_of}
    found = Transport(url, "").send("POST", f"/api/v1/dataset/{dataset}/lookup", "main", body=body).json()
    if not found["found"][0]:
        typer.echo("not found")
        raise typer.Exit(1)
    show(found["data"])
