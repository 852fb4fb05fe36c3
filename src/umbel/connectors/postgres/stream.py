"""The stream of a replication slot: its messages, and the positions that are confirmed."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from umbel.connectors.lag import SourceLag
from umbel.connectors.postgres.pgoutput import EPOCH_2000, Decoder
from umbel.connectors.sql.readiness import wait_readable, wait_writable

if TYPE_CHECKING:
    import psycopg

CONFIRM = 5.0
"""Seconds between two reports of the position."""
_DATA = ord("w")


def lsn_number(lsn: str) -> int:
    """Return a position of the log from its text, `16/B374D848`."""
    high, _, low = lsn.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    """Return the text of a position of the log."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


class Stream:
    """The stream of a replication slot.

    Args:
        connection: in replication mode.
        slot: the name of the slot.
        publication: the name of the publication.
        start: the position from which on transactions are sent.
        end: the end of the server's log when the stream was begun.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], slot: str, publication: str, start: int, end: int = 0
    ) -> None:
        self._connection = connection.pgconn
        self._confirmed, self._confirmed_at = start, time.monotonic()
        self._received, self._reply = start, False
        self._end, self._sent_at = end, 0
        self.idle_at = 0
        """The position up to which the server has sent all changes, as of its last sign of life."""
        command = (
            f"START_REPLICATION SLOT {slot} LOGICAL {lsn_text(start)} "
            f"(proto_version '1', publication_names '{publication}')"
        )
        self._connection.send_query(command.encode())
        self._expect(8)  # COPY_BOTH

    def next(self, patience: float) -> bytes | None:
        """Return the next message, None if there is none for some seconds."""
        while True:
            size, data = self._connection.get_copy_data(1)
            if size == 0:
                if not wait_readable([self._connection.socket], patience):
                    return None
                self._connection.consume_input()
                size, data = self._connection.get_copy_data(1)
                if size == 0:
                    continue
            if size < 0:
                self._expect(0)
            found = bytes(data)
            if found[0] == _DATA:
                self._sent_at = int.from_bytes(found[17:25], "big", signed=True) + EPOCH_2000
                return found[25:]
            self.idle_at, self._reply = int.from_bytes(found[1:9], "big"), bool(found[17])
            return None

    def lag(self, decoder: Decoder, *, is_idle: bool) -> SourceLag:
        """Return the bytes of the log ahead and the last commit's age.

        The end of the log is that at the beginning of the stream.
        """
        seconds = 0.0 if is_idle or not decoder.committed_at else (self._sent_at - decoder.committed_at) / 1e6
        read = max(decoder.lsn, self.idle_at, self._received)
        return SourceLag(bytes=max(0, self._end - read), seconds=max(0.0, seconds))

    @property
    def is_due(self) -> bool:
        """True if the server is to be told the position now."""
        return self._reply or time.monotonic() - self._confirmed_at > CONFIRM

    def confirm(self, lsn: int, *, at_once: bool = False) -> None:
        """Tell the server that the changes before a position are on disk here."""
        now = time.monotonic()
        if not (at_once or self.is_due):
            return
        self._confirmed, self._confirmed_at, self._reply = max(self._confirmed, lsn), now, False
        clock = time.time_ns() // 1000 - EPOCH_2000
        report = struct.pack(">cQQQqB", b"r", self._confirmed, self._confirmed, self._confirmed, clock, 0)
        self._connection.put_copy_data(report)
        while self._connection.flush():
            wait_writable([self._connection.socket], 1.0)

    def _expect(self, status: int) -> None:
        """Read the result of a command, which must have a status."""
        import psycopg

        self._connection.flush()
        result = self._connection.get_result()
        if result is None or result.status != status:
            text = "the stream has ended" if result is None else result.error_message.decode(errors="replace")
            raise psycopg.OperationalError(text or "the stream has ended")
