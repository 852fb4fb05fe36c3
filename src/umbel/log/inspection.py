"""Inspection of the files of an ingest log: lost rows and their times of receipt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from umbel.log.appender import MARK
from umbel.log.records import Gap, LogRecord
from umbel.log.segments import (
    ANY_LOG,
    FOREIGN,
    OLDEST,
    ORIGIN,
    PREAMBLE_BYTES,
    LogPosition,
    Segment,
    is_same_log,
    is_torn,
    preamble,
    read_oldest,
    segments_in,
    write_oldest,
)
from umbel.log.tail import Tail
from umbel.state import disk


@dataclass(frozen=True, slots=True)
class LogDamage:
    """A range of a log that cannot be read.

    Args:
        text: where it is.
        lost: the rows in it, and when they were received.
        begin: segment and offset where it begins.
    """

    text: str
    lost: str
    begin: tuple[int, int]


@dataclass(slots=True)
class LogInspection:
    """The damage of an ingest log.

    Args:
        damage: ranges that cannot be read.
        torn: bytes of a request at its end that was never answered.
        short: the log's end is before what was read; empty if it is not.
        lost_end: the rows that are missing at the end.
        indexes: sparse indexes that do not fit.
        heads: segments whose first bytes are damaged, with the number of rows before them; the rows are there.
        is_start_damaged: whether the record of the first position is damaged; the first segment tells it, too.
        log: the identity of the log, 0 if it is not known.
    """

    damage: list[LogDamage] = field(default_factory=list)
    torn: int = 0
    short: str = ""
    lost_end: str = ""
    indexes: list[Path] = field(default_factory=list)
    heads: list[tuple[Segment, int]] = field(default_factory=list)
    is_start_damaged: bool = False
    log: int = 0

    @property
    def is_short(self) -> bool:
        """True if rows were read that the log does not have any more."""
        return bool(self.short)


def inspect(directory: Path, *, deep: bool, read: LogPosition | None = None) -> LogInspection:
    """Look at the files of a log; it may be written meanwhile.

    Args:
        directory: of the log.
        deep: True to verify every record.
        read: the position up to which it was read, None for unknown.
    """
    oldest = read_oldest(directory)
    found, at = LogInspection(is_start_damaged=oldest is None and (directory / OLDEST).exists()), oldest or ORIGIN
    number, row, received = at.segment, at.row, 0
    if found.is_start_damaged and (begin := next(iter(segments_in(directory)), None)) is not None:
        number, row = begin.number, begin.first_row() or 0
    segments = [each for each in segments_in(directory) if each.number >= number]
    end, is_counted = LogPosition(number, PREAMBLE_BYTES, row), True
    _look_at_identities(found, segments, read)
    for segment in segments:
        found.damage += _missing_before(segment, number, end, received, is_counted=is_counted)
        first, known = segment.first_row(), len(found.damage)
        row = first if first is not None else row
        if segment.preamble_row() is None:
            found.heads.append((segment, row))
        row, received, offset = _of_segment(found, segment, row, received, is_last=segment is segments[-1], deep=deep)
        number, end = segment.number + 1, LogPosition(segment.number, offset, row)
        is_counted = deep and len(found.damage) == known
        if not _fits(segment):
            found.indexes.append(segment.index)
    if read is not None and (end.segment, end.offset) < (read.segment, read.offset):
        found.short = f"it was read up to row {read.row}, and ends at row {end.row}"
        found.lost_end = f"{max(0, read.row - end.row):,} rows that have been processed; no others are known to be lost"
    return found


def _missing_before(
    segment: Segment, number: int, end: LogPosition, received: int, *, is_counted: bool
) -> Iterator[LogDamage]:
    """Yield what is missing before a segment.

    Args:
        segment: the segment.
        number: of the one that must follow those before it.
        end: of those before it.
        received: when their last rows were received.
        is_counted: True if the row of their end is known.
    """
    first = segment.first_row()
    gone = "" if first is None else f"{'' if is_counted else 'at most '}{first - end.row:,} rows "
    lost = f"{gone}received after {_spelled(received)}"
    if segment.number > number:
        name = Segment(segment.path.parent, number).path.name
        yield LogDamage(f"{name} is missing", lost, (number, PREAMBLE_BYTES))
    elif is_counted and first is not None and first > end.row:
        name = Segment(segment.path.parent, end.segment).path.name
        text = f"{name} is cut: it ends with row {end.row}, and the next begins with {first}"
        yield LogDamage(text, lost, (end.segment, end.offset))


def _look_at_identities(found: LogInspection, segments: Sequence[Segment], read: LogPosition | None) -> None:
    """Look for segments of other logs."""
    logs = [(segment, segment.log()) for segment in segments]
    found.log = (read.log if read else 0) or next((log for _, log in logs if log not in (None, 0, ANY_LOG)), 0) or 0
    for segment, log in logs:
        if not is_same_log(found.log, log):
            begin = (segment.number, PREAMBLE_BYTES)
            found.damage.append(LogDamage(f"{segment.path.name} {FOREIGN}", "its rows, of an unknown number", begin))


def _of_segment(
    found: LogInspection, segment: Segment, row: int, received: int, *, is_last: bool, deep: bool
) -> tuple[int, int, int]:
    """Inspect a segment; return the next row, the last receipt and the end."""
    size = segment.path.stat().st_size
    if not deep and not is_last:
        return row, received, size
    offset, gap, row_of_gap = PREAMBLE_BYTES, None, row
    for each in segment.walk(PREAMBLE_BYTES, size, row):
        if isinstance(each, LogRecord):
            if gap is not None:
                found.damage.append(_damage(segment, gap, each.row - row_of_gap, received, each.entry.received_at))
            row, received, gap, offset = each.row + each.entry.rows, each.entry.received_at, None, each.end
        else:
            gap, row_of_gap = each if gap is None else Gap(gap.offset, each.end - gap.offset), row
    if gap is not None:
        if is_last and is_torn(segment, gap):
            found.torn = gap.size
        else:
            found.damage.append(_damage(segment, gap, gap.rows, received, None))
            offset = gap.end
    return row, received, offset


def _damage(segment: Segment, gap: Gap, rows: int | None, after: int, before: int | None) -> LogDamage:
    lost = "an unknown number of rows" if rows is None else f"{rows:,} rows"
    until = f" and before {_spelled(before)}" if before is not None else ""
    text = f"{segment.path.name}: {gap.size:,} bytes from byte {gap.offset} on are not as they were written"
    return LogDamage(text, f"{lost} received after {_spelled(after)}{until}", (segment.number, gap.offset))


def _spelled(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC" if at else "the beginning"


def _fits(segment: Segment) -> bool:
    if not segment.index.exists():
        return True
    data = segment.index.read_bytes()
    marks = MARK.iter_unpack(data[: len(data) // MARK.size * MARK.size])
    return all(segment.row_at(offset) in (row, None) for offset, row, _ in marks)


def mend_heads(found: LogInspection) -> str:
    """Write the first bytes of segments again whose rows are there."""
    for segment, row in found.heads:
        file = segment.open()
        try:
            disk.write(file, preamble(segment.number, row, found.log or ANY_LOG), 0)
            disk.sync(file)
        finally:
            disk.close(file)
    return "written again"


def mend_start(directory: Path) -> str:
    """Record the first position of a log again, as its first segment tells it."""
    first = next(iter(segments_in(directory)), None)
    at = ORIGIN if first is None else LogPosition(first.number, PREAMBLE_BYTES, first.first_row() or 0)
    write_oldest(directory, at)
    return f"written again: it begins with row {at.row}"


def mend(directory: Path, read: LogPosition | None) -> str:
    """Cut off an unanswered request; continue a log that ends too early.

    Args:
        directory: of the log.
        read: the position up to which it was read, None for unknown.
    """
    tail = Tail(directory)
    try:
        with tail.locked():
            end = tail.end()
            if read is not None and (end.segment, end.offset) < (read.segment, read.offset):
                begun = Segment(directory, read.segment + 1)
                disk.close(begun.create(max(read.row, end.row), read.log))
                end = LogPosition(begun.number, PREAMBLE_BYTES, max(read.row, end.row))
                tail.move(end)
    finally:
        tail.close()
    return f"it goes on with row {end.row} in {Segment(directory, end.segment).path.name}"
