"""An HTTP endpoint as a sink: batches of changes, each with an idempotency key.

An HTTP server has no place for a position, so the deployment keeps it. What is sent again after a crash or a lost response is
the very same request with the same key: at least once, and exactly once to a server that does nothing for a key it knows.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar

import httpx
import orjson

from umbel.connectors.credentials import resolved
from umbel.connectors.http import HTTP, Certificate
from umbel.connectors.sinks import (
    ENOUGH,
    Isolation,
    Refusal,
    RowChange,
    RowsRefused,
    SinkPosition,
    SinkWriter,
    WriteOptions,
    divided,
    none_accepted,
)
from umbel.errors import InvalidValue, Transient

if TYPE_CHECKING:
    from umbel.connectors.http import HTTPConnector

LIMIT = 1000
"""Changes in one request, unless the endpoint has a limit."""
ATTEMPTS = 5
FIRST_WAIT, LONGEST_WAIT = 0.2, 30.0
"""Seconds before another attempt: the first, and the longest after doubling, or as the server says."""
MOST_READ, LONGEST_ANSWER = 4096, 10.0
"""Characters of an answer, and seconds for which they are waited for: its status says what came of the request."""
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
AGAIN = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may succeed."""
REFUSED = frozenset({400, 413, 422})
"""Statuses of a request that is refused for its changes: their values, or their size."""
HINT = "see the server's own log"
KEY = "Idempotency-Key"


class EndpointWriter(SinkWriter):
    """Posts to one endpoint.

    Args:
        connector: the endpoint.
        options: of the sink.
    """

    keeps_position: ClassVar[bool] = False
    isolates: ClassVar[bool] = True

    def __init__(self, connector: HTTPConnector, options: WriteOptions) -> None:
        source = connector.source
        assert isinstance(source, HTTP)
        self._title, self._options, self._limit = connector.title, options, connector.limit or LIMIT
        self._path, self._health = connector.endpoint, source.healthz
        self._accepted = set[str]()
        self._parted = "" if self._limit == LIMIT else f"-of-{self._limit}"  # the same key is the same part
        self._client = httpx.Client(
            base_url=resolved(source.host),
            headers={"User-Agent": "umbel", **dict(connector.headers), "Content-Type": "application/json"},
            verify=_trusted(source.ca_cert),
            timeout=TIMEOUT,
        )

    def position(self) -> SinkPosition:
        """Return none, after a look at the server's health: the deployment has the position."""
        if self._health:
            self._send("GET", self._health, None, {})
        return SinkPosition()

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        self._accepted.clear()
        for key, part in self._parts(changes, position):
            self._post(key, part)

    def write_accepted(self, changes: Sequence[RowChange], position: SinkPosition, isolation: Isolation) -> None:
        accepted, refused = list[RowChange](), list[Refusal]()
        for number, (key, part) in enumerate(self._parts(changes, position)):
            ranges, others = self._divided(key, part, isolation)
            accepted += ranges
            refused += [replace(each, number=number * self._limit + each.number) for each in others]
            if len(refused) >= ENOUGH and not accepted:
                raise none_accepted(refused)
        isolation.settle(refused, accepted)

    def _divided(
        self, key: str, part: Sequence[RowChange], isolation: Isolation
    ) -> tuple[list[RowChange], list[Refusal]]:
        """Post the changes of a request, in several ones where it is refused."""

        def attempt(begin: int, chosen: Sequence[RowChange]) -> None:
            own = key if len(chosen) == len(part) else f"{key}-{begin}-{begin + len(chosen)}"
            alone = chosen[0].alone if len(chosen) == 1 else None
            try:
                if isolation.is_divided(own):
                    raise RowsRefused(f"{self._title}: POST {self._path}: it was refused before")
                self._post(own, chosen)
            except RowsRefused:
                if len(chosen) == 1 and alone is None:
                    raise
                isolation.divide(own)
                if alone is None:
                    raise
                self._post(f"{own}-alone", [alone])

        ranges, refused = divided(part, attempt)
        return [each for _, chosen in ranges for each in chosen], refused

    def _parts(self, changes: Sequence[RowChange], position: SinkPosition) -> Iterator[tuple[str, Sequence[RowChange]]]:
        """Yield the changes of each request, with its key."""
        for part, begin in enumerate(range(0, len(changes), self._limit)):
            yield f"{self._options.id}-{position.key}-{part}{self._parted}", changes[begin : begin + self._limit]

    def _post(self, key: str, changes: Sequence[RowChange]) -> None:
        """Post changes, unless this writer has done so."""
        if key not in self._accepted:
            self._send("POST", self._path, orjson.dumps([self._message(each) for each in changes]), {KEY: key})
            self._accepted.add(key)

    def close(self) -> None:
        self._client.close()

    def _message(self, change: RowChange) -> dict[str, Any]:
        """Return a change in Debezium's form.

        It has no time of sending, since it must be the same each time.
        """
        source = {"connector": "umbel", "table": self._options.dataset, "ts_us": change.at}
        sides = {"before": change.before, "after": change.after}
        return {"key": change.key, **sides, "source": {**source, "ts_ms": -(-change.at // 1000)}, "op": change.op}

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
        """Send a request until it succeeds, some times.

        Raises:
            Transient: it did not.
            RowsRefused: the server refuses the body.
            InvalidValue: it refuses the request for good.
        """
        failure = ""
        for attempt in range(ATTEMPTS):
            wait = FIRST_WAIT * 2.0**attempt * random.uniform(0.5, 1.0)
            try:
                with self._client.stream(method, path, content=body, headers=headers) as answer:
                    text = _begin(answer)
            except httpx.HTTPError as error:
                failure = f"{type(error).__name__}"
            else:
                if answer.is_success:
                    return
                failure = f"status {answer.status_code}"
                if answer.status_code in REFUSED and body is not None:
                    details = " ".join(text.split())
                    raise RowsRefused(
                        f"{self._title}: {method} {path}: {failure}: {details:.200}".rstrip(": "), hint=HINT
                    )
                if answer.status_code < 500 and answer.status_code not in AGAIN:
                    raise InvalidValue(f"{self._title}: {method} {path}: {failure}", hint=HINT)
                wait = max(wait, _retry_after(answer))
            if attempt < ATTEMPTS - 1:
                time.sleep(min(wait, LONGEST_WAIT))
        raise Transient(
            f"{self._title}: {method} {path}: {failure}", hint="see that the server runs; it is tried again"
        )


def _begin(answer: httpx.Response) -> str:
    """Return the text of an answer, or its begin.

    The rest of one that is long, slow or cut is not read, and its connection is closed.
    """
    text, until = "", time.monotonic() + LONGEST_ANSWER
    with suppress(httpx.HTTPError):  # its status is there
        for part in answer.iter_text():
            text += part
            if len(text) >= MOST_READ or time.monotonic() > until:
                break
    return text


def _retry_after(answer: httpx.Response) -> float:
    """Return the seconds that the server requests, by their number or by a date."""
    declared = answer.headers.get("Retry-After", "0")
    try:
        return float(declared)
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(declared)
    except ValueError:
        return 0.0
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - time.time()


def _trusted(certificate: Any) -> ssl.SSLContext | bool:
    if certificate is None:
        return True
    credential = certificate.cert if isinstance(certificate, Certificate) else certificate
    try:
        return ssl.create_default_context(cadata=resolved(credential))
    except ssl.SSLError as error:
        raise InvalidValue(
            f"ca_cert is no certificate: {error.reason}", hint="its text begins with BEGIN CERTIFICATE"
        ) from None
