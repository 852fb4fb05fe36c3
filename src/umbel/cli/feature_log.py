"""Print what queries were answered."""

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
    """Print the rows that queries with `log` were answered, as a JSON object per line.

    Examples:
        umbel feature-log --workflow fraud --since 2026-11-01 > features.ndjson
    """
    from umbel.client.transport import Transport

    params = {"workflow": workflow, "since": since, "until": until}
    answer = Transport(url, "").send("GET", "/api/v1/feature_log", branch, params=params)
    sys.stdout.buffer.write(answer.content)
