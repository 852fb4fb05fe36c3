"""Trace a value to the rows it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from umbel.cli.options import MAIN, URL, Branch, Url
from umbel.cli.tables import committed_types, pairs

if TYPE_CHECKING:
    from umbel.client.trace import Trace


def command(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Features (Featureset.feature) and featuresets, or one dataset; then KEY=VALUE for each input feature, or "
            "each key field.",
            show_default=False,
        ),
    ],
    as_of: Annotated[str | None, typer.Option(help="The instant to answer for; now when left out.")] = None,
    rows: Annotated[int, typer.Option("-n", "--rows", help="The most rows, and tiles, in one list: the newest.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = URL,
    branch: Branch = MAIN,
) -> None:
    """Show the tiles, the rows and their positions in sources behind a value.

    The looked-up rows behind a feature are followed upstream, up to rows that another dataset has aggregated: these are traced by
    a trace of that dataset.

    Examples:
        umbel trace User.spent_7d User.user=ada

        umbel trace Spending user=ada --as-of 2026-11-01T12:00:00Z -n 100
    """
    import orjson

    found = _traced(
        [name for name in names if "=" not in name], [name for name in names if "=" in name], as_of, rows, url, branch
    )
    if as_json:
        typer.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    else:
        typer.echo(str(found))


def _traced(targets: list[str], texts: list[str], as_of: str | None, rows: int, url: str, branch: str) -> Trace:
    """Return the trace of features, or of the row of a dataset."""
    from umbel.client import Client
    from umbel.client.connection import HttpConnection

    if not targets:
        raise typer.BadParameter("say what to trace: a feature, or a dataset")
    connection, client = HttpConnection(url, ""), Client(url, branch=branch)
    fields = committed_types(connection, branch, "datasets")
    if len(targets) == 1 and any(name.startswith(f"{targets[0]}.") for name in fields):
        return client.trace_row(targets[0], pairs(texts, fields, f"{targets[0]}."), as_of, rows)
    return client.trace(targets, pairs(texts, committed_types(connection, branch, "featuresets")), as_of, rows)
