"""Show what a commit would do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umbel.cli.loading import app as app_of
from umbel.cli.options import MAIN, URL, Branch, Catalog, Env, Module, Store, Url, open_deployment
from umbel.cli.tables import print_table

if TYPE_CHECKING:
    from umbel.api.app import App
    from umbel.errors import UmbelError
    from umbel.runtime.deployment import Deployment

REFUSED = 1
"""The exit code where the commit would be refused."""
SHOWN = {"new": "green", "changed": "yellow", "removed": "red", "unchanged": "dim", "rebuilt": "yellow"}


def command(
    module: Module,
    url: Url = URL,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Plan for the deployment in this folder, without a server.", show_default="--url"),
    ] = None,
    env: Env = None,
    incremental: Annotated[bool, typer.Option("--incremental", help="Keep what MODULE does not mention.")] = False,
    backfill: Annotated[bool, typer.Option(help="Whether new pipelines may be computed from history.")] = True,
    branch: Branch = MAIN,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    catalog: Catalog = None,
    store: Store = None,
) -> None:
    """Show what a commit of MODULE would do, and change nothing.

    It lists new, changed, rebuilt and removed objects; for what is rebuilt, the rows and bytes of history to be read, and the
    estimated time. Exit code 0: the commit would be made; 1: it would be refused, with its error; 2: there is no plan, because
    MODULE cannot be loaded or the server not be reached.

    Examples:
        umbel plan my_features:app

        umbel plan more_features.py --incremental --dir /var/lib/umbel --json
    """
    try:
        with _refusals_of_module(module):
            found = app_of(module)
        options = {"incremental": incremental, "backfill": backfill}
        if directory is not None:
            with _deployment(directory, catalog, store) as deployment, _refusals():
                made = _of_folder(deployment, found, env, branch, options)
        else:
            with _refusals():
                made = _of_server(url, found, env, branch, options)
    except _Refusal as refusal:
        _print_refusal(refusal.error, is_json=is_json)
        raise typer.Exit(REFUSED) from None
    _print(made, is_json=is_json)


class _Refusal(Exception):
    """A commit that would be refused.

    Args:
        error: the commit's own.
    """

    def __init__(self, error: UmbelError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _refusals() -> Iterator[None]:
    """Tell errors of a commit from those of what is needed to plan one."""
    from umbel.client.connection import RequestFailed, Unreachable
    from umbel.errors import Damaged, UmbelError
    from umbel.request_errors import RequestError
    from umbel.state.port import OldState

    try:
        yield
    except (Damaged, OldState, RequestError, RequestFailed, Unreachable):
        raise
    except UmbelError as error:
        raise _Refusal(error) from error


@contextmanager
def _refusals_of_module(module: str) -> Iterator[None]:
    """Tell errors of definitions from those of a module that cannot be loaded."""
    from umbel.errors import InvalidValue, UmbelError, line_of

    try:
        yield
    except UmbelError as error:
        if line_of(error) is None:
            raise
        raise _Refusal(error) from error
    except Exception as error:  # the user's module may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise InvalidValue(f"module '{module}' cannot be imported: {reason:.500}", where=line_of(error)) from error


def _of_folder(
    deployment: Deployment, found: App, env: str | None, branch: str, options: Mapping[str, bool]
) -> Mapping[str, Any]:
    from umbel.api.commit import check_commit
    from umbel.runtime.commit_plan import as_plain, plan

    base = deployment.catalog.head(branch) if options["incremental"] else None
    before = None if base is None else deployment.definitions(base)
    definitions = check_commit(found.datasets, found.featuresets, env, before)
    return as_plain(plan(deployment, definitions, branch=branch, base=base, **options))


def _of_server(url: str, found: App, env: str | None, branch: str, options: Mapping[str, bool]) -> Mapping[str, Any]:
    from umbel.api.commit import check_commit
    from umbel.client.http import HttpTransport

    transport = HttpTransport(url)
    before, base = transport.committed(branch) if options["incremental"] else (None, None)
    definitions = check_commit(found.datasets, found.featuresets, env, before)
    return transport.plan(branch, definitions, base=base, **options)


@contextmanager
def _deployment(directory: Path, catalog: str | None, store: str | None) -> Iterator[Deployment]:
    """Yield the deployment in a folder, or an empty one that leaves no trace."""
    from tempfile import TemporaryDirectory

    from umbel.runtime.deployment import Deployment
    from umbel.runtime.fixed_settings import SHARDS
    from umbel.runtime.home import check_catalog

    folder = directory.absolute()
    if catalog is not None or (folder / "catalog.db").exists():
        deployment = open_deployment(directory, catalog, store)
        with closing(deployment.catalog):
            yield deployment
        return
    check_catalog(folder, None)
    typer.echo(f"there is no deployment in {folder}: everything is new", err=True)
    with TemporaryDirectory() as scratch:
        deployment = Deployment(folder, f"sqlite:///{scratch}/catalog.db", "memory://", SHARDS)
        with closing(deployment.catalog):
            yield deployment


def _print(made: Mapping[str, Any], *, is_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    if is_json:
        typer.echo(json.dumps({"refused": None, **made}, indent=2))
        return
    table = Table("object", "name", "change", "what", box=None, pad_edge=False)
    for each in made["objects"]:
        change = "rebuilt" if each["rebuilt"] and each["change"] == "unchanged" else each["change"]
        table.add_row(each["kind"], Text(each["name"]), Text(change, SHOWN[change]), Text("\n".join(_details(each))))
    print_table(table)
    for line in (*made["notes"], *_summary(made)):
        typer.echo(line)


def _details(each: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a plan says of an object besides its change, as lines."""
    yield from each["details"]
    if each["rebuilt"]:
        yield f"rebuilt from {_size(each['rebuilt'])} of {_listed(each['rebuilt']['inputs'])}"
    if gone := each["deleted"]:
        data = f"{gone['rows']:,} rows, {gone['bytes']:,} bytes"
        version = "its data" if each["change"] == "removed" else "the data of the version before"
        if gone["after"] is None:
            yield f"{version} is retained: {data} that sources have brought"
        else:
            yield f"{version} is deleted after {gone['after']:.0f} s: state, and change logs of {data}"


def _size(history: Mapping[str, Any]) -> str:
    rows = "an unknown number of rows" if history["rows"] is None else f"{history['rows']:,} rows"
    size = "" if history["bytes"] is None else f" ({history['bytes']:,} bytes)"
    return f"{rows}{size}, {duration(history['seconds'])}"


def duration(seconds: float | None) -> str:
    """Return an estimated time for people."""
    if seconds is None:
        return "for an unknown time"
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def _listed(names: list[str]) -> str:
    return ", ".join(names if len(names) < 4 else [*names[:2], f"{len(names) - 2} more"])


def _summary(made: Mapping[str, Any]) -> Iterator[str]:
    if made["history"]:
        yield f"in all {_size(made['history'])}, at {' and '.join(_rates(made))}"
    if not made["waits"]:
        yield "the commit would serve at once"
    elif made["serving"]:
        yield f"revision {made['serving']} would serve until the commit has caught up"
    else:
        yield "nothing would serve until the commit has caught up"


def _rates(made: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rates by which times were estimated, of change logs and of sources."""
    is_source = [each.startswith("the source of ") for each in made["history"]["inputs"]]
    for kind, name, is_used in (
        ("log_rate", "change logs", not all(is_source)),
        ("source_rate", "sources", any(is_source)),
    ):
        basis = "measured here" if made[kind]["is_measured"] else "assumed: nothing was measured here yet"
        if is_used:
            yield f"{made[kind]['rows_per_second']:,.0f} rows/s of {name} ({basis})"


def _print_refusal(error: UmbelError, *, is_json: bool) -> None:
    from umbel.state.passwords import redacted

    if is_json:
        said = {"code": error.code, "message": redacted(error.placed()), "hint": error.hint}
        typer.echo(json.dumps({"refused": said}, indent=2))
    else:
        typer.echo(f"refused ({error.code}): {redacted(str(error))}")
