"""The command `umbel`. Each module of this package that has a function `command` is a subcommand."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import typer

import umbel.cli
from umbel.errors import UmbelError

app = typer.Typer(
    name="umbel",
    help="Real-time features from typed datasets, on Spark. Start with: umbel run MODULE",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for _module in sorted(each.name for each in pkgutil.iter_modules(umbel.cli.__path__)):
    _found = import_module(f"umbel.cli.{_module}") if _module != "main" else None
    if _found is not None and hasattr(_found, "command"):
        app.command(_module.replace("_", "-"))(_found.command)


def main() -> None:
    """Run the command line; a mistake ends it with a message, not with a traceback."""
    try:
        app()
    except UmbelError as error:
        from rich.console import Console

        Console(stderr=True).print(f"[bold red]error[/] {error}", highlight=False, markup=True, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
