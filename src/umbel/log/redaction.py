"""Redaction of an ingest log: rows are overwritten in place; positions and numbers stay.

In a redacted record an erased row is `null`, followed by blanks. What will be written is put into a file beside the segment
first: a redaction that was interrupted is written again, before the log is read, so no record is ever lost to it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from umbel.log.records import LogRecord, pack
from umbel.log.segments import PREAMBLE_BYTES, Segment, segments_in
from umbel.state import disk
from umbel.state.failpoints import reach

_NULL = b"null"
_TICK = 1000
"""Nanoseconds by which a segment gets newer: retention goes by its time, and a backup sees that it has changed."""
_DECODER = json.JSONDecoder()


def redact(directory: Path, rows: Collection[int]) -> int:
    """Overwrite rows of a log; return how many are gone.

    Servers may append to the log meanwhile. Rows of it must not be read.

    Args:
        directory: of the log.
        rows: their numbers in the log.
    """
    finish_redaction(directory)
    numbers, done = frozenset(rows), 0
    for segment in segments_in(directory) if numbers else ():
        pieces = list[tuple[int, bytes]]()
        for record in segment.found(PREAMBLE_BYTES):
            gone = numbers.intersection(range(record.row, record.row + record.entry.rows))
            if gone:
                done += len(gone)
                payload = _blanked(record.entry.payload, record.entry.rows, {each - record.row for each in gone})
                pieces.append(
                    (record.offset, pack(replace(record.entry, payload=payload, is_redacted=True), record.row))
                )
        if pieces:
            _note(segment, pieces)
            reach("redaction noted")
            _finish(segment)
    return done


def is_unfinished(directory: Path) -> bool:
    """Return whether a redaction of a log runs, or was interrupted."""
    return any(_path(each).exists() for each in segments_in(directory))


def finish_redaction(directory: Path) -> None:
    """Write again what an interrupted redaction of a log was writing."""
    for segment in segments_in(directory):
        _finish(segment)


def without_erased(record: LogRecord) -> Iterator[LogRecord]:
    """Yield the rows of a redacted record that are left, as records of consecutive rows."""
    spans = _spans(record.entry.payload)
    if len(spans) != record.entry.rows:
        return  # it could not be parsed before, either
    pieces = [record.entry.payload[begin:end] for begin, end in spans]
    found, first = list[bytes](), 0
    for number, piece in enumerate([*pieces, _NULL]):
        if piece != _NULL:
            first = first if found else number
            found.append(piece)
        elif found:
            entry = replace(record.entry, payload=b"[%b]" % b",".join(found), rows=len(found), is_redacted=False)
            yield replace(record, row=record.row + first, entry=entry)
            found = []


def _blanked(payload: bytes, rows: int, gone: Collection[int]) -> bytes:
    spans = _spans(payload)
    if len(spans) != rows:
        return b" " * len(payload)  # no row of it could be read
    found = bytearray(payload)
    for number in gone:
        begin, end = spans[number]
        text = _NULL if end - begin >= len(_NULL) else b"0"
        found[begin:end] = text.ljust(end - begin)
    return bytes(found)


def _spans(payload: bytes) -> list[tuple[int, int]]:
    """Return the span of each element of a JSON list, none for another text."""
    try:
        text = payload.decode()
        at = _blanks(text, 0)
        if text[at : at + 1] != "[":
            return []
        found, at = list[tuple[int, int]](), _blanks(text, at + 1)
        while text[at : at + 1] not in ("]", ""):
            _, end = _DECODER.raw_decode(text, at)
            found.append((at, end))
            at = _blanks(text, end)
            at = _blanks(text, at + 1) if text[at : at + 1] == "," else at
    except (ValueError, RecursionError):
        return []
    if len(text) == len(payload):
        return found
    return _in_bytes(text, found)


def _in_bytes(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of characters as spans of bytes in UTF-8."""
    found, at, size = list[tuple[int, int]](), 0, 0
    for begin, end in spans:
        low = size + len(text[at:begin].encode())
        size, at = low + len(text[begin:end].encode()), end
        found.append((low, size))
    return found


def _blanks(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r") and at < len(text):
        at += 1
    return at


def _path(segment: Segment) -> Path:
    return segment.path.with_suffix(".redaction")


def _note(segment: Segment, pieces: list[tuple[int, bytes]]) -> None:
    places = json.dumps([[offset, len(data)] for offset, data in pieces]).encode()
    body = b"%b\n%b" % (places, b"".join(data for _, data in pieces))
    disk.replace(_path(segment), b"%08x\n%b" % (zlib.crc32(body), body))


def _finish(segment: Segment) -> None:
    try:
        data = _path(segment).read_bytes()
    except FileNotFoundError:
        return
    check, _, body = data.partition(b"\n")
    if check == b"%08x" % zlib.crc32(
        body
    ):  # else the machine stopped before it was written, and nothing was overwritten
        places, _, content = body.partition(b"\n")
        before, at, file = segment.path.stat(), 0, segment.open()
        try:
            for offset, size in json.loads(places):
                disk.write(file, content[at : at + size], offset)
                at += size
                reach("overwritten")
            disk.sync(file)
        finally:
            disk.close(file)
        if before.st_mtime_ns < segment.path.stat().st_mtime_ns - _TICK:
            os.utime(segment.path, ns=(before.st_atime_ns, before.st_mtime_ns + _TICK))
    disk.remove(_path(segment))
    disk.sync_directory(segment.directory)
