"""Commit a module to a running server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from umbel.cli.options import MAIN, URL, Branch, Env, Module, Url
from umbel.cli.waiting import TIMEOUT, Timeout, Wait, wait_for


def command(
    module: Module,
    url: Url = URL,
    message: Annotated[str, typer.Option("-m", "--message", help="Why.")] = "",
    env: Env = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say what would change.")] = False,
    incremental: Annotated[bool, typer.Option("--incremental", help="Keep what MODULE does not mention.")] = False,
    backfill: Annotated[bool, typer.Option(help="Whether new pipelines may be computed from history.")] = True,
    branch: Branch = MAIN,
    wait: Wait = False,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Commit the definitions of MODULE; with --wait, return once the new revision serves.

    Examples:
        umbel commit my_features:app -m "delays by carrier" --wait  # --preview says what would change

        umbel commit more_features.py --incremental --url http://features:8425
    """
    from umbel.cli.loading import app
    from umbel.client import Client

    found = app(module)
    with Client(url, branch=branch) as client:
        report = client.commit(
            message,
            datasets=list(found.datasets),
            featuresets=list(found.featuresets),
            preview=preview,
            env=env,
            incremental=incremental,
            backfill=backfill,
        ).json()
    for kind in ("new", "changed", "removed", "unchanged", "recomputed"):
        if report[kind]:
            typer.echo(f"{kind:>11}  {', '.join(report[kind])}")
    for line in outcome(report):
        typer.echo(line)
    if wait and not preview:
        _wait(url, branch, report["revision"], timeout)


def _wait(url: str, branch: str, revision: int, timeout: float) -> None:
    from umbel.client.connection import HttpConnection

    def serves(found: Mapping[str, Any]) -> bool:
        return bool(min(found["revision"], found["serving"]) >= revision)

    wait_for(HttpConnection(url, ""), serves, f"revision {revision} serves", timeout, branch=branch)


def outcome(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result of a commit as lines of text.

    Args:
        report: the server's response.
    """
    if report["revision"] is None:
        yield "nothing committed (preview)"
        return
    if not report["status"]:
        yield f"revision {report['revision']} is in force"
        return
    serving = (
        f"revision {report['serving']} serves until it has caught up" if report["serving"] else "nothing serves yet"
    )
    yield f"revision {report['revision']} is committed and being backfilled; {serving}"
    for each in report["status"]:
        yield f"{'':>11}  {each['message']}"
