"""List the records a dataset refused."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, deployment

SHOWN = 120


def command(
    dataset: Annotated[str, typer.Argument(help="The name of a dataset.", show_default=False)],
    directory: Directory = DIRECTORY,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many, the newest first.")] = 20,
    catalog: Catalog = None,
) -> None:
    """List the records a dataset refused, with the reason and where each was found.

    Examples:
        umbel dead-letters Flight

        umbel dead-letters Flight -n 500 --dir /var/lib/umbel
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from umbel.errors import UnknownName, did_you_mean

    place = deployment(directory, catalog)
    found, known = place.catalog, place.definitions(place.catalog.revision()).datasets
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
