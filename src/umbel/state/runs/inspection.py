"""Inspection and repair of a shard's files, without a writer.

An inspection changes nothing. What cannot be read is given up by state id: the other ones of the shard go on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from umbel.errors import Damaged
from umbel.state.port import JournalEnd
from umbel.state.runs.files import is_appendable
from umbel.state.runs.journal import FOLDER as JOURNAL
from umbel.state.runs.journal import HEADER_BYTES, JOURNAL_BYTES, Journal, file_numbers, journal_name
from umbel.state.runs.manifest import FOLDER as MANIFESTS
from umbel.state.runs.manifest import JournalPosition, Manifest, publish, read_version, versions
from umbel.state.runs.memtable import state_id_of
from umbel.state.runs.run import RunFile
from umbel.state.runs.shard import RUNS, WRITE_LOCK, lacks, shortened

if TYPE_CHECKING:
    from umbel.state.runs.files import AppendableFiles, ShardFiles
    from umbel.state.runs.records import PlacedRecord


@dataclass(slots=True)
class ShardInspection:
    """The damage of a shard.

    Args:
        manifest: the newest one that can be read.
        damaged: the manifests that cannot be read.
        runs: what is wrong with each run file that it names, by state id.
        journal: what is wrong with the journal; empty if nothing is.
        torn: bytes of a write that a crash cut: nobody has seen it.
        orphans: run files that no manifest names.
        state_ids: all that have state in the shard.
        least: how far the shard was written at least.
    """

    manifest: Manifest = field(default_factory=Manifest)
    damaged: list[str] = field(default_factory=list)
    runs: dict[str, list[str]] = field(default_factory=dict)
    journal: str = ""
    torn: int = 0
    orphans: list[str] = field(default_factory=list)
    state_ids: set[str] = field(default_factory=set)
    least: JournalEnd = field(default_factory=JournalEnd)

    @property
    def lost(self) -> set[str]:
        """The state ids whose state is not whole."""
        return set(self.state_ids) if self.journal else set(self.runs)


def inspect(files: ShardFiles, *, deep: bool, least: JournalEnd | None = None) -> ShardInspection:
    """Look at the files of a shard.

    Args:
        files: of the shard.
        deep: True to read everything, and verify every checksum.
        least: how far the shard was written at least.
    """
    found = ShardInspection(least=least or JournalEnd())
    named = set[str]()
    for name in reversed(versions(files)):
        try:
            manifest = read_version(files, name)
        except (Damaged, OSError, ValueError, KeyError):
            found.damaged.append(name)
            continue
        named |= manifest.names
        if not found.manifest.version:
            found.manifest = manifest
    found.state_ids |= set(found.manifest.stamps) | {state_id_of(table) for table in found.manifest.runs}
    _look_at_runs(files, found, deep=deep)
    _look_at_journal(files, found)
    if found.journal:
        found.state_ids |= _known(files)
    found.orphans = [name for name in files.list(RUNS) if name not in named]
    return found


def _look_at_runs(files: ShardFiles, found: ShardInspection, *, deep: bool) -> None:
    for table, entries in found.manifest.runs.items():
        for part in (part for entry in entries for part in entry.parts):
            error, name = "", f"{RUNS}/{part.name}"
            size = files.size(name)
            if size is None:
                error = f"{name} is missing"
            elif size != part.size:
                error = f"{name} has {size} bytes instead of {part.size}"
            elif deep:
                try:
                    RunFile(_stored(files, name), part.name).check()
                except Damaged as damage:
                    error = damage.message
            if error:
                found.runs.setdefault(state_id_of(table), []).append(f"{error}: {part.rows:,} rows")


def _stored(files: ShardFiles, name: str) -> pa.Buffer:
    """Return a file as it is stored, past any cache."""
    return files.map(name) if files.has_locks else pa.py_buffer(files.read(name))


def _look_at_objects(files: ShardFiles, found: ShardInspection) -> None:
    """Look for damaged and missing objects, and collect the state ids of the others."""
    if not found.manifest.version:  # a shard has one from the beginning: nothing else tells of an empty one
        found.journal = f"{MANIFESTS} has no version that can be read"
        return
    journal, at = files.journal(0), found.manifest.position
    numbers, first = file_numbers(files), at.number + (at.offset > JournalPosition().offset)
    later = [number for number in numbers if number >= first]
    for number in [*(each.number for each in found.manifest.live), *range(first, max(later, default=0) + 1)]:
        try:
            for placed in journal.read(number, 0, 0):
                found.state_ids |= set(placed.record.state_ids)
        except FileNotFoundError:
            found.journal = f"{JOURNAL}/{number:012d}.log is missing"
            return
    sizes = ((number, JournalPosition().offset + (files.size(journal_name(number)) or 0)) for number in later[-1:])
    _must_reach(found, *max([(at.number, at.offset), *sizes]))


def _must_reach(found: ShardInspection, number: int, offset: int) -> None:
    end = JournalEnd(number, offset, found.manifest.version)
    if lacks(found.least, end):
        found.journal = shortened(found.least, end)


def _look_at_journal(files: ShardFiles, found: ShardInspection) -> None:
    """Look for damaged records, and collect the state ids of the others."""
    try:
        if is_appendable(files):
            _look_at_files(files, found)
        else:
            _look_at_objects(files, found)
    except Damaged as damage:
        found.journal = damage.message
    except OSError as error:
        found.journal = f"{JOURNAL} cannot be read: {error}"


def _look_at_files(files: AppendableFiles, found: ShardInspection) -> None:
    """Look for damaged records in files, and collect the state ids of the others."""
    journal, at = Journal(files), found.manifest.position
    numbers = file_numbers(files)
    for live in found.manifest.live:
        if live.number not in numbers or journal.sound(live.number, live.start, live.end) < live.end:
            found.journal = f"{JOURNAL}/{live.number:012d}.log lacks a record at byte {live.start}"
            return
    while True:
        name = f"{JOURNAL}/{at.number:012d}.log"
        header = journal.header(at.number)
        if header is None:
            if at.number in numbers or any(number > at.number for number in numbers) or found.manifest.version:
                found.journal = f"{name} is missing"
            return
        size = files.size(name) or 0
        sound = journal.sound(at.number, at.offset, min(size, header.end))
        for placed in journal.read(at.number, at.offset, sound):
            found.state_ids |= set(placed.record.state_ids)
        if sound < header.end:
            what = "ends" if sound == size else "is not as it was written"
            found.journal = f"{name} {what} at byte {sound}; {header.end - sound:,} bytes behind that are lost"
            return
        if not header.is_full:
            found.torn = max(0, size - header.end)
            _must_reach(found, at.number, journal.sound(at.number, at.offset, size))
            if any(number > at.number for number in numbers):
                found.orphans += [f"{JOURNAL}/{number:012d}.log" for number in numbers if number > at.number]
            return
        at = JournalPosition(at.number + 1)


def _known(files: ShardFiles) -> set[str]:
    """Return the state ids that any readable run or record tells of."""
    found = set[str]()
    for name in files.list(RUNS):
        with suppress(Damaged, OSError):
            found.add(state_id_of(RunFile(_stored(files, f"{RUNS}/{name}"), name).table))
    for number in file_numbers(files):
        with suppress(Damaged, OSError):
            found |= {state_id for placed in _records(files, number) for state_id in placed.record.state_ids}
    return found


def _records(files: ShardFiles, number: int) -> list[PlacedRecord]:
    """Return the readable records of a file of the journal."""
    if not is_appendable(files):
        return files.journal(0).read(number, 0, 0)
    journal, size = Journal(files), files.size(f"{JOURNAL}/{number:012d}.log") or 0
    return journal.read(number, HEADER_BYTES, journal.sound(number, HEADER_BYTES, size))


def repair(files: ShardFiles, found: ShardInspection) -> None:
    """Give up lost state, so that the rest of a shard can be used.

    The deployment must be stopped.

    Args:
        files: of the shard.
        found: what is wrong with it.
    """
    with files.locked(WRITE_LOCK):
        journal, manifest = files.journal(JOURNAL_BYTES), found.manifest
        for name in found.damaged:
            files.delete(f"{MANIFESTS}/{name}")
        if found.journal:
            end = journal.begin(max([*file_numbers(files), manifest.position.number, found.least.number]) + 1)
            version = max(manifest.version, found.least.version)
            manifest = replace(manifest, version=version, position=end, live=(), horizons={})
        else:
            journal.recover(manifest.position)
            _, end = journal.since(manifest.position)
        for state_id in found.lost:
            manifest = manifest.without(state_id, end)
        if found.lost or found.journal:
            publish(files, manifest)
        for name in files.list(RUNS):
            if name in found.orphans:
                files.delete(f"{RUNS}/{name}")
