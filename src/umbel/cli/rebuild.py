"""Compute the state of pipelines again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from umbel.cli.options import DIRECTORY, MAIN, Branch, Catalog, Directory, Store, existing_deployment

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
    is_waiting: Annotated[bool, typer.Option("--wait", help="Return when it is done, and show how far it is.")] = False,
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
        _wait(deployment, made)


def _wait(deployment: Deployment, made: Rebuild) -> None:
    """Return when a rebuild is done; print how far it is."""
    from umbel.runtime.recovery.rebuild import share

    done = -1
    while done < 100:
        now = int(share(deployment, made) * 100)
        if now != done:
            typer.echo(f"{now} %")
        done = now
        time.sleep(0.2)
