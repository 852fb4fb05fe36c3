"""Conversion of a shard's journal between the forms of folders and of buckets.

A folder appends records to files, a bucket has an object for each. Runs are the same in both. Positions are translated, and with
them the manifest that has them; records are told their new place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from umbel.errors import Damaged
from umbel.state.runs.journal import HEADER_BYTES, JournalHeader, journal_name
from umbel.state.runs.manifest import JournalPosition, Manifest, name_of
from umbel.state.runs.records import RECORD_BYTES, moved, payload_at, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Records = list[tuple[JournalPosition, bytes]]
"""Records, each with its end."""


def as_objects(manifest: Manifest, journals: Mapping[int, bytes], shard: str) -> dict[str, bytes]:
    """Return manifest and journal of a shard for a bucket, by name.

    Args:
        manifest: of the shard in a folder.
        journals: its journal files by number, each up to the end of its committed records.
        shard: its name.

    Raises:
        Damaged: a record is missing or damaged.
    """
    live: Records = []
    for each in sorted(manifest.live, key=lambda it: (it.number, it.start)):
        live += _records(journals, each.number, each.start, each.end, shard)
    later = list(_since(manifest, journals, shard))
    first = len(live) + 1
    numbered = list(enumerate([*live, *later], 1))

    def translated(at: JournalPosition) -> JournalPosition:
        """Return the end of the last record up to a position."""
        found = [(number, data) for number, (end, data) in numbered if end <= at]
        number, data = found[-1] if found else (0, b"")
        return JournalPosition(number, HEADER_BYTES + len(data))

    made = replace(
        manifest,
        version=max(1, manifest.version),
        position=JournalPosition(first),
        live=tuple(
            replace(each, number=number, start=HEADER_BYTES, end=HEADER_BYTES + each.end - each.start)
            for number, each in enumerate(sorted(manifest.live, key=lambda it: (it.number, it.start)), 1)
        ),
        dropped={state_id: translated(at) for state_id, at in manifest.dropped.items()},
    )
    return {name_of(made.version): made.pack()} | {
        journal_name(number): moved(data, place_of(shard, number, HEADER_BYTES)) for number, (_, data) in numbered
    }


def _since(manifest: Manifest, journals: Mapping[int, bytes], shard: str) -> Iterator[tuple[JournalPosition, bytes]]:
    """Yield the records after a manifest's position."""
    number, start = manifest.position.number, manifest.position.offset
    if manifest.version and number not in journals:
        raise Damaged(f"{journal_name(number)} is missing")
    while number in journals:
        yield from _records(journals, number, start, len(journals[number]), shard)
        number, start = number + 1, HEADER_BYTES


def _records(journals: Mapping[int, bytes], number: int, start: int, end: int, shard: str) -> Records:
    data, found, at = journals.get(number, b""), Records(), start
    while at < end:
        payload = payload_at(data, at, place_of(shard, number, at))
        if payload is None:
            raise Damaged(f"{journal_name(number)} lacks a record at byte {at}")
        after = at + RECORD_BYTES + len(payload)
        found.append((JournalPosition(number, after), data[at:after]))
        at = after
    return found


def as_files(manifest: Manifest, journals: Mapping[int, bytes], shard: str) -> dict[str, bytes]:
    """Return manifest and journal of a shard for a folder, by name.

    Each record gets a file of its own, of the same number.

    Args:
        manifest: of the shard in a bucket.
        journals: its records by number.
        shard: its name.

    Raises:
        Damaged: a record is missing or damaged.
    """
    first = manifest.position.next_object
    last = max([first, *(number for number in journals if number >= first)])
    for number in (*sorted(manifest.journals), *range(first, last)):
        if number not in journals:
            raise Damaged(f"{journal_name(number)} is missing")
        _must_be_sound(journals, number, shard)
    made = replace(manifest, position=JournalPosition(first))
    found = {name_of(made.version): made.pack()}
    for number in sorted({*manifest.journals, *range(first, last + 1)}):
        data = journals.get(number, b"")
        found[journal_name(number)] = JournalHeader(HEADER_BYTES + len(data), is_full=number < last).pack() + data
    return found


def _must_be_sound(journals: Mapping[int, bytes], number: int, shard: str) -> None:
    if payload_at(journals[number], 0, place_of(shard, number, HEADER_BYTES)) is None:
        raise Damaged(f"{journal_name(number)} is damaged, or from elsewhere")
