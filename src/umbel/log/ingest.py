"""The ingest log: accepted webhook requests, durable before they are acknowledged.

    logs = IngestLogs(root)
    receipt = await logs.log("web", "payments").append(b'[{"user": 1}]', rows=1)      # returns after fsync

Group commit: while one group is being written and synced by a background thread, all appends that arrive wait together
and make the next group. Several server processes may append to one log at once; each group is written under the
log's lock, so there is one order of all records, and a request sent after the response to another is stored after it.

Batch ids: an append with the id of an earlier one is answered with the position of the earlier one and stored once, as
long as the earlier one is retained, whichever process received it.
"""

from __future__ import annotations

import time
from pathlib import Path

from umbel.errors import InvalidValue
from umbel.log.appender import SEGMENT_BYTES, Appender
from umbel.log.group_commit import GroupCommit, Settle
from umbel.log.records import MAX_PAYLOAD, Entry, Receipt, digest_of
from umbel.log.segments import directory_of

MAX_ROWS = (1 << 32) - 1


class IngestLog:
    """One process's writer of an endpoint's log, usable from any thread and event loop.

    Args:
        root: umbel's directory; the log is in `<root>/ingest/<webhook>/<endpoint>`.
        webhook: name of the webhook.
        endpoint: name of the endpoint.
        segment_bytes: size in bytes from which on a segment is followed by a new one.
    """

    def __init__(self, root: Path, webhook: str, endpoint: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory_of(root, webhook, endpoint)
        self._appender = Appender(self.directory, segment_bytes)
        self._commits = GroupCommit(self._appender.append, f"ingest log {webhook}/{endpoint}")

    async def append(
        self, payload: bytes, rows: int, *, batch_id: str | None = None, received_at: int | None = None
    ) -> Receipt:
        """Append a batch of rows; return once it is on disk.

        Args:
            payload: a JSON list of row objects, as posted.
            rows: number of rows in the list.
            batch_id: the client's id of this batch, to store a repeated request once.
            received_at: microseconds since the epoch; now when None.

        Raises:
            Transient: the disk write failed or is too slow; nothing was acknowledged.
        """
        return await self._commits.submit(_entry(payload, rows, batch_id, received_at))

    def append_to(
        self, settle: Settle, payload: bytes, rows: int, *, batch_id: str | None = None, received_at: int | None = None
    ) -> None:
        """Append like `append`; the running event loop calls `settle` with the receipt or the error."""
        self._commits.submit_to(_entry(payload, rows, batch_id, received_at), settle)

    def append_blocking(
        self, payload: bytes, rows: int, *, batch_id: str | None = None, received_at: int | None = None
    ) -> Receipt:
        """Append like `append`, from a thread without an event loop."""
        return self._commits.submit_blocking(_entry(payload, rows, batch_id, received_at)).result()

    @property
    def is_broken(self) -> bool:
        """True once a sync has failed: only a new process may append."""
        return self._appender.is_broken

    def close(self) -> None:
        """Write the waiting entries, then release files."""
        self._commits.close()
        self._appender.close()


class IngestLogs:
    """The writers of all endpoints' logs in one process.

    Args:
        root: umbel's directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._logs: dict[tuple[str, str], IngestLog] = {}

    def log(self, webhook: str, endpoint: str) -> IngestLog:
        """Return the log of an endpoint, opened at its first use."""
        found = self._logs.get((webhook, endpoint))
        if found is None:
            found = self._logs[webhook, endpoint] = IngestLog(self._root, webhook, endpoint)
        return found

    def close(self) -> None:
        """Close every log."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()


def _entry(payload: bytes, rows: int, batch_id: str | None, received_at: int | None) -> Entry:
    if not 0 <= rows <= MAX_ROWS:
        raise InvalidValue(f"a batch cannot have {rows} rows")
    if len(payload) > MAX_PAYLOAD:
        raise InvalidValue(f"a batch of {len(payload)} bytes is too large", hint="send it in parts")
    digest = None if batch_id is None else digest_of(batch_id)
    return Entry(payload, rows, time.time_ns() // 1000 if received_at is None else received_at, digest)
