"""Commit a module to a running server."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import MAIN, URL, Branch, Env, Module, Url


def command(
    module: Module,
    url: Url = URL,
    message: Annotated[str, typer.Option("-m", "--message", help="Why.")] = "",
    env: Env = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say what would change.")] = False,
    incremental: Annotated[bool, typer.Option("--incremental", help="Keep what MODULE does not mention.")] = False,
    backfill: Annotated[bool, typer.Option(help="Whether new pipelines may be computed from history.")] = True,
    branch: Branch = MAIN,
) -> None:
    """Commit what MODULE defines to a running server.

    Examples:
        umbel commit my_features --preview

        umbel commit my_features:app -m "delays by carrier"

        umbel commit more_features.py --incremental --url http://features:8425
    """
    from umbel.cli.loading import app
    from umbel.client import Client

    found = app(module)
    with Client(url, branch=branch) as client:
        told = client.commit(
            message,
            datasets=list(found.datasets),
            featuresets=list(found.featuresets),
            preview=preview,
            env=env,
            incremental=incremental,
            backfill=backfill,
        ).json()
    for kind in ("new", "changed", "removed", "unchanged", "recomputed"):
        if told[kind]:
            typer.echo(f"{kind:>11}  {', '.join(told[kind])}")
    typer.echo("nothing committed (preview)" if preview else f"revision {told['revision']} is in force")
