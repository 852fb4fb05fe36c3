"""The streams of a collector process: their logs of events and of dead letters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import orjson

from umbel.collector.bodies import RejectedEvent
from umbel.collector.settings import MOST_STREAMS
from umbel.errors import UnknownName
from umbel.log.collected import LETTERS, SYSTEM, check_name, streams_in
from umbel.log.group_commit import Settle
from umbel.log.ingest import IngestLog
from umbel.log.segments import segments_in

MOST_LETTER_BYTES = 256 << 20
"""Bytes of dead letters of a stream from which on more are dropped and counted."""


class EventStream:
    """A stream of events.

    Args:
        directory: the collector's folder.
        name: of the stream.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self._directory = name, directory
        self.refused = ""
        """Why events are refused now; empty if they are accepted."""
        self.is_full_of_letters = False
        self._events = IngestLog(directory, SYSTEM, name)
        self._letters: IngestLog | None = None

    def append(self, payload: bytes, rows: int, key: str | None, settle: Settle) -> None:
        """Store events; call `settle` once they are on disk.

        Args:
            payload: a JSON list of them.
            rows: their number.
            key: the idempotency key of the request, None without.
            settle: takes the receipt or the error.
        """
        self._events.append_to(settle, payload, rows, batch_id=key)

    def append_letters(self, letters: Sequence[RejectedEvent], client: str, key: str | None, settle: Settle) -> None:
        """Store rejected events; call `settle` once they are on disk.

        Those of a repeated request are stored once. A client may send other events after all were rejected, with the same key.

        Args:
            letters: the events.
            client: the name of the API key.
            key: the idempotency key of the request, None without.
            settle: takes the receipt or the error.
        """
        if self._letters is None:
            self._letters = IngestLog(self._directory, LETTERS, self.name)
        facts = {"received_at": time.time(), "client": client, "idempotency_key": key}
        packed = [each.packed() for each in letters]
        batch_id = None if key is None else f"{key} {blake2b(orjson.dumps(packed)).hexdigest()}"
        payload = orjson.dumps([{**each, **facts} for each in packed])
        self._letters.append_to(settle, payload, len(letters), batch_id=batch_id)

    def measure_letters(self) -> None:
        """Find out whether there is room for more dead letters."""
        folder = self._directory / "ingest" / LETTERS / self.name
        size = sum(each.path.stat().st_size for each in segments_in(folder))
        self.is_full_of_letters = size >= MOST_LETTER_BYTES

    @property
    def is_broken(self) -> bool:
        """True once a sync has failed: only a new process may append."""
        return self._events.is_broken or (self._letters is not None and self._letters.is_broken)

    @property
    def log(self) -> Path:
        """The folder of its log."""
        return self._events.directory

    def close(self) -> None:
        """Write what waits, and release files."""
        self._events.close()
        if self._letters is not None:
            self._letters.close()


class Streams:
    """All streams of a process, opened at their first use.

    Args:
        directory: the collector's folder.
        listed: the accepted names; any, up to a hundred, when empty.
    """

    def __init__(self, directory: Path, listed: Sequence[str]) -> None:
        self._directory, self._listed = directory, frozenset(listed)
        self.opened: dict[str, EventStream] = {}
        for name in {*listed, *(each for each in streams_in(directory) if not listed)}:
            self.opened[name] = EventStream(directory, name)

    def stream(self, name: str) -> EventStream:
        """Return a stream.

        Raises:
            InvalidValue: the name cannot be one of a stream.
            UnknownName: it is not accepted, or there are too many.
        """
        found = self.opened.get(name)
        if found is not None:
            return found
        check_name(name)
        if self._listed:
            raise UnknownName(f"there is no stream '{name}'", hint=f"streams: {', '.join(sorted(self._listed))}")
        if len({*self.opened, *streams_in(self._directory)} - {name}) >= MOST_STREAMS:
            raise UnknownName(f"there is no stream '{name}', and {MOST_STREAMS} others", hint="list them: --stream")
        self.opened[name] = EventStream(self._directory, name)
        return self.opened[name]

    @property
    def broken(self) -> list[str]:
        """The names of streams to which only a new process may append."""
        return [name for name, each in self.opened.items() if each.is_broken]

    def close(self) -> None:
        """Write what waits, and release files."""
        for each in self.opened.values():
            each.close()
        self.opened.clear()
