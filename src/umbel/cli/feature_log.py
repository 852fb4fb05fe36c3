"""Print logged features: the rows that queries returned."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from umbel.cli.options import MAIN, URL, Branch, Url


def command(
    workflow: Annotated[str | None, typer.Option(help="What the queries were for; everything when left out.")] = None,
    since: Annotated[str | None, typer.Option(help="The first instant.")] = None,
    until: Annotated[str | None, typer.Option(help="The instant before which it ends.")] = None,
    url: Url = URL,
    branch: Branch = MAIN,
) -> None:
    """Print the feature log, the rows returned by queries with `log`, as NDJSON.

    Each line is a JSON object, one row of features.

    Examples:
        umbel feature-log --workflow fraud --since 2026-11-01 > features.ndjson
    """
    from umbel.client.connection import HttpConnection

    params = {"workflow": workflow, "since": since, "until": until}
    answer = HttpConnection(url, "").send("GET", "/api/v1/feature_log", branch, params=params)
    sys.stdout.buffer.write(answer.content)
