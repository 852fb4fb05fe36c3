"""List the records a dataset refused."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from umbel.cli.options import DIRECTORY, Catalog, Directory, deployment


def command(
    dataset: str,
    directory: Directory = DIRECTORY,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many, the newest first.")] = 20,
    catalog: Catalog = None,
) -> None:
    """List the records a dataset refused, with the reason and where each was found."""
    found = deployment(directory, catalog).catalog
    table = Table("position", "field", "reason", "record", box=None)
    for letter in found.dead_letters(dataset, limit):
        raw = letter.raw[:120].decode("utf-8", "backslashreplace")
        table.add_row(letter.position, letter.field, letter.reason, raw)
    Console().print(table)
    typer.echo(f"{found.count_dead().get(dataset, 0)} in all")
