"""The command `umbel`. Each module of this package that has a function `command` is a subcommand."""

from __future__ import annotations

import os
import pkgutil
import sys
from importlib import import_module

import typer

import umbel.cli
from umbel.errors import UmbelError

GUIDE = """Real-time features from typed datasets, on Spark.

Start with the first of these; each command explains itself with --help:

    umbel run my_features           run everything for the module my_features, until Ctrl-C

    umbel log events clicks f.json  send it events

    umbel query UserFeatures -i UserFeatures.user=7

    umbel doctor                    when something does not work
"""

app = typer.Typer(
    name="umbel",
    help=GUIDE,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
        from rich.text import Text

        Console(stderr=True, soft_wrap=True).print(Text.assemble(("error ", "bold red"), str(error)))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
