"""Compute the state of pipelines again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from umbel.cli.options import DIRECTORY, MAIN, Branch, Catalog, Directory, Store, existing_deployment
from umbel.cli.waiting import TIMEOUT, Timeout, Wait

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.recovery.rebuild import Rebuild


def command(
    datasets: Annotated[
        list[str] | None, typer.Argument(metavar="DATASET…", help="The datasets of the pipelines.", show_default=False)
    ] = None,
    directory: Directory = DIRECTORY,
    branch: Branch = MAIN,
    is_all: Annotated[
        bool,
        typer.Option(
            "--all", help="Forget all state and positions, and read all sources again; umbel must be stopped."
        ),
    ] = False,
    is_waiting: Wait = False,
    timeout: Timeout = TIMEOUT,
    catalog: Catalog = None,
    store: Store = None,
) -> None:
    """Compute the state of pipelines again, from the change logs of their inputs.

    Their change logs and those of all pipelines that read them are computed again, too. The worker does it; until it is done,
    their datasets answer as far as it has come.

    Examples:
        umbel rebuild Spending --wait

        umbel rebuild --all
    """
    from umbel.errors import InvalidValue
    from umbel.runtime.recovery.rebuild import rebuild, rebuild_all

    if is_all == bool(datasets):
        raise InvalidValue("name the datasets to rebuild, or give --all")
    deployment = existing_deployment(directory, catalog, store)
    if is_all:
        typer.echo("".join(f"{each}\n" for each in rebuild_all(deployment)) + "all sources are read again: umbel up")
        return
    made = rebuild(deployment, datasets or [], branch)
    typer.echo(f"the worker rebuilds {', '.join(made.datasets)}")
    if is_waiting:
        _wait(deployment, made, timeout)


def _wait(deployment: Deployment, made: Rebuild, timeout: float) -> None:
    """Return when a rebuild is done; show how far it is."""
    from umbel.cli.waiting import wait_while

    names = ", ".join(made.datasets)
    done = f"{names} {'is' if len(made.datasets) == 1 else 'are'} rebuilt"
    wait_while(lambda: _progress(deployment, made), lambda found: found["status"]["share"] == 1.0, done, timeout)


def _progress(deployment: Deployment, made: Rebuild) -> dict[str, Any]:
    """Return the progress of a rebuild, in the form of that of a commit."""
    from umbel.runtime.health import health
    from umbel.runtime.limits import Limits
    from umbel.runtime.recovery.rebuild import share

    worker, state, now = (
        health(deployment, Limits.from_environment()),
        deployment.backfill_state(),
        share(deployment, made),
    )
    is_read = 0.0 < now < 1.0
    return {
        "rows": None,
        "backfill": f"{int(now * 100)} %",
        "worker": worker.state,
        "worker_reason": worker.reason,
        "status": {
            "share": now,
            "rows_done": state.done if is_read else 0,
            "rows_total": state.total if is_read else 0,
            "rows_per_second": state.rows_per_second,
            "failures": state.failures,
            "error": state.error,
        },
    }
