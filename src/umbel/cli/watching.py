"""The terminal output of `umbel run` and `umbel up` while processes run."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.text import Text

from umbel.cli.tables import visible
from umbel.processes.status import read_failures, read_status
from umbel.serving.policy import reached_at, url_of

if TYPE_CHECKING:
    from rich.status import Status as Spinner

    from umbel.runtime.deployment import Deployment
    from umbel.runtime.freshness import Lag

TIMEOUT = 0.5


class Watch:
    """Reports readiness and, on a terminal, updates a line of rows, freshness and dead letters.

    Args:
        deployment: the deployment that runs.
        host: the address its server listens on.
        port: the port its server listens on.
        scheme: `https` if the server has TLS.
    """

    def __init__(self, deployment: Deployment, host: str, port: int, scheme: str = "http") -> None:
        self._deployment, self._port, self._scheme = deployment, port, scheme
        self._host = reached_at(host)
        self._console = Console(stderr=True)
        self._line: Spinner | None = None
        from umbel.runtime.limits import Limits

        self._begun = time.monotonic()
        self._is_ready = False
        self._rate = Rate()
        self._limits = Limits.from_environment()

    def __enter__(self) -> Self:
        self.record_event(f"everything is kept in {self._deployment.directory}; Ctrl-C stops it")
        if self._console.is_terminal:
            self._line = self._console.status("starting")
            self._line.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.stop()
        self._deployment.catalog.close()

    @property
    def url(self) -> str:
        """The URL of the server."""
        return url_of(self._scheme, self._host, self._port)

    def record_event(self, text: str) -> None:
        """Print a line that stays on the terminal."""
        self._console.print(Text(f"umbel: {visible(text)}"), soft_wrap=True)

    def look(self) -> None:
        """Update the status line; called about once a second."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001  the display must not end the processes it reports on
            if self._line is not None:
                self._line.update(Text(f"cannot tell how it does: {error!s:.200}"))

    def _look(self) -> None:
        from umbel.runtime.freshness import Lag, lags
        from umbel.runtime.health import LOOPING, STUCK, judge

        status, failures = read_status(self._deployment.directory), read_failures(self._deployment.directory)
        works = status is not None and status.is_running
        if not self._is_ready and works and self._answers():
            self._is_ready = True
            self.record_event(f"ready after {time.monotonic() - self._begun:.1f} s: {self.url}")
            self._example()
        if self._line is None:
            return
        lag = Lag.total(lags(self._deployment).values())
        state, reason = judge(status, failures, lag, self._limits, time.time())
        if state in {LOOPING, STUCK}:
            self._line.update(Text(f"the worker is {state}: {visible(reason.splitlines()[0]):.200} · {lag}"))
        else:
            starting = f"the worker is starting (Spark takes some seconds) · {lag}"
            self._line.update(Text(self._how(lag) if works else starting))

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)
        if (
            self._scheme == "https"
        ):  # whether it is ready is no secret, and its certificate is for another name than this
            unverified = ssl._create_unverified_context()  # noqa: S323
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=unverified)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    def _how(self, lag: Lag) -> str:
        from umbel.runtime.switching import switches

        counts = self._deployment.catalog.counts()
        rows = sum(count for (_, name), count in counts.items() if name == "rows")
        dead = sum(count for (_, name), count in counts.items() if name == "dead")
        shown = f"{self._rate.of(rows):,.0f} rows/s · {rows:,} rows · {lag} · {_many(dead, 'dead letter')}"
        return " · ".join(
            [shown, *(each.message for each in switches(self._deployment, self._deployment.catalog.latest()))]
        )

    def _example(self) -> None:
        from umbel.cli.example import query_example

        definitions = self._deployment.definitions(self._deployment.catalog.revision())
        found = query_example(definitions)
        if found is None:
            self.record_event(f"nothing to query is committed yet: umbel commit MODULE --url {self.url}")
        else:
            path, body = found
            data = json.dumps(body)
            self.record_event(f"try:\n  curl -s {self.url}{path} -H 'Content-Type: application/json' -d '{data}'")


class Rate:
    """Rows per second, over the last samples."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, int]] = []

    def of(self, rows: int) -> float:
        """Add a sample of the row count; return the rows per second."""
        self._looks = [*self._looks[-5:], (time.monotonic(), rows)]
        (begun, before), (ended, now) = self._looks[0], self._looks[-1]
        return (now - before) / (ended - begun) if ended > begun else 0.0


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
