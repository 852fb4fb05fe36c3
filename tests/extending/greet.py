"""A command, as one file in `umbel/cli` adds it."""

from __future__ import annotations

import typer


def command(name: str = "you") -> None:
    """Greet somebody."""
    typer.echo(f"hello {name}")
