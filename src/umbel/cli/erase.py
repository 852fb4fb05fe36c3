"""Erase rows of a dataset, and their bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umbel.cli.options import DIRECTORY, MAIN, Branch, Catalog, Directory, Store, existing_deployment
from umbel.cli.tables import pairs

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

PAUSE = 0.2
"""Seconds between two looks at the progress."""
TIMEOUT = 3600.0


Name = Annotated[str, typer.Argument(help="A dataset with erase keys.", show_default=False)]
Keys = Annotated[list[str] | None, typer.Argument(help="KEY=VALUE for each erase key.", show_default=False)]
Source = Annotated[
    Path | None,
    typer.Option("--from", help="A file with a JSON object of erase keys in each line.", exists=True, dir_okay=False),
]
Now = Annotated[
    bool,
    typer.Option("--now", help="Erase the bytes, too, of these and of all rows erased before; the worker does it."),
]


def command(
    dataset: Name = "",
    keys: Keys = None,
    source: Source = None,
    is_now: Now = False,
    directory: Directory = DIRECTORY,
    branch: Branch = MAIN,
    timeout: Annotated[float, typer.Option(min=0.0, help="For how many seconds to wait for the worker.")] = TIMEOUT,
    catalog: Catalog = None,
    store: Store = None,
) -> None:
    """Erase rows by their erase keys; with --now, their bytes as well.

    Erased rows are not found any more, and not taken in again. With --now they leave state, change logs, ingest logs, staged
    rows and dead letters, while umbel runs. Exits with 1 if bytes are left somewhere, with 3 if it takes longer than
    --timeout, with 4 if no worker runs, with 5 if it fails; the worker goes on in any case, and tries again.

    Examples:
        umbel erase Customer uid=7

        umbel erase Customer email=someone@example.com --now

        umbel erase --now
    """
    from umbel.errors import InvalidValue

    if not dataset and not is_now:
        raise InvalidValue("name the dataset and the keys of the rows to erase", hint="umbel erase Customer uid=7")
    deployment = existing_deployment(directory, catalog, store)
    rows = _rows(keys or [], source, _types(deployment, branch, dataset))
    if dataset and not rows:
        raise InvalidValue(f"erase on dataset '{dataset}': no keys", hint=f"umbel erase {dataset} KEY=VALUE")
    if dataset:
        revision = _erase(deployment, branch, dataset, rows)
        typer.echo(f"erased {len(rows)} key{'s' * (len(rows) != 1)} of {dataset}, from revision {revision} on")
    if is_now:
        raise typer.Exit(_purge(deployment, rows, timeout))


def _types(deployment: Deployment, branch: str, dataset: str) -> dict[str, str]:
    """Return the names of the types of a dataset's fields."""
    known = deployment.branch(branch).datasets if dataset else {}
    return {name: str(dtype) for name, dtype in known[dataset].dtypes.items()} if dataset in known else {}


def _rows(keys: Sequence[str], source: Path | None, types: Mapping[str, str]) -> list[Mapping[str, Any]]:
    from umbel.errors import InvalidValue
    from umbel.types.long_numbers import parse_long

    found: list[Mapping[str, Any]] = [pairs(keys, types)] if keys else []
    for number, line in enumerate(source.read_bytes().splitlines() if source else [], 1):
        if not line.strip():
            continue
        try:
            row = parse_long(line)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"{source}, line {number}: {error}") from error
        if not isinstance(row, dict):
            raise InvalidValue(f"{source}, line {number}: not an object of erase keys")
        found.append(row)
    return found


def _erase(deployment: Deployment, branch: str, dataset: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Record rows as erased; return the revision."""
    from umbel.catalog.audit import AuditLog
    from umbel.errors import UnknownName, did_you_mean
    from umbel.query.encode import columns_from_json
    from umbel.runtime.erasures import erase

    known = deployment.branch(branch).datasets
    if dataset not in known:
        raise UnknownName(f"there is no dataset '{dataset}'{did_you_mean(dataset, known)}")
    definition, owner = known[dataset], f"erase on dataset '{dataset}'"
    for row in rows:
        definition.check_erase_keys(list(row))
    types = {name: definition.dtypes[name] for name in definition.erase_keys}
    columns = columns_from_json({name: [row[name] for row in rows] for name in types}, types, owner)
    with AuditLog(deployment.catalog).recorded("erase", dataset):
        return erase(deployment, branch, dataset, columns)


def _purge(deployment: Deployment, rows: Sequence[Mapping[str, Any]], timeout: float) -> int:
    """Have the worker erase the bytes; return the exit code."""
    from umbel.catalog.purges import Purges
    from umbel.runtime.traces import traces

    deployment.check_home()
    purges, revision = Purges(deployment.catalog), _revision(deployment)
    if not revision:
        typer.echo("nothing is committed yet: there are no rows to erase")
        return 0
    purges.request(revision)
    code = _wait(deployment, revision, timeout)
    if code:
        return code
    done = purges.progress
    for note in done.notes:
        typer.echo(note)
    found = traces(deployment.directory, [value for row in rows for value in row.values()])
    for path in found:
        typer.echo(f"still there, or part of a longer value: {path}")
    at = datetime.fromtimestamp(done.at, UTC)
    typer.echo(
        f"backups made before {at:%Y-%m-%d %H:%M:%S} UTC still have the bytes: umbel backup URL --keep 1 deletes them"
    )
    return 1 if done.left or found else 0


def _revision(deployment: Deployment) -> int:
    """Return a revision that was not purged yet, 0 if nothing is committed.

    Rows that were erased before the last purge may have come again.
    """
    from umbel.catalog.purges import Purges
    from umbel.errors import Conflict
    from umbel.runtime.empty_commit import commit_again

    catalog = deployment.catalog
    if 0 < catalog.latest() <= Purges(catalog).progress.revision:
        with suppress(Conflict):  # then there is a new one
            commit_again(catalog, "erase --now")
    return catalog.latest()


def _wait(deployment: Deployment, revision: int, timeout: float) -> int:
    """Wait for the worker, and print its steps; return the exit code."""
    from umbel.catalog.purges import Purges
    from umbel.cli.waiting import DEAD, FAILING, NO_WORKER, TOO_LATE, WITHOUT_WORKER
    from umbel.runtime.health import health
    from umbel.runtime.limits import Limits

    purges, begun, shown, dead_since = Purges(deployment.catalog), time.monotonic(), "", None
    requested_at = time.time()
    while (progress := purges.progress).revision < revision:
        now = time.monotonic()
        purges.request(revision)  # of two requests at once, the earlier may have been written last
        if progress.step != shown:
            shown = progress.step
            typer.echo(shown or "waits for the worker")
        if progress.error and progress.tried > requested_at:
            typer.echo(f"failed, and is tried again: {progress.error}", err=True)
            return FAILING
        is_dead = health(deployment, Limits.from_environment()).state in DEAD
        dead_since = (dead_since or now) if is_dead else None
        if dead_since is not None and now - dead_since >= min(WITHOUT_WORKER, timeout):
            typer.echo("no worker runs; it erases the bytes as soon as it does: umbel up", err=True)
            return NO_WORKER
        if now - begun >= timeout:
            typer.echo(f"not done within {timeout:g} s; the worker goes on: {shown}", err=True)
            return TOO_LATE
        time.sleep(PAUSE)
    return 0
