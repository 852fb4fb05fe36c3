"""List the dead letters of a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, open_deployment

SHOWN = 120


def command(
    dataset: Annotated[str, typer.Argument(help="The name of a dataset.", show_default=False)],
    directory: Directory = DIRECTORY,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many, the newest first.")] = 20,
    catalog: Catalog = None,
) -> None:
    """List the dead letters of a dataset: records refused or too late.

    Each has its position in the source, the field at fault, the reason and the record.

    Examples:
        umbel dead-letters Flight

        umbel dead-letters Flight -n 500 --dir /var/lib/umbel
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from umbel.errors import UnknownName, did_you_mean

    deployment = open_deployment(directory, catalog)
    found, known = deployment.catalog, deployment.definitions(deployment.catalog.revision()).datasets
    count = found.count_dead().get(dataset, 0)
    if dataset not in known and not count:
        raise UnknownName(f"dataset '{dataset}' is not committed{did_you_mean(dataset, known)}")
    table = Table("position", "field", "reason", "record", box=None)
    for letter in found.dead_letters(dataset, limit):
        raw = letter.raw[:SHOWN].decode("utf-8", "backslashreplace")
        table.add_row(*map(Text, (letter.position, letter.field, letter.reason, raw)))
    if count:
        Console().print(table)
    typer.echo(f"{count} in all" if count else "none")
    late = found.counts().get((dataset, "late"), 0)
    if late:
        typer.echo(f"{late} came too late so far; the newest of these are kept")
