"""Waiting until a server's worker has processed a commit or logged rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umbel.errors import Transient

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from umbel.client.connection import HttpConnection

PAUSE = 0.1
"""Seconds between two requests."""
LINE_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""
WITHOUT_WORKER = 15.0
"""Seconds for which no worker may be alive before it is given up; a supervisor starts one that ended."""
MOST_FAILURES = 5
"""Failures of a backfill in a row, half a minute at the least, after which it is given up."""
DEAD = ("never started", "stopped", "looping", "stuck")
"""States of a worker that processes nothing."""
TOO_LATE, NO_WORKER, FAILING = 3, 4, 5
"""Exit codes: what was waited for did not happen in time, no worker is alive, the backfill fails."""
Wait = Annotated[bool, typer.Option("--wait", help="Return when it is processed, not when it is accepted.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, help="For how many seconds --wait waits at the most.")]
TIMEOUT = 600.0


class WaitError(Transient):
    """A condition did not come true while waiting; the server goes on.

    Args:
        message: the reason.
        hint: the remedy.
        exit_code: of the program.
    """

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message, where=where, hint=hint)
        self.exit_code = exit_code


def wait_for(
    transport: HttpConnection,
    is_processed: Callable[[Mapping[str, Any]], bool],
    what: str,
    timeout: float,
    params: Mapping[str, str] | None = None,
    *,
    branch: str = "main",
) -> None:
    """Wait until processing meets a condition, and show the progress of a backfill on stderr.

    Args:
        transport: to the server.
        is_processed: receives the progress as the server reports it; returns whether to stop waiting.
        what: a description of the condition, for messages.
        timeout: seconds.
        params: of the request.
        branch: the branch whose progress is polled.

    Raises:
        WaitError: the condition is not met in time, no worker is alive, or the backfill fails again and again.
    """
    wait_while(
        lambda: transport.send("GET", "/api/v1/progress", branch, params=params).json(), is_processed, what, timeout
    )


def wait_while(
    progress: Callable[[], Mapping[str, Any]],
    is_processed: Callable[[Mapping[str, Any]], bool],
    what: str,
    timeout: float,
) -> None:
    """Wait until progress meets a condition, and show it on stderr.

    Args:
        progress: returns the progress, in the form in which a server reports it.
        is_processed: receives it; returns whether to stop waiting.
        what: a description of the condition, for messages.
        timeout: seconds.

    Raises:
        WaitError: the condition is not met in time, no worker is alive, or the backfill fails again and again.
    """
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    begun = time.monotonic()
    with console.status(f"waiting until {what}") as line:
        watch = _Waiting(what, timeout, console, line)
        while not is_processed(found := progress()):
            watch.look(found)
            time.sleep(PAUSE)
    typer.echo(f"{what} after {time.monotonic() - begun:.1f} s")


class _Waiting:
    """The display of progress, and the reasons to give up.

    Args:
        what: a description of the condition, for messages.
        timeout: seconds.
        console: on stderr.
        line: replaced with the progress, on a terminal.
    """

    def __init__(self, what: str, timeout: float, console: Console, line: Status) -> None:
        self._what, self._timeout, self._console, self._line = what, timeout, console, line
        self._begun = self._moved = self._printed = time.monotonic()
        self._last: Mapping[str, Any] = {}
        self._first_rows: int | None = None
        self._failures = 0

    def look(self, found: Mapping[str, Any]) -> None:
        """Show the progress.

        Raises:
            WaitError: it is time to give up.
        """
        now, status = time.monotonic(), found["status"]
        if found != self._last:
            self._moved, self._last = now, found
        if self._first_rows is None:
            self._first_rows = status["rows_done"]
        text = self._described(found, now - self._begun)
        self._show(f"waiting until {self._what}: {text}", now)
        if status["failures"] > self._failures:
            self._console.print(
                f"the backfill failed and is tried again: {status['error']}", markup=False, highlight=False
            )
        self._failures = status["failures"]
        self._give_up(found, text, now)

    def _show(self, text: str, now: float) -> None:
        from rich.text import Text

        self._line.update(Text(text))
        if not self._console.is_terminal and now - self._printed >= LINE_EVERY:
            self._printed = now
            self._console.print(Text(text))

    def _described(self, found: Mapping[str, Any], elapsed: float) -> str:
        status, rows = found["status"], found["rows"]
        if not found["backfill"]:
            return (
                f"revision {found['revision']} is processed{'' if rows is None else f', {rows:,} rows of the endpoint'}"
            )
        done, total = status["rows_done"], status["rows_total"]
        if not total:
            return str(found["backfill"])
        average = (done - (self._first_rows or 0)) / elapsed if elapsed > 1 else 0.0
        speed = status["rows_per_second"] or average
        left = f", {speed:,.0f} rows/s, about {(total - done) / speed:,.0f} s left" if speed > 0 else ""
        return f"{int(status['share'] * 100)} %, {done:,} of {total:,} rows{left}"

    def _give_up(self, found: Mapping[str, Any], text: str, now: float) -> None:
        status = found["status"]
        if status["failures"] >= MOST_FAILURES:
            message = (
                f"the backfill has failed {status['failures']} times in a row, and is tried again: {status['error']}"
            )
            hint = "see the worker's log below logs/; the version before goes on serving"
            raise WaitError(message, hint=hint, exit_code=FAILING)
        if now - self._begun > self._timeout:
            raise WaitError(
                f"{self._timeout:g} s were not enough until {self._what}; it goes on: {text}",
                hint="is a worker running? umbel doctor, umbel dead-letters DATASET; or wait longer: --timeout",
                exit_code=TOO_LATE,
            )
        if found["worker"] in DEAD and now - self._moved > WITHOUT_WORKER:
            reason = f" ({found['worker_reason']})" if found["worker_reason"] else ""
            raise WaitError(
                f"no worker is alive: {found['worker']}{reason}; what was sent is stored, and processed by the next one",
                hint="umbel work starts one; umbel doctor says what is wrong",
                exit_code=NO_WORKER,
            )
