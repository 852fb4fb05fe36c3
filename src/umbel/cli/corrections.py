"""Show which logged answers were corrected since."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from umbel.cli.options import MAIN, URL, Branch, Url
from umbel.cli.tables import print_table

if TYPE_CHECKING:
    import pandas as pd


def command(
    outputs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Features (Featureset.feature) or featuresets; all that were logged when left out.", show_default=False
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", help="An input feature of the queries; repeat for more.", show_default=False),
    ] = None,
    workflow: Annotated[str | None, typer.Option(help="What the queries were for; everything when left out.")] = None,
    since: Annotated[str | None, typer.Option(help="The first instant.")] = None,
    until: Annotated[str | None, typer.Option(help="The instant before which it ends.")] = None,
    answers: Annotated[bool, typer.Option("--answers", help="Print each corrected answer, as NDJSON.")] = False,
    url: Url = URL,
    branch: Branch = MAIN,
) -> None:
    """Show which answers in the feature log were corrected since, and by how much.

    A query answers from the rows that have arrived; later ones correct its answer. Each logged answer is computed again as of its
    own instant.

    Examples:
        umbel corrections -i User.user --workflow fraud --since 2026-11-01

        umbel corrections User.spent_7d -i User.user --answers
    """
    from umbel.client import Client

    if not inputs:
        raise typer.BadParameter("say with which features the queries were made: -i User.user")
    found = Client(url, branch=branch).corrections(inputs, outputs or (), workflow, since, until)
    if answers:
        _print(found.answers)
    else:
        _show(found.features)
    if found.skipped:
        typer.echo(f"{found.skipped} logged rows were made with other inputs and are not compared", err=True)


def _print(answers: pd.DataFrame) -> None:
    import orjson

    from umbel.client.plain import plain
    from umbel.log.features import spelled

    for each in answers.to_dict("records"):
        line = {str(name): plain(value, "NaN") for name, value in each.items()}
        line["timestamp"] = spelled(each["timestamp"])
        line["change"] = None if math.isnan(each["change"]) else each["change"]
        sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def _show(features: pd.DataFrame) -> None:
    from rich.table import Table
    from rich.text import Text

    if features.empty:
        typer.echo("none")
        return
    table = Table("feature", "answers", "corrected", "share", "mean change", "largest change", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for each in features.to_dict("records"):
        sizes = [
            _shown(each["share"], ".2%"),
            *(_shown(each[name], ".4g") for name in ("mean_change", "largest_change")),
        ]
        table.add_row(Text(each["feature"]), f"{each['answers']:,}", f"{each['corrected']:,}", *sizes)
    print_table(table)


def _shown(number: float, form: str) -> str:
    return "–" if math.isnan(number) else format(number, form)
