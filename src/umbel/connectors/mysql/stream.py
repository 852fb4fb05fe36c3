"""The stream of a server's binary log: the request for it, and its events.

Format: "Replication protocol" of MySQL's source documentation and of MariaDB's manual.
"""

from __future__ import annotations

import secrets
import ssl
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from umbel.connectors.mysql.positions import MariaDBHistory, MySQLHistory
from umbel.connectors.mysql.server import rows
from umbel.connectors.sql.readiness import wait_readable
from umbel.errors import Transient

HEARTBEAT = 5
"""Seconds after which an idle server gives a sign of life."""
SILENCE = 60.0
"""Seconds without one after which the stream counts as lost."""
FORMAT, PAYLOAD, MARIADB_GTID, MARIADB_GTID_LIST = 15, 40, 162, 163
_DUMP, _DUMP_GTID = 0x12, 0x1E
_HEADER = struct.Struct("<IBIIIH")
_LARGEST = 0xFFFFFF
_TO_THE_END = 1
"""The flag of a stream that ends with its file."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the binary log.

    Args:
        kind: its type.
        timestamp: its second since the epoch.
        server_id: of the server it was made on.
        data: its contents after the header.
        end: the offset behind it in its file, 0 if it is in none.
    """

    kind: int
    timestamp: int
    server_id: int
    data: bytes
    end: int = 0


class StreamError(Exception):
    """The server ended the stream.

    Args:
        code: of the error.
        message: of the server.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


class BinlogStream:
    """The events of a server after a position.

    Args:
        connection: to the server, of its own.
        start: the transactions that are not sent again; or the name of a file of MariaDB's log, which is sent to its end.
        replica: the number that tells this reader from others.
    """

    def __init__(self, connection: Any, start: MariaDBHistory | MySQLHistory | str, replica: int) -> None:
        self._begin(connection, start, replica)
        self._socket = connection._sock
        self._socket.settimeout(None)
        self._data = bytearray()
        self._at = 0
        self._alive_at = time.monotonic()

    def _begin(self, connection: Any, start: MariaDBHistory | MySQLHistory | str, replica: int) -> None:
        """Ask for the stream."""
        before = time.time()  # not after it: commits must not seem earlier than the instants of their rows
        now, checksum = rows(connection, "SELECT UNIX_TIMESTAMP(NOW(6)), @@global.binlog_checksum")[0]
        self._ahead, self._has_checksums = float(now) - before, checksum != "NONE"
        period = HEARTBEAT * 1_000_000_000
        rows(
            connection,
            "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum",
        )
        rows(connection, f"SET @master_heartbeat_period = {period}, @source_heartbeat_period = {period}")
        if isinstance(start, MySQLHistory):
            known = start.encoded
            request = struct.pack("<HIIQI", 4, replica, 0, 4, len(known)) + known
            connection._execute_command(_DUMP_GTID, request)
            return
        rows(
            connection,
            "SET @mariadb_slave_capability = 4, @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0",
        )
        if isinstance(start, str):
            connection._execute_command(_DUMP, struct.pack("<IHI", 4, _TO_THE_END, replica) + start.encode())
        else:
            rows(connection, "SET @slave_connect_state = %s", start.text)
            connection._execute_command(_DUMP, struct.pack("<IHI", 4, 0, replica))

    @property
    def server_time(self) -> float:
        """The time by the server's clock.

        It may be later by as much as the server took to send it.
        """
        return time.time() + self._ahead

    @property
    def has_more(self) -> bool:
        """True if more has arrived than was returned."""
        return bool(wait_readable([self._socket], 0.0))

    def next(self, patience: float) -> Iterator[Event]:
        """Yield the next events, none if there are none for some seconds.

        Raises:
            StreamError: the server ended the stream.
            Transient: the connection was lost.
        """
        if not self._fill(patience):
            return
        while (packet := self._packet()) is not None:
            if packet[0] == 0xFF:
                (code,) = struct.unpack_from("<H", packet, 1)
                raise StreamError(code, packet[3:].decode(errors="replace").removeprefix("#HY000"))
            if packet[0] == 0xFE:
                raise StreamError(0, "the server has ended the stream")
            yield from self._events(packet)

    def _events(self, packet: bytes) -> Iterator[Event]:
        timestamp, kind, server_id, size, at, _ = _HEADER.unpack_from(packet, 1)
        end = size + 1
        if len(packet) < end:
            raise Transient("the stream is damaged: an event is shorter than its header says")
        if kind == FORMAT:
            self._has_checksums = packet[end - 5] == 1  # the method, before the checksum that this event always has
        if self._has_checksums:
            if zlib.crc32(packet[1 : end - 4]) != int.from_bytes(packet[end - 4 : end], "little"):
                raise Transient("the stream is damaged: the checksum of an event does not match")
            end -= 4
        event = Event(kind, timestamp, server_id, packet[20:end], at)
        if kind == PAYLOAD:
            yield from _unpacked(event)
        else:
            yield event

    def _packet(self) -> bytes | None:
        """Return the next complete packet, None if there is none.

        The largest packets are continued in the ones after them.
        """
        at, parts = self._at, list[bytes]()
        while True:
            if len(self._data) - at < 4:
                return None
            size = int.from_bytes(self._data[at : at + 3], "little")
            if len(self._data) - at < 4 + size:
                return None
            parts.append(bytes(memoryview(self._data)[at + 4 : at + 4 + size]))
            at += 4 + size
            if size < _LARGEST:
                break
        self._at = at
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fill(self, patience: float) -> bool:
        """Receive what has arrived; return whether something has."""
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        if not pending and not wait_readable([self._socket], patience):
            if time.monotonic() - self._alive_at > SILENCE:
                raise Transient("the server has been silent for a minute")
            return False
        found = self._socket.recv(1 << 20)
        if not found:
            raise Transient("the server closed the connection")
        self._alive_at = time.monotonic()
        del self._data[: self._at]
        self._at = 0
        self._data += found
        return True


def new_replica() -> int:
    """Return a number that tells a reader of a log from others, at random."""
    return 1 + secrets.randbelow((1 << 32) - 2)


def transactions_before(connection: Any, file: str, offset: int) -> str:
    """Return the transactions before an offset of a file of MariaDB's log.

    Args:
        connection: to the server, of its own.
        file: the name of the file.
        offset: behind a transaction.

    Raises:
        StreamError: the server lacks the file, or it ends before the offset.
        Transient: the connection was lost.
    """
    stream, found = BinlogStream(connection, file, new_replica()), MariaDBHistory("")
    while True:
        for event in stream.next(1.0):
            if event.kind == MARIADB_GTID_LIST:
                found = MariaDBHistory.listed(event.data)
            elif event.kind == MARIADB_GTID:
                found.add(event.data, event.server_id)
            if event.end >= offset:
                return found.text


def _unpacked(event: Event) -> Iterator[Event]:
    """Yield the events of a transaction that MySQL has compressed."""
    import pyarrow as pa

    fields, at, data = dict[int, int](), 0, event.data
    while (kind := lenenc(data, at))[0] != 0:
        size, at = lenenc(data, kind[1])
        fields[kind[0]], at = lenenc(data, at)[0], at + size
    body = data[kind[1] :]
    if fields.get(2, 255) != 255:
        body = pa.decompress(body, fields[3], codec="zstd", asbytes=True)
    at = 0
    while at < len(body):
        timestamp, inner, server_id, size, _, _ = _HEADER.unpack_from(body, at)
        yield Event(inner, timestamp, server_id, body[at + _HEADER.size : at + size])
        at += size


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """Return a length-encoded integer, and the position after it."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size
