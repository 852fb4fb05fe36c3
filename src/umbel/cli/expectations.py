"""Show the results of the datasets' expectations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from umbel.cli.options import DIRECTORY, MAIN, Branch, Catalog, Directory, existing_deployment
from umbel.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from umbel.quality.totals import ExpectationResult
    from umbel.runtime.deployment import Deployment

COLUMNS = ("dataset", "expectation", "columns", "rows", "failed", "unjudged", "share", "mostly", "holds")


def command(
    dataset: Annotated[
        str | None, typer.Argument(help="A dataset; all of them by default.", show_default=False)
    ] = None,
    directory: Directory = DIRECTORY,
    catalog: Catalog = None,
    branch: Branch = MAIN,
) -> None:
    """Show for each expectation its evaluated rows, failed rows, and pass or fail.

    Rows are unjudged where the expectation itself failed, for example as their column does not exist.

    Examples:
        umbel expectations

        umbel expectations Flight --dir /var/lib/umbel --branch dev
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(*COLUMNS, box=None)
    for each in _results(existing_deployment(directory, catalog), branch, dataset):
        seen = each.watched
        numbers = (str(seen.rows), str(seen.failed), str(each.unjudged), f"{each.share:.4f}", f"{seen.mostly:g}")
        shown = (each.dataset, seen.expectation, ", ".join(seen.columns), *numbers, "yes" if seen.holds else "no")
        table.add_row(*map(Text, shown))
    if table.row_count:
        print_table(table)
    else:
        typer.echo("none")


def _results(deployment: Deployment, branch: str, dataset: str | None) -> Iterator[ExpectationResult]:
    """Yield the results of the datasets that serve on a branch, or of one.

    Raises:
        UnknownName: there is no such dataset.
    """
    from umbel.errors import UnknownName, did_you_mean
    from umbel.quality.totals import results
    from umbel.runtime.switching import names_on, serving_on

    definitions, placed = serving_on(deployment, branch)
    known, counts = definitions.datasets, deployment.catalog.counts()
    if dataset is not None and dataset not in known:
        raise UnknownName(f"dataset '{dataset}' is not committed{did_you_mean(dataset, known)}", hint="commit it first")
    outputs, names = deployment.graph(deployment.catalog.latest()).outputs, names_on(deployment, branch)
    for name in known if dataset is None else (dataset,):
        node = outputs.get(placed.get(name, name))
        yield from results(known[name], names.get(name, [name]), "" if node is None else node.state_id, counts)
