"""Commit a module to a running server."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from umbel.cli.loading import definitions
from umbel.cli.options import URL, Module, Url


def command(
    module: Module,
    url: Url = URL,
    message: Annotated[str, typer.Option("-m", "--message", help="Why.")] = "",
    env: str | None = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say what would change.")] = False,
    incremental: Annotated[bool, typer.Option("--incremental", help="Keep what MODULE does not mention.")] = False,
    backfill: Annotated[bool, typer.Option(help="Whether new pipelines may be computed from history.")] = True,
) -> None:
    """Commit what MODULE defines to a running server."""
    from umbel.client.transport import Transport
    from umbel.plan.serde import dump

    options = {"message": message, "preview": preview, "incremental": incremental, "backfill": backfill}
    content = dump(definitions(module, env))
    told = Transport(url, "").send("POST", "/api/v1/commit", "main", content=content, params=options).json()
    console = Console()
    for kind in ("new", "changed", "removed", "unchanged", "recomputed"):
        if told[kind]:
            console.print(f"{kind:>11}  {', '.join(told[kind])}", highlight=False)
    console.print(
        "nothing committed (preview)" if preview else f"revision {told['revision']} is in force", highlight=False
    )
