"""Transform JSON records by a configuration in YAML or TOML."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from umbel.processes.privacy import as_the_user_wants

if TYPE_CHECKING:
    from umbel.transform.inputs import InputFile

ConfigurationFile = Annotated[
    Path,
    typer.Argument(help="The configuration: .yaml, .yml or .toml.", exists=True, dir_okay=False, show_default=False),
]

ONE_SIGNAL = 0.5
"""Seconds in which signals are the same one: `timeout` sends it to the process and then to its group."""

group = typer.Typer(invoke_without_command=True)


Config = Annotated[Path | None, typer.Option("--config", "-c", help="The configuration.", show_default=False)]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        help="A file, a folder or a pattern; .gz, .zst, .parquet too. Else standard input.",
        show_default=False,
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", "-o", help="A file; .gz, .zst, .parquet too. Else standard output.", show_default=False),
]
DeadLetters = Annotated[
    Path | None,
    typer.Option("--dead-letters", help="Where records go that fail, as lines of JSON.", show_default=False),
]
Processes = Annotated[
    int | None, typer.Option("--processes", min=1, help="How many worker processes.", show_default="one per core")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with code 3 where there are dead letters.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print neither progress nor a summary.")]
Sample = Annotated[
    str | None, typer.Option("--file", "-f", help="Records from which the types are taken.", show_default=False)
]


@group.callback()
@as_the_user_wants()
def transform(
    context: typer.Context,
    config: Config = None,
    file: Files = None,
    out: Out = None,
    dead_letters: DeadLetters = None,
    processes: Processes = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Transform JSON records of files or standard input by a configuration in YAML or TOML.

    Examples:
        umbel transform --config config.yaml -f events.json.gz -o events.parquet

        umbel transform --config config.yaml < events.json > new.json
    """
    if context.invoked_subcommand is not None:
        return
    if config is None:
        raise typer.BadParameter("it is missing", param_hint="--config")
    from umbel.transform.documents import read_file
    from umbel.transform.inputs import inputs
    from umbel.transform.outputs import check_apart, output
    from umbel.transform.run import run
    from umbel.transform.workers import TransformWorkers

    with ExitStack() as stack:
        stack.enter_context(_ends_in_order())
        files = inputs(file or [])
        check_apart([config, *(each.path for each in files)], [out, *([str(dead_letters)] if dead_letters else [])])
        workers = stack.enter_context(TransformWorkers(read_file(config), processes))
        workers.check()
        letters = stack.enter_context(output(str(dead_letters))) if dead_letters else None
        target = stack.enter_context(output(out))
        advance = stack.enter_context(_progress(files, is_shown=not quiet))
        summary = run(workers, files, target, dead_letters=letters, advance=advance)
    _report([] if quiet else [*summary.first, str(summary)])
    if strict and summary.letters:
        raise typer.Exit(3)


@contextmanager
def _ends_in_order() -> Iterator[None]:
    """Raise SystemExit inside of the block on SIGTERM and SIGHUP.

    A later signal ends the process at once.

    Unfinished files are removed on the way out.
    """
    ends_at_once_after = 0.0

    def end(number: int, _: object) -> None:
        nonlocal ends_at_once_after
        if not ends_at_once_after:
            ends_at_once_after = time.monotonic() + ONE_SIGNAL
            raise SystemExit(128 + number)
        if time.monotonic() > ends_at_once_after:
            os._exit(128 + number)

    found = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    before = {each: handler for each, handler in found.items() if handler is signal.SIG_DFL}  # not of nohup
    for each in before:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _report(lines: list[str]) -> None:
    for line in lines:
        typer.echo(f"umbel: {line}", err=True)


@contextmanager
def _progress(files: list[InputFile], *, is_shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if it is a terminal."""
    from umbel.transform.outputs import is_terminal

    total = sum(each.size for each in files)
    if not is_shown or not total or sys.stderr is None or not is_terminal(sys.stderr.fileno()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("transform", total=total)
        yield lambda count: bar.advance(task, count)


@group.command()
def lint(config: ConfigurationFile) -> None:
    """Check a configuration; print all faults with their lines.

    Examples:
        umbel transform lint config.yaml
    """
    from umbel.transform.configuration import load

    found = load(config)
    typer.echo(
        f"{config}: {len(found.documents)} documents, {sum(1 for _ in found.applied)} steps, {len(found.cases)} cases"
    )


@group.command()
def test(config: ConfigurationFile) -> None:
    """Run the cases of the document `tests:` of a configuration.

    Examples:
        umbel transform test config.yaml
    """
    from umbel.transform.cases import failures
    from umbel.transform.configuration import load

    configuration = load(config)
    found = list(failures(configuration))
    for each in found:
        typer.echo(each, err=True)
    typer.echo(f"{len(configuration.cases)} cases, {len(found)} failed")
    if found:
        raise typer.Exit(1)


@group.command()
def explain(config: ConfigurationFile, file: Sample = None) -> None:
    """Show which documents run in the Polars plan, and which as Python, and why.

    Examples:
        umbel transform explain config.yaml -f events.json
    """
    from umbel.transform.configuration import load
    from umbel.transform.explain import explained

    for line in explained(load(config), _sample(file) if file else None):
        typer.echo(line)


@group.command()
def schema() -> None:
    """Print the JSON schema of configurations, for editors.

    Examples:
        umbel transform schema > umbel-transform.json
    """
    import json

    from umbel.transform.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


def _sample(file: str) -> list[bytes]:
    from umbel.transform.inputs import inputs
    from umbel.transform.parts import split

    parts = inputs([file])[0].parts(lambda _: None)
    part = next((each for each in parts if not each.is_pause), None)
    return [] if part is None else [each for each in split(part.read()) if each.strip()]
