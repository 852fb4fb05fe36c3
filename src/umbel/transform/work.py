"""The work of a worker process: lines in, output records and dead letters out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from umbel.formats.garbage import uncollected
from umbel.isolation.process import ForkServer
from umbel.transform.batches import BatchTransform, TransformedBatch
from umbel.transform.configuration import loads
from umbel.transform.parts import Done, Letter, Lines, LinesTransform
from umbel.transform.record_lines import RecordLines
from umbel.transform.workers import ALLOCATION, MODULES, TransformWorkers

MOST_CONFIGURATIONS = 64
"""Configurations whose processes one process keeps."""


def batch_transform(text: str, file: str) -> BatchTransform:
    """Return the transformation of a configuration."""
    return BatchTransform(loads(text, file))


def transformed(transform: BatchTransform, lines: Lines) -> Done:
    """Return the result of some lines.

    Raises:
        Terminal: a step with `on_error: fail` failed.
    """
    if lines.error:
        letter = Letter(0, bytes(lines.data), "read", "", "", "Damaged", lines.error)
        return Done(lines.name, b"", [letter], lines=1, records=1)
    with uncollected():  # the objects of a batch live until its end: to look through them is a tenth of the time
        return _transformed(transform, lines)


def _transformed(transform: BatchTransform, lines: Lines) -> Done:
    found = RecordLines(lines.read())
    if lines.is_each:
        transform = transform.without_fail
    if lines.keys:
        transform = BatchTransform(transform.configuration.of_keys(lines.keys)).without_plan
    if lines.is_apart:
        transform = transform.without_plan
    if not found.has_blank_lines:
        result = transform(found)
        done = _done(lines.name, found, result)
        if lines.is_each:
            done.each = result.each
        return done
    return _done(lines.name, found, transform([each for each in found.cut if each.strip()]))


def _done(name: str, lines: RecordLines, result: TransformedBatch) -> Done:
    """Return the result of a batch; `lines` has the blank ones, too."""
    letters = result.letters
    if letters and len(lines) > result.records:
        numbers = [number for number, line in enumerate(lines.cut) if line and not line.isspace()]
        letters = [replace(each, row=numbers[each.row]) for each in letters]
    counts = (len(lines), result.records, result.written, result.dropped, result.nulls, result.one_by_one)
    return Done(name, result.data, letters, *counts)


@lru_cache(maxsize=1)
def _server() -> ForkServer:
    return ForkServer(MODULES, ALLOCATION)


@lru_cache(maxsize=MOST_CONFIGURATIONS)
def runner(text: str, file: str) -> Callable[[Lines], Done]:
    """Return what transforms lines, in a process with limits if a step needs them.

    It is cached: the processes of Spark and of umbel's workers run many batches.
    """
    configuration = loads(text, file)
    workers = TransformWorkers(configuration, 1, server=_server())
    return workers.result if configuration.needs_limits else LinesTransform(text, file)
