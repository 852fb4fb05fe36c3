"""Show the worker, the lag of every source and sink, and the dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, existing_deployment
from umbel.cli.tables import visible

if TYPE_CHECKING:
    from umbel.cli.checks import Finding
    from umbel.runtime.deployment import Deployment


def command(directory: Directory = DIRECTORY, catalog: Catalog = None) -> None:
    """Print the worker's state, the lag of sources and sinks, and dead letters by reason.

    The exit code is 1 if the worker is stopped or stuck, a source cannot be read, a sink cannot be written to, or one is over a
    minute behind.

    Examples:
        umbel status

        umbel status --dir /var/lib/umbel
    """
    is_bad = False
    for each in _findings(existing_deployment(directory, catalog)):
        is_bad = is_bad or each.level != "ok"
        typer.echo(visible(f"{each.subject}: {each.found}"))
        if each.remedy:
            typer.echo(visible(f"  → {each.remedy}"))
    raise typer.Exit(1 if is_bad else 0)


def _findings(deployment: Deployment) -> Iterator[Finding]:
    from umbel.cli.checks import Finding, lag_findings, ok, webhook_lags
    from umbel.runtime.dead_letters import REASON
    from umbel.runtime.freshness import Lag
    from umbel.runtime.health import health
    from umbel.runtime.limits import Limits

    behind, unknown = webhook_lags(deployment)
    worker = health(deployment, Limits.from_environment(), Lag.total(behind.values()))
    remedy = "" if worker.is_healthy else "umbel doctor says what to do"
    yield Finding("worker", "ok" if worker.is_healthy else "error", str(worker), remedy)
    if unknown is not None:
        yield unknown
    for endpoint, lag in sorted(behind.items()):
        yield ok(f"lag of webhook {'/'.join(endpoint)}", str(lag))
    yield from lag_findings(deployment.directory)
    for (dataset, name), count in sorted(deployment.catalog.counts().items()):
        if name.startswith(REASON):
            yield ok(f"dead letters of {dataset}", f"{count:,} {name.removeprefix(REASON)}")
