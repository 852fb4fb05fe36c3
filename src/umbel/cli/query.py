"""Query features from a running server."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import MAIN, URL, Branch, Url
from umbel.cli.tables import committed_types, pairs, show


def command(
    outputs: Annotated[
        list[str], typer.Argument(help="Features (Featureset.feature) or featuresets.", show_default=False)
    ],
    inputs: Annotated[
        list[str],
        typer.Option("-i", "--input", help="FEATURE=VALUE; repeat for more features.", show_default=False),
    ],
    as_of: Annotated[str | None, typer.Option(help="The instant to answer for; now when left out.")] = None,
    url: Url = URL,
    branch: Branch = MAIN,
) -> None:
    """Query features from a running server.

    Examples:
        umbel query OriginFeatures -i OriginFeatures.origin=JFK

        umbel query OriginFeatures.average -i OriginFeatures.origin=JFK --as-of 2013-12-24T18:00:00Z
    """
    from umbel.client.connection import HttpConnection

    connection = HttpConnection(url, "")
    values = pairs(inputs, committed_types(connection, branch, "featuresets"))
    data = {name: [value] for name, value in values.items()}
    body = {"inputs": list(data), "outputs": outputs, "data": data, "as_of": as_of}
    show(connection.send("POST", "/api/v1/query", branch, body=body).json())
