"""What `umbel run` and `umbel up` show while everything runs."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.text import Text

from umbel.cli.options import LOOPBACK
from umbel.runtime.status import read_status

if TYPE_CHECKING:
    from rich.status import Status as Spinner

    from umbel.runtime.deployment import Deployment

TIMEOUT = 0.5
ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  looked for, not listened on


class Watch:
    """Says when everything is ready and, on a terminal, keeps a line about rows, freshness and dead letters.

    Args:
        place: the deployment that runs.
        host: where its server listens.
        port: where its server listens.
    """

    def __init__(self, place: Deployment, host: str, port: int) -> None:
        self._place, self._port = place, port
        self._host = LOOPBACK if host in ANYWHERE else host
        self._console = Console(stderr=True)
        self._line: Spinner | None = None
        self._begun = time.monotonic()
        self._is_ready = False
        self._rate = Rate()

    def __enter__(self) -> Self:
        self.tell(f"everything is kept in {self._place.directory}; Ctrl-C stops it")
        if self._console.is_terminal:
            self._line = self._console.status("starting")
            self._line.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.stop()
        self._place.catalog.close()

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"http://{self._host}:{self._port}"

    def tell(self, text: str) -> None:
        """Say something that stays."""
        self._console.print(Text(f"umbel: {text}"), soft_wrap=True)

    def look(self) -> None:
        """Look how everything does; called about once a second."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001  what is shown must not end what runs
            if self._line is not None:
                self._line.update(Text(f"cannot tell how it does: {error!s:.200}"))

    def _look(self) -> None:
        status = read_status(self._place.directory)
        works = status is not None and status.is_running
        if not self._is_ready and works and self._answers():
            self._is_ready = True
            self.tell(f"ready after {time.monotonic() - self._begun:.1f} s: {self.url}")
            self._example()
        if self._line is not None:
            self._line.update(Text(self._how() if works else "the worker is starting (Spark takes some seconds)"))

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    def _how(self) -> str:
        from umbel.runtime.freshness import behind

        counts = self._place.catalog.counts()
        rows = sum(count for (_, name), count in counts.items() if name == "rows")
        dead = sum(count for (_, name), count in counts.items() if name == "dead")
        waited = behind(self._place)
        lag = f"{waited:.1f} s behind" if waited else "up to date"
        return f"{self._rate.of(rows):,.0f} rows/s · {rows:,} rows · {lag} · {_many(dead, 'dead letter')}"

    def _example(self) -> None:
        from umbel.cli.example import query_example

        definitions = self._place.definitions(self._place.catalog.revision())
        found = query_example(definitions)
        if found is None:
            self.tell(f"nothing to query is committed yet: umbel commit MODULE --url {self.url}")
        else:
            path, body = found
            data = json.dumps(body)
            self.tell(f"try:\n  curl -s {self.url}{path} -H 'Content-Type: application/json' -d '{data}'")


class Rate:
    """Rows per second, over the last few looks."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, int]] = []

    def of(self, rows: int) -> float:
        """Note how many rows there are, and return how many came per second."""
        self._looks = [*self._looks[-5:], (time.monotonic(), rows)]
        (begun, before), (ended, now) = self._looks[0], self._looks[-1]
        return (now - before) / (ended - begun) if ended > begun else 0.0


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
