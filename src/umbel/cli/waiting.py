"""Waiting until a server's worker has processed a commit or logged rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from umbel.client.connection import HttpConnection

PAUSE = 0.1
"""Seconds between two requests."""
Wait = Annotated[bool, typer.Option("--wait", help="Return when it is processed, not when it is accepted.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, help="For how many seconds --wait waits at the most.")]
TIMEOUT = 600.0


def wait_for(
    transport: HttpConnection,
    is_processed: Callable[[Mapping[str, Any]], bool],
    what: str,
    timeout: float,
    params: Mapping[str, str] | None = None,
    *,
    branch: str = "main",
) -> None:
    """Wait until processing meets a condition, and show the progress of a backfill.

    Args:
        transport: to the server.
        is_processed: receives the progress as the server reports it; returns whether to stop waiting.
        what: a description of the condition, for messages.
        timeout: seconds.
        params: of the request.
        branch: the branch whose progress is polled.

    Raises:
        Transient: the condition is not met in time.
    """
    from rich.console import Console

    from umbel.errors import Transient

    begun = time.monotonic()
    with Console(stderr=True).status(f"waiting until {what}") as line:
        while not is_processed(found := transport.send("GET", "/api/v1/progress", branch, params=params).json()):
            if time.monotonic() - begun > timeout:
                raise Transient(
                    f"{timeout:g} s were not enough until {what}; it goes on: {_state(found)}",
                    hint="is a worker running? umbel doctor, umbel dead-letters DATASET; or wait longer: --timeout",
                )
            line.update(f"waiting until {what}: {_state(found)}")
            time.sleep(PAUSE)
    typer.echo(f"{what} after {time.monotonic() - begun:.1f} s")


def _state(found: Mapping[str, Any]) -> str:
    backfill, rows = found["backfill"], found["rows"]
    if backfill:
        return str(backfill)
    return f"revision {found['revision']} is processed{'' if rows is None else f', {rows:,} rows of the endpoint'}"
