"""The command `umbel`: each module of this package with a function `command` is a subcommand."""

from __future__ import annotations

import os
import pkgutil
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

import umbel
import umbel.cli
from umbel.cli.waiting import WaitError
from umbel.errors import UmbelError, unwrapped
from umbel.processes.allocation import retain_freed_memory
from umbel.processes.privacy import private_by_default
from umbel.processes.user_folder import importable

GUIDE = """Real-time features from typed datasets, on Spark.

Start with the first of these; each command explains itself with --help:

    umbel run my_features           run everything for the module my_features, until Ctrl-C

    umbel log events clicks f.json  send it events

    umbel query UserFeatures -i UserFeatures.user=7

    umbel doctor                    when something does not work
"""

PROGRAM = "umbel"

app = typer.Typer(
    name=PROGRAM,
    help=GUIDE,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMPLETING = "_UMBEL_COMPLETE"
"""The environment variable by which the script of `umbel completion` requests completions."""


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"umbel {umbel.__version__}")
        raise typer.Exit


@app.callback(help=GUIDE)
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version; more: umbel version.")
    ] = False,
) -> None: ...


for _module in sorted(each.name for each in pkgutil.iter_modules(umbel.cli.__path__)):
    _found = import_module(f"umbel.cli.{_module}") if _module != "main" else None
    if _found is not None and hasattr(_found, "command"):
        app.command(_module.replace("_", "-"))(_found.command)
    if _found is not None and hasattr(_found, "group"):
        app.add_typer(_found.group, name=_module.replace("_", "-"))


def main() -> None:
    """Run the command line; user errors end it with a message, without traceback."""
    private_by_default()
    if isinstance(sys.stdout, TextIOWrapper):  # a locale without UTF-8, or the name of a folder that is not UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.argv[1:2] == ["work"]:
        retain_freed_memory()
    try:
        if COMPLETING in os.environ:
            from typer._completion_classes import completion_init

            completion_init()
        importable(Path.cwd())
        app(prog_name=PROGRAM)
    except UmbelError as error:
        from rich.console import Console
        from rich.text import Text

        from umbel.cli.tables import visible
        from umbel.state.passwords import redacted

        text = visible(redacted(str(error)))
        Console(stderr=True, soft_wrap=True).print(Text.assemble(("error ", "bold red"), text))
        sys.exit(error.exit_code if isinstance(error, WaitError) else 2)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if not (reason := _of_disk(error)):
            raise
        typer.echo(f"error {reason}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not (reason := _of_database(error)):
            raise
        typer.echo(f"error the catalog: {reason}", err=True)
        sys.exit(2)


def _of_disk(error: OSError) -> str:
    """Return why a file or its disk failed, empty for another error."""
    from umbel.state import disk

    if error.filename is None and error.errno not in disk.FULL:
        return ""
    place = f"{error.filename}: " if error.filename is not None else ""
    hint = f"\n  hint: {disk.remedy_of(error.errno)}" if error.errno in disk.FULL else ""
    return f"{place}{error.strerror}{hint}"


def _of_database(error: Exception) -> str:
    """Return why the catalog's database failed, empty for another error."""
    if type(error).__name__ != "OperationalError":  # of sqlite3, or of a library that is imported where it is used
        return ""
    from umbel.catalog.engine import remedy_of

    reason = str(unwrapped(error)).strip()
    return f"{reason}\n  hint: {remedy}" if (remedy := remedy_of(error)) else reason


if __name__ == "__main__":
    main()
