"""The requests that a collector answers."""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from typing import TYPE_CHECKING

import orjson

from umbel.collector.backlog import CollectorBacklog
from umbel.collector.bodies import Check, EventBatch, media_of, parse
from umbel.collector.connection import CollectorConnection, HttpRequest
from umbel.collector.keys import ApiKey, ApiKeys
from umbel.collector.responses import HttpResponse
from umbel.collector.settings import CollectorSettings
from umbel.collector.streams import EventStream, Streams
from umbel.collector.totals import Totals
from umbel.errors import Conflict, InvalidValue, Overloaded, Transient, UmbelError
from umbel.formats.compression import decompressed
from umbel.log.records import Receipt
from umbel.processes.open_files import ConnectionLimit
from umbel.request_errors import Internal, NoSuchRoute, OriginNotAllowed, RequestError, TooLarge, WrongMethod
from umbel.runtime.limits import Limits
from umbel.state.secrecy import conceal, concealed

if TYPE_CHECKING:
    from umbel.log.group_commit import Outcome

EVENTS = b"/api/v1/events/"
LONGEST_KEY = 1024
MOST_BUFFERED = 256 << 20
"""Bytes of bodies that arrive at the same time."""
MOST_SHOWN = 100
"""Rejected events that a response describes."""
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
ROUTES = "POST /api/v1/events/STREAM, GET /healthz, GET /readyz, GET /metrics"
_ACCEPTED, _REPEATED = b'{"accepted":%d,"first_row":%d}', b'{"accepted":%d,"first_row":%d,"repeated":true}'

log = logging.getLogger("umbel.collect")


class CollectorService:
    """Answers the requests of one process.

    Args:
        settings: of the collector.
        limits: of backlog and disk.
        deletes: whether this process deletes old events.
    """

    def __init__(self, settings: CollectorSettings, limits: Limits, *, deletes: bool = True) -> None:
        conceal(settings.directory)
        self.is_draining = False
        self.connections: set[CollectorConnection] = set()
        self.limit = ConnectionLimit(log)
        self.totals = Totals()
        self._requests, self._buffered = settings.limits, 0
        self._check = None if settings.schema is None else schema_check(settings)
        self._streams = Streams(settings.directory, settings.streams)
        self._keys = None if settings.keys is None else ApiKeys(settings.keys, settings.directory / "quotas")
        self._reported = ""
        self._refresh_keys(is_first=True)
        retention = settings.retention if deletes else None
        self.backlog = CollectorBacklog(settings.directory, self._streams, limits, self.totals, retention)
        self._admitted: dict[HttpRequest, tuple[EventStream, ApiKey | None]] = {}

    def admit(self, request: HttpRequest) -> HttpResponse | None:
        """Return a refusal for a request whose head is complete, None for none."""
        try:
            if request.target.startswith(EVENTS) and request.method == b"POST":
                self._admitted[request] = self._admit(request)
        except UmbelError as error:
            return self._refusal(request, error)
        return None

    def _admit(self, request: HttpRequest) -> tuple[EventStream, ApiKey | None]:
        headers = request.headers
        if b"origin" in headers:
            raise OriginNotAllowed("pages of browsers cannot send events here", hint="send them from a server")
        name = request.target[len(EVENTS) :].partition(b"?")[0].decode("latin-1")
        key = None if self._keys is None else self._keys.key_of(headers, name)
        stream = self._streams.stream(name)
        self.backlog.check(stream.refused)
        if key is not None:
            key.take(0)
        media_of(headers.get(b"content-type", b""))
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 15 or int(length) > self._requests.body:
            raise self._too_large()
        if self._buffered + int(length) > MOST_BUFFERED:
            raise Overloaded("too many requests arrive at the same time", hint="send it again later")
        return stream, key

    def _too_large(self) -> TooLarge:
        return TooLarge(f"a body may have {self._requests.body:,} bytes", hint="send it in parts, or compressed")

    def receive(self, request: HttpRequest, size: int) -> HttpResponse | None:
        """Note bytes of a body; return a refusal if they are too many."""
        request.size += size
        self._buffered += size
        if request.size > self._requests.body:
            return self._refusal(request, self._too_large())
        if self._buffered > MOST_BUFFERED + self._requests.body:
            return self._refusal(request, Overloaded("too many requests arrive at the same time"))
        return None

    def release(self, request: HttpRequest) -> None:
        """Note that a request is answered, or will not be."""
        self._buffered -= request.size
        request.size = 0
        self._admitted.pop(request, None)
        if request.response is not None:
            self.totals.answered(request.response.status, time.perf_counter() - request.begun)

    def take(self, request: HttpRequest) -> None:
        """Process a complete request."""
        admitted = self._admitted.get(request)
        try:
            if admitted is None:
                request.respond(self._looked_up(request))
            else:
                self._store(request, *admitted)
        except UmbelError as error:
            request.respond(self._refusal(request, error))
        except Exception as error:  # no request may end the process
            log.exception("a request failed: %s", type(error).__name__)
            request.respond(self._refusal(request, Internal("the collector failed; its log has the reason")))

    def _store(self, request: HttpRequest, stream: EventStream, key: ApiKey | None) -> None:
        headers, client = request.headers, "" if key is None else key.name
        idempotency = _idempotency_key(headers.get(b"idempotency-key"))
        data = decompressed(request.body, headers.get(b"content-encoding", b""), self._requests.body)
        is_lines = media_of(headers.get(b"content-type", b""))
        batch = parse(data, is_lines=is_lines, limits=self._requests, check=self._check)
        if key is not None:
            key.take(batch.rows + batch.rejected)
        answer = _Answer(self, request, stream, batch, len(data))
        letters = () if stream.is_full_of_letters else batch.letters
        if batch.rejected > len(letters):
            self.totals.counted(stream.name, "letters_dropped", batch.rejected - len(letters))
        answer.awaited = (batch.rows > 0) + (len(letters) > 0)
        if batch.rows:
            stream.append(batch.payload, batch.rows, idempotency, answer.settle)
        if letters:
            stream.append_letters(letters, client, idempotency, partial(answer.settle, is_letters=True))
        if not answer.awaited:
            answer.finish()

    def _looked_up(self, request: HttpRequest) -> HttpResponse:
        path = request.target.partition(b"?")[0]
        if path not in (b"/healthz", b"/readyz", b"/metrics"):
            shown = f"{request.method.decode('latin-1')} {path[:200].decode('latin-1')}"
            if path.startswith(EVENTS):
                raise WrongMethod(f"{shown}: this path takes POST", hint="send an event, or a list of them")
            raise NoSuchRoute(shown, hint=f"known: {ROUTES}")
        if request.method not in (b"GET", b"HEAD"):
            raise WrongMethod(f"{path.decode()} takes GET")
        if path == b"/metrics":
            return HttpResponse(200, self.totals.text(), media=TEXT)
        reasons = ["the process ends"] if self.is_draining else [*filter(None, [concealed(self.backlog.full)])]
        if path == b"/readyz" and reasons:
            return HttpResponse(503, orjson.dumps({"status": "not ready", "reasons": reasons}))
        return HttpResponse(200, b'{"status":"ready"}' if path == b"/readyz" else b'{"status":"ok"}')

    def refused(self, status: int, message: str) -> HttpResponse:
        """Return the response for no HTTP, an incomplete request, or a connection too many."""
        if status == 503:
            return HttpResponse(
                status, orjson.dumps({"code": "overloaded", "message": message, "hint": "try again later"})
            )
        return HttpResponse(status, orjson.dumps({"code": "bad-request", "message": message, "hint": None}))

    def _refusal(self, request: HttpRequest, error: UmbelError) -> HttpResponse:
        del request
        body = {"code": error.code, "message": concealed(error.placed()), "hint": error.hint}
        headers = b""
        status = 429 if isinstance(error, Transient) and error.status == 503 else error.status
        if error.retry_after is not None:
            headers = b"retry-after: %d\r\n" % math.ceil(error.retry_after)
        if isinstance(error, RequestError):
            headers += b"".join(f"{name.lower()}: {value}\r\n".encode() for name, value in error.headers.items())
        return HttpResponse(status, orjson.dumps(body), headers)

    def _refresh_keys(self, *, is_first: bool = False) -> None:
        if self._keys is None:
            return
        report = ""
        try:
            self._keys.refresh()
        except UmbelError as error:
            if is_first:
                raise
            report = error.message
        if report and report != self._reported:  # it is looked at once a second
            log.error("%s; the keys before stay valid", report)
        self._reported = report

    def look(self) -> None:
        """Measure the backlog, and read the keys again if they changed; called once a second."""
        self._refresh_keys()
        self.backlog.look()

    @property
    def broken(self) -> list[str]:
        """The names of streams to which only a new process may append."""
        return self._streams.broken

    def close(self) -> None:
        """Write what waits, and release files."""
        self._streams.close()


class _Answer:
    """The answer to a request, given when all that it brought is on disk."""

    __slots__ = ("_batch", "_collector", "_error", "_receipt", "_request", "_size", "_stream", "awaited")

    def __init__(
        self, collector: CollectorService, request: HttpRequest, stream: EventStream, batch: EventBatch, size: int
    ) -> None:
        self._collector, self._request, self._stream = collector, request, stream
        self._batch, self._size, self.awaited = batch, size, 0
        self._receipt: Receipt | None = None
        self._error: BaseException | None = None

    def settle(self, outcome: Outcome, *, is_letters: bool = False) -> None:
        """Take the outcome of one part."""
        if isinstance(outcome, BaseException):
            self._error = outcome
        elif not is_letters:
            self._receipt = outcome
        self.awaited -= 1
        if not self.awaited:
            self.finish()

    def finish(self) -> None:
        """Answer the request."""
        if self._error is not None:
            error = self._error if isinstance(self._error, UmbelError) else Transient(str(self._error))
            self._request.respond(self._collector._refusal(self._request, error))
            return
        batch, receipt, totals = self._batch, self._receipt, self._collector.totals
        if receipt is not None and receipt.has_other_rows:
            message = "the Idempotency-Key was sent with other events before: these were not stored"
            error = Conflict(message, hint="send other events with a key of their own")
            self._request.respond(self._collector._refusal(self._request, error))
            return
        if receipt is not None:
            outcome = "repeated" if receipt.is_duplicate else "accepted"
            totals.counted(self._stream.name, outcome, batch.rows, self._size)
        if not batch.rejected:
            form = _REPEATED if receipt is not None and receipt.is_duplicate else _ACCEPTED
            rows, first = (0, 0) if receipt is None else (receipt.rows, receipt.row)
            self._request.respond(HttpResponse(200, form % (rows, first)))
            return
        totals.counted(self._stream.name, "rejected", batch.rejected)
        self._request.respond(self._partly(receipt))

    def _partly(self, receipt: Receipt | None) -> HttpResponse:
        batch = self._batch
        errors = [{"index": each.index, "reason": each.reason} for each in batch.letters[:MOST_SHOWN]]
        found = {"accepted": 0 if receipt is None else receipt.rows, "rejected": batch.rejected, "errors": errors}
        if receipt is not None:
            found |= {"first_row": receipt.row, **({"repeated": True} if receipt.is_duplicate else {})}
        else:
            message = f"no event was accepted; the first: {errors[0]['reason']}"
            found = {"code": "rejected-events", "message": message, "hint": None, **found}
        return HttpResponse(422 if receipt is None else 200, orjson.dumps(found))


def _idempotency_key(header: bytes | None) -> str | None:
    if header is None:
        return None
    if not header.strip() or len(header) > LONGEST_KEY:
        raise InvalidValue(f"the header Idempotency-Key must have 1 to {LONGEST_KEY} characters, found {len(header)}")
    return header.decode("latin-1")


def check_files(settings: CollectorSettings) -> None:
    """Check the files of the schema and of the keys.

    Raises:
        InvalidValue: one cannot be used.
    """
    if settings.schema is not None:
        schema_check(settings)
    if settings.keys is not None:
        ApiKeys(settings.keys, settings.directory / "quotas").refresh()


def schema_check(settings: CollectorSettings) -> Check:
    """Return the check of events by a JSON schema.

    Raises:
        InvalidValue: the file cannot be read, or has no valid schema.
    """
    import jsonschema_rs

    assert settings.schema is not None
    try:
        schema = orjson.loads(settings.schema.read_bytes())
        validator = jsonschema_rs.validator_for(schema)
    except (OSError, ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidValue(f"the schema {settings.schema} cannot be used: {str(error).splitlines()[0]}") from None

    def check(event: object) -> str:
        if validator.is_valid(event):
            return ""
        first = next(iter(validator.iter_errors(event)))
        path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in first.instance_path)
        return f"{path.lstrip('.') or 'the event'}: {first.message}"[:500]

    return check
