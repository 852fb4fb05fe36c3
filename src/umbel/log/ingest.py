"""The ingest log: what webhooks accepted, durable before it is acknowledged.

    logs = IngestLogs(root)
    receipt = await logs.log("web", "payments").append(b'[{"user": 1}]', rows=1)      # returns after fsync

Group commit: while one group is being written and synced by a background thread, all appends that arrive wait together
and make the next group. Several server processes may append to one log at once; each group is written under the
log's lock, so there is one order of all records, and a request sent after the answer to another stands behind it.

Batch ids: an append with the id of an earlier one is answered with the place of the earlier one and stored once, as
long as the earlier one is retained, whichever process took it.
"""

from __future__ import annotations

import time
from pathlib import Path

from umbel.errors import InvalidValue
from umbel.log.appender import SEGMENT_BYTES, Appender
from umbel.log.groupcommit import GroupCommit
from umbel.log.records import MAX_PAYLOAD, Entry, Receipt, digest_of
from umbel.log.segments import directory_of

MAX_ROWS = (1 << 32) - 1


class IngestLog:
    """The appending side of one endpoint's log in one process; any thread and event loop may use it.

    Args:
        root: umbel's directory; the log is in `<root>/ingest/<webhook>/<endpoint>`.
        webhook: name of the webhook.
        endpoint: name of the endpoint.
        segment_bytes: a segment that has reached this size is followed by a new one.
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
            rows: how many rows the list has.
            batch_id: the client's name for this batch, to store a repeated request once.
            received_at: microseconds since the epoch; now when None.

        Raises:
            Transient: the disk refused or is too slow; nothing was acknowledged.
        """
        return await self._commits.submit(_entry(payload, rows, batch_id, received_at))

    def append_blocking(
        self, payload: bytes, rows: int, *, batch_id: str | None = None, received_at: int | None = None
    ) -> Receipt:
        """Do what `append` does, from a thread without an event loop."""
        return self._commits.submit_blocking(_entry(payload, rows, batch_id, received_at)).result()

    def close(self) -> None:
        """Write what is waiting, then release files."""
        self._commits.close()
        self._appender.close()


class IngestLogs:
    """The appending side of all endpoints in one process.

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
