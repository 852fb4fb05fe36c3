"""Delivery of datasets' changes to sinks, beside the batches, from the change logs.

A sink gets the changes of finished batches in their order: for a keyed dataset those of the current row of each key, for others
each row. Several small batches are one transaction of the sink, a large one is several. The position of a sink is kept by its
destination (`umbel.connectors.sinks`); the catalog has a copy, for destinations that forget positions after a while.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import polars as pl

from umbel.api.secrets import provide_secrets
from umbel.connectors.sinks import NoneAccepted, RowChange, RowsRefused, SinkPosition, SinkWriter
from umbel.definitions.arguments import WAIT
from umbel.errors import UmbelError, text_of
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.erasures import erased_everywhere
from umbel.runtime.progress import EPOCH, MICROSECOND
from umbel.runtime.refusals import Refusals, RefusingSink
from umbel.runtime.reporting import report_event
from umbel.runtime.row_changes import by_identity, in_order, remaining, row_changes
from umbel.runtime.sink_calls import FOLDER, SinkCalls
from umbel.runtime.sink_ids import Sink, passed, passed_batch, sinks
from umbel.runtime.sink_lags import DeliveryProgress, SinkLag, record_sinks
from umbel.runtime.sink_parts import BACKFILL, SinkRange, sink_parts

AT_ONCE = 20_000
"""Row changes in one transaction."""
READ_AT_ONCE = 500_000
"""Changes read at once, if they are of several batches."""
PASSED = 60.0
"""Seconds between two notes of batches without anything to send."""
INTERVAL, MINDED = 0.1, 1.0
"""Seconds between two looks for new batches, and for new sinks."""
LONGEST_WAIT = 10.0
"""Seconds between two attempts to reach a destination."""
_HISTORY = (
    "for all of it, write to another name, or give the dataset another version: these are sent from the beginning"
)

log = logging.getLogger("umbel.work")


class SinkDelivery:
    """The delivery to one sink.

    Args:
        deployment: the deployment.
        sink: the sink.
    """

    def __init__(self, deployment: Deployment, sink: Sink) -> None:
        self._deployment, self._sink = deployment, sink
        self._calls = SinkCalls(deployment.directory / FOLDER / sink.id, sink.definition.connector)
        self._writer: SinkWriter | None = None
        self._refusals: Refusals | None = None
        self._position = SinkPosition()
        self._revision: int | None = None
        self._passed_at = -PASSED

    def step(self) -> int:
        """Deliver the changes of the batches finished so far; return their number.

        Raises:
            Transient: the destination does not answer. The next step begins with another writer.
        """
        last, count = self._deployment.catalog.progress(JOB, sys.maxsize), 0
        try:
            writer, refusals = self._open(), self._refusals
            assert refusals is not None
            if last is None or last.number <= self._position.batch or not self._is_current(last.revision):
                return 0
            for changes, position in self._transactions(self._range(writer, last.number), last.revision):
                if position <= refusals.pending_until:
                    continue
                if changes and self._delivered(writer, refusals, changes, position):
                    self._deployment.catalog.note(self._note, [position.batch, position.rows])
                    refusals.bury()
                    count += len(changes)
                if not refusals.is_holding:
                    self._position = position
            if refusals.is_holding:  # nothing of the range was delivered: the next one may be longer
                self._deployment.catalog.note(self._begun, None)
                refusals.wait()
            self._note_passed()
        except BaseException:
            self.close()
            raise
        return count

    def _delivered(
        self, writer: SinkWriter, refusals: Refusals, changes: Sequence[RowChange], position: SinkPosition
    ) -> bool:
        """Write a transaction; return False if no row of it is accepted."""
        try:
            refusals.prepare(position)
            with self._calls.calling("writing"):
                try:
                    writer.write(changes, position)
                except RowsRefused:
                    if self._sink.definition.refused == WAIT or not getattr(writer, "isolates", False):
                        raise
                    writer.write_accepted(changes, position, refusals.of(position))
        except NoneAccepted as error:
            refusals.hold(error, position)
            return False
        return True

    def close(self) -> None:
        """Release the writer.

        An error of that is no reason for a delivery that failed before.
        """
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        except Exception as error:  # noqa: BLE001  of another package's code
            target = self._sink.definition.connector.target
            log.warning("sink of '%s': %s: closing it failed: %s", self._sink.dataset, target, _trouble(error))

    def _is_current(self, revision: int) -> bool:
        """Return whether the sink is in a revision with the same options."""
        if revision != self._revision:
            found = sinks(self._deployment, revision).get(self._sink.id)
            if found is None or found.definition != self._sink.definition:
                return False
            self._revision = revision
        return True

    @property
    def _note(self) -> str:
        return f"sink:{self._sink.id}"

    @property
    def _begun(self) -> str:
        return f"sinking:{self._sink.id}"

    def _open(self) -> SinkWriter:
        if self._writer is None:
            connector, catalog = self._sink.definition.connector, self._deployment.catalog
            with self._calls.calling("opening"):
                writer = self._writer = connector.writer_of(self._sink.options)
                reached = self._reached(writer)
            sink = RefusingSink(
                id=self._sink.id,
                dataset=self._sink.dataset,
                target=connector.target,
                keeps_position=writer.keeps_position,
            )
            self._refusals = Refusals(catalog, sink, reached)
            self._recognise(getattr(writer, "made", ""), reached)
            self._position = self._refusals.reached
        return self._writer

    def _reached(self, writer: SinkWriter) -> SinkPosition:
        """Return the position to begin at.

        That is the destination's if it is less than what was noted: it has lost what came after, with the position, as a standby
        does that takes over without the last transactions, or a backup. One that has none at all may just have forgotten it.
        """
        catalog, noted = self._deployment.catalog, self._deployment.catalog.noted(self._note)
        found, known = writer.position(), SinkPosition(*noted) if noted else SinkPosition()
        if not (writer.keeps_position and SinkPosition() < found < known):
            return max(found, known, SinkPosition(passed_batch(catalog, self._sink.id)))
        self._warn(f"has lost what it was sent after batch {found.batch}; it is sent again")
        catalog.note(passed(self._sink.id), None)
        catalog.note(self._note, [found.batch, found.rows])
        return found

    def _note_passed(self) -> None:
        """Note the position from time to time: the last batches may have had nothing.

        Retention may drop these then, and the next worker does not read them again.
        """
        if self._position.rows == 0 and time.monotonic() > self._passed_at + PASSED:
            self._deployment.catalog.note(passed(self._sink.id), self._position.batch)
            self._passed_at = time.monotonic()

    def _warn(self, text: str) -> None:
        subject = f"sink of '{self._sink.dataset}': {self._sink.definition.connector.target}"
        report_event(self._deployment.catalog, f"{subject} {text}")

    def _recognise(self, made: str, reached: SinkPosition) -> None:
        """Record an event if the destination is another one than before."""
        catalog, name = self._deployment.catalog, f"sink-made:{self._sink.id}"
        known = catalog.noted(name)
        if made and made != known:
            if known and reached > SinkPosition():
                self._warn(f"is another one than before, renamed or made anew; {_HISTORY}")
            catalog.note(name, made)

    def _range(self, writer: SinkWriter, last: int) -> SinkRange:
        """Return the batches to write next.

        Where the destination does not keep the position, those that were begun come first, in the same transactions.
        """
        if writer.keeps_position:
            return SinkRange(self._until(last), is_grouped=True)
        noted = self._deployment.catalog.noted(self._begun)
        if noted and noted[0] > self._position.batch:
            return SinkRange(*noted)
        chosen = self._until(last)
        is_split = sum(self._sizes(chosen).values()) > AT_ONCE or self._position.rows > 0
        self._deployment.catalog.note(self._begun, [chosen, is_split, True])
        return SinkRange(chosen, is_split, is_grouped=True)

    def _until(self, last: int) -> int:
        """Return the last batch to read at once, `last` or one before."""
        if last - self._position.batch <= 1:
            return last
        sizes, total = self._sizes(last), 0
        for number in sorted(sizes):
            total += sizes[number]
            if total >= READ_AT_ONCE:
                return number
        return last

    @property
    def _after(self) -> int | None:
        """The last batch that the destination has, None if it lacks a backfill."""
        return self._position.batch if self._position.batch >= BACKFILL else None

    def _sizes(self, until: int) -> Mapping[int, int]:
        """Return the number of changes of each batch that the destination lacks."""
        found = Counter[int]()
        for number, count in self._deployment.changes.sizes(self._sink.node, until=until, after=self._after).items():
            found[max(number, BACKFILL)] += count
        return found

    def _transactions(self, batches: SinkRange, revision: int) -> Iterator[tuple[Sequence[RowChange], SinkPosition]]:
        """Yield the changes up to a batch in transactions, each with the position behind it.

        A position counts changes, erased ones too: keys may be erased between two transactions of a batch.
        """
        schema, skipped, last = self._sink.node.operator.schema, self._position.rows, batches.last
        portions = self._portions(last)
        erased, name = erased_everywhere(self._deployment, revision), self._sink.dataset
        is_split = bool(skipped) or len(portions) > 1 if batches.is_split is None else batches.is_split
        first = None if is_split else pl.concat(self._frames(portions))
        if first is not None and (batches.is_split is False or first.height <= AT_ONCE):
            left = erased.without(name, first)
            rows = self._chosen(row_changes(left, schema))
            position = SinkPosition(last, without=first.height - left.height)
            yield rows if batches.is_split is None else in_order(rows), position
            return
        frames = self._frames(portions) if first is None else [first]
        alone, done = self._position.batch + 1 if skipped else None, 0
        for part in sink_parts(frames, alone, AT_ONCE if batches.is_grouped else 0):
            rows, left = in_order(row_changes(part.changes, schema)), erased.without(name, part.changes)
            gone = part.changes.height - left.height
            sent = by_identity(row_changes(left, schema)) if gone else None
            at_once = AT_ONCE if part.is_one else max(AT_ONCE, len(rows))  # a position is within one batch
            for begin in range(max(0, skipped - done), len(rows), at_once):
                end = min(begin + at_once, len(rows))
                chosen = rows[begin:end] if sent is None else remaining(rows[begin:end], sent)
                reached = (part.batch, 0) if part.is_last and end == len(rows) else (part.batch - 1, done + end)
                yield self._chosen(chosen), SinkPosition(*reached, without=gone)
            skipped, done = (0, 0) if part.is_last else (skipped, done + len(rows))
        yield (), SinkPosition(last)

    def _portions(self, last: int) -> Sequence[tuple[int | None, int]]:
        """Return ranges of batches that are read at once.

        Each is of the batches after a number up to another. The steps of a backfill have numbers of their own.
        """
        after, total, found = self._after, 0, list[tuple[int | None, int]]()
        if after is not None and last - after <= 1:
            return [(after, last)]
        sizes = self._deployment.changes.sizes(self._sink.node, until=last, after=after)
        for number, count in sorted(sizes.items()):
            if total and total + count > READ_AT_ONCE:
                found.append((after, number - 1))
                after, total = number - 1, 0
            total += count
        return [*found, (after, last)]

    def _frames(self, portions: Sequence[tuple[int | None, int]]) -> Iterator[pl.DataFrame]:
        for after, until in portions:
            yield self._deployment.changes.batches(self._sink.node, after=after, until=until)

    def _chosen(self, rows: list[RowChange]) -> list[RowChange]:
        """Return the changes between `since` and `until`."""
        since, until = ((at - EPOCH) // MICROSECOND if at else None for at in self._sink.period)
        return [each for each in rows if (since is None or each.at >= since) and (until is None or each.at < until)]


def _trouble(error: BaseException) -> str:
    if isinstance(error, UmbelError):
        return str(error)
    text = text_of(error, always=True)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(frozen=True, slots=True)
class _Running:
    """A delivery that runs: sink, thread, the event that ends it, and progress."""

    sink: Sink
    thread: threading.Thread
    stop: threading.Event
    progress: DeliveryProgress


def _lag(running: _Running) -> SinkLag:
    return running.progress.lag(running.sink.dataset, running.sink.definition.connector.target)


class Deliveries:
    """The deliveries of a deployment, each in a thread, while a block runs.

    Args:
        deployment: the deployment.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment, self._stop = deployment, threading.Event()
        self._running: dict[str, _Running] = {}
        self._thread = threading.Thread(target=self._mind, name="sinks", daemon=True)

    def __enter__(self) -> Self:
        provide_secrets(self._deployment.vault)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LONGEST_WAIT)

    def _mind(self) -> None:
        """Begin and end deliveries as sinks come and go."""
        while not self._stop.wait(MINDED):
            try:
                last = self._deployment.catalog.progress(JOB, sys.maxsize)
                found = sinks(self._deployment, last.revision) if last is not None else {}
            except Exception as error:  # noqa: BLE001  the job goes on
                log.warning("sinks: %s", error)
                continue
            self._match(found)
            record_sinks(self._deployment.directory, [*map(_lag, self._running.values())])
        for each in self._running.values():
            each.stop.set()
            each.thread.join(LONGEST_WAIT)

    def _match(self, found: Mapping[str, Sink]) -> None:
        """Begin deliveries to new sinks; end those to removed and changed ones.

        A sink has one delivery at a time: that with other options begins when the one before has ended.
        """
        for key, each in list(self._running.items()):
            if key not in found or found[key].definition != each.sink.definition:
                each.stop.set()
            if not each.thread.is_alive():
                del self._running[key]
        for key in found.keys() - self._running.keys():
            stop, progress = threading.Event(), DeliveryProgress((found[key].definition.every or 0) / 1e6)
            thread = threading.Thread(target=self._run, args=(found[key], stop, progress), name="sink", daemon=True)
            self._running[key] = _Running(found[key], thread, stop, progress)
            thread.start()

    def _run(self, sink: Sink, stop: threading.Event, progress: DeliveryProgress) -> None:
        delivery, title = SinkDelivery(self._deployment, sink), f"sink of '{sink.dataset}'"
        wait, failed = INTERVAL, 0.0
        while not stop.wait(wait):
            begun = time.time()
            try:
                delivery.step()
                progress.delivered(begun)
                if failed:
                    report_event(self._deployment.catalog, f"{title}: it answers again", "info")
                wait, failed = max(INTERVAL, progress.every), 0.0
            except BaseException as error:  # noqa: BLE001  also SystemExit of a package's writer: the sink is tried again
                if progress.trouble != (trouble := _trouble(error)):
                    progress.trouble = trouble
                    report_event(self._deployment.catalog, f"{title}: {trouble}")
                wait = failed = min(LONGEST_WAIT, failed * 2 or INTERVAL * 2)
        delivery.close()
