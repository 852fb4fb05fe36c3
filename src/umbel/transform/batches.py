"""Transformation of batches of lines: by the plan, and record by record outside of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

import polars as pl

from umbel.transform.configuration import Configuration
from umbel.transform.leaves import seen_kinds
from umbel.transform.parts import Letter
from umbel.transform.plan import Plan, PlannedDocument, compiled, nested, one_by_one
from umbel.transform.reading import LeafReader, LeafValues
from umbel.transform.record_lines import RecordLines
from umbel.transform.records import FILTER, Outcome, RecordTransform
from umbel.transform.registry import TransformStep
from umbel.transform.values import BadRecord, dump, parse

SAMPLE = 100
"""Records from which the types of a plan are taken."""
MOST_MISFITS = 0.2
"""The share of records outside of a plan above which it is made anew."""

Rows = list[bytes | None]
_ROW, _FIT, _KEEP, _LINE = "row", "fit", "keep", "line"


@dataclass
class TransformedBatch:
    """The result of a batch.

    Args:
        lines: the output of each input line, possibly several lines joined by newlines; None if it has none.
        text: the output as one text instead, if every line has one.
        letters: the dead letters.
        records: how many input records there were.
        written: how many output records there are.
        dropped: how many records `on_error: drop` left out.
        nulls: how many steps failed with `on_error: null`.
        one_by_one: how many records were processed one by one.
    """

    lines: Rows = field(default_factory=list)
    text: bytes | None = None
    letters: list[Letter] = field(default_factory=list)
    records: int = 0
    written: int = 0
    dropped: int = 0
    nulls: int = 0
    one_by_one: int = 0

    @property
    def data(self) -> bytes:
        """The output records, each ended by a newline."""
        if self.text is not None:
            return self.text
        found = [each for each in self.lines if each is not None]
        return b"\n".join([*found, b""]) if found else b""

    @property
    def each(self) -> Rows:
        """The output of each input line."""
        return self.lines if self.text is None else list(self.text.split(b"\n")[:-1])

    def add(self, row: int, outcome: Outcome) -> None:
        """Add the result of a record."""
        self.lines[row] = b"\n".join(outcome.lines) if outcome.lines else None
        self.written += len(outcome.lines)
        self.nulls += outcome.nulls
        self.dropped += outcome.is_dropped
        self.one_by_one += 1
        if outcome.letter is not None:
            self.letters.append(outcome.letter)


class BatchTransform:
    """A configuration, applied to batches.

    Args:
        configuration: the configuration.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.one_by_one = RecordTransform(configuration)
        self._is_planned = not one_by_one(configuration)
        self._plan: _PlanRunner | None = None

    def __call__(self, lines: Sequence[bytes] | RecordLines) -> TransformedBatch:
        """Return the result of some lines, each a record.

        Raises:
            Terminal: a step with `on_error: fail` failed.
        """
        batch = lines if isinstance(lines, RecordLines) else RecordLines.of(lines)
        if not self._is_planned or not batch.data:
            return self.record_by_record(batch.cut)
        runner = self._plan or self._planned(batch.cut)
        result = runner.run(batch) or self.record_by_record(batch.cut)
        if result.one_by_one > MOST_MISFITS * result.records:
            self._plan = None  # other types have come: the next batch makes another plan
        return result

    @cached_property
    def without_fail(self) -> BatchTransform:
        """The same, with dead letters where a step says `on_error: fail`."""
        if all(each.on_error != "fail" for each in self.configuration.applied):
            return self
        return BatchTransform(self.configuration.without_fail)

    @property
    def without_plan(self) -> BatchTransform:
        """The same, record by record."""
        found = copy(self)
        found._is_planned = False
        return found

    def record_by_record(self, lines: Sequence[bytes]) -> TransformedBatch:
        """Return the same as a call, without a plan."""
        result = TransformedBatch([None] * len(lines), records=len(lines))
        for row, line in enumerate(lines):
            result.add(row, self.one_by_one.outcome(line, row))
        return result

    def _planned(self, lines: Sequence[bytes]) -> _PlanRunner:
        records = []
        for line in lines[:: max(1, len(lines) // SAMPLE)]:
            try:
                records.append(parse(line))
            except BadRecord:
                continue
        self._plan = _PlanRunner(compiled(self.configuration, seen_kinds(records)), self.one_by_one)
        return self._plan


class _PlanRunner:
    """A plan, ready to run."""

    def __init__(self, plan: Plan, one_by_one: RecordTransform) -> None:
        self._plan, self._one_by_one = plan, one_by_one
        self._reader = LeafReader(plan.leaves, whole=plan.needs_records)
        self._targets = [each.target for each in plan.configuration.documents if each.target is not None]
        self._make = _maker([each.parts for each in self._targets])
        self._columns = [each.alias(f"value{number}") for number, each in self._natives()]
        if plan.is_native:
            values = nested([(self._targets[number].parts, each) for number, each in self._natives()])
            self._columns = [pl.struct(values).struct.json_encode().alias(_LINE)]
        self._checks = [plan.fit.alias(_FIT), plan.keep.alias(_KEEP)]

    def _natives(self) -> Iterator[tuple[int, pl.Expr]]:
        """Yield the columns of the plan with the numbers of their targets."""
        with_target = [each for each in self._plan.documents if each.document.target is not None]
        return ((number, each.native.expr) for number, each in enumerate(with_target) if each.native is not None)

    def run(self, batch: RecordLines) -> TransformedBatch | None:
        """Return the result of some lines, None where Polars fails for them."""
        values = self._reader.read(batch)
        count = len(batch)
        try:
            frame = self._computed(values, count)
        except (pl.exceptions.PolarsError, ValueError):  # of a time that `strftime` cannot write, too
            return None
        fit, keep = frame.drop_in_place(_FIT), frame.drop_in_place(_KEEP)
        bad = values.misfits if fit.all() else values.misfits | set((~fit).arg_true().to_list())
        result = TransformedBatch(records=count)
        if self._plan.is_native:
            _write(frame[_LINE], keep, bad, result)
        else:
            self._write_with_python(frame, keep.to_list(), values, bad, result)
        for row in sorted(bad):
            result.add(row, self._one_by_one.outcome(batch.line(row), row))
        return result

    def _computed(self, values: LeafValues, height: int) -> pl.DataFrame:
        """Return the values of rows, and the checks.

        Eagerly: to optimize a plan anew for each batch takes longer than what there is left to optimize.
        """
        columns = [each for each in values.columns.values() if isinstance(each, pl.Series)]
        constants = [pl.lit(make()).alias(name) for name, make in self._plan.constants.items()]
        frame = pl.DataFrame([pl.int_range(height, dtype=pl.UInt32, eager=True).alias(_ROW), *columns])
        for stage in (constants, *self._plan.stages):
            frame = frame.with_columns(stage) if stage else frame
        found = frame.select(_ROW, *self._columns, *self._checks)  # constants alone would be one row
        found.drop_in_place(_ROW)
        return found

    def _write_with_python(
        self, frame: pl.DataFrame, keeps: list[bool], values: LeafValues, bad: set[int], result: TransformedBatch
    ) -> None:
        """Write the rows of a plan with Python documents.

        The rows where that fails are added to `bad`.
        """
        height = result.records
        result.lines = [None] * height
        records = values.records or [None] * height
        columns = dict[int, list[Any]]()
        for number, _ in self._natives():
            columns[number] = frame[f"value{number}"].to_list()
        number = 0
        for each in self._plan.documents:
            found = [] if each.native else _by_python(each, list(values.columns[each.leaf]), records, keeps, bad)
            if each.document.target is not None:
                columns.setdefault(number, found)
                number += 1
        listed = [columns[number] for number in range(len(self._targets))]
        for row, made in enumerate(zip(*listed, strict=True) if listed else repeat((), height)):
            if row in bad or not keeps[row]:
                continue
            try:
                result.lines[row] = dump(self._assembled(records[row], made))
            except Exception:  # noqa: BLE001  what code returns may be anything
                bad.add(row)
            else:
                result.written += 1

    def _assembled(self, record: Any, values: Sequence[Any]) -> dict[str, Any]:
        if not self._plan.configuration.passthrough:
            return self._make(*values)
        found = dict(record)
        for target, value in zip(self._targets, values, strict=True):
            target.put(found, value)
        return found


def _write(lines: pl.Series, mask: pl.Series, bad: set[int], result: TransformedBatch) -> None:
    """Write the records in the mask, except for `bad` ones."""
    if not bad and mask.all():
        result.written = len(lines)
        result.text = (lines.str.join("\n") + "\n").cast(pl.Binary).item()
        return
    result.lines = [None] * len(lines)
    for row, (line, is_chosen) in enumerate(zip(lines.to_list(), mask.to_list(), strict=True)):
        if is_chosen and row not in bad:
            result.lines[row] = line.encode()
            result.written += 1


def _by_python(
    each: PlannedDocument, values: list[Any], records: list[Any], keeps: list[bool], bad: set[int]
) -> list[Any]:
    """Return the values of a document that runs as Python.

    The rows where it fails are added to `bad`.
    """
    for applied in each.document.steps:
        found = _results(applied.step, values, records, bad)
        if applied.step.name == FILTER:
            keeps[:] = [keep and bool(result) for keep, result in zip(keeps, found, strict=True)]
        else:
            values = found
    return values


def _results(step: TransformStep, values: list[Any], records: list[Any], bad: set[int]) -> list[Any]:
    """Return the results of a step; the rows where it fails are added to `bad`."""
    found: list[Any] = [None] * len(values)
    rows = [row for row, value in enumerate(values) if (value is not None or step.takes_null) and row not in bad]
    try:
        at_once = None if step.takes_null else step.apply_all([values[row] for row in rows])
    except Exception:  # noqa: BLE001  of a lookup whose server sends anything: each record by itself
        bad.update(rows)
        return found
    if at_once is not None:
        for row, result in zip(rows, at_once, strict=True):
            if isinstance(result, BaseException):
                bad.add(row)
            else:
                found[row] = result
        return found
    code = step.python()
    function = step.apply if code is None or step.name == FILTER else code.function
    for row in rows:
        try:
            found[row] = function(values[row], records[row])
        except (Exception, SystemExit, GeneratorExit):  # noqa: BLE001  it is code of the user
            bad.add(row)
    return found


def _maker(targets: Sequence[tuple[Any, ...]]) -> Callable[..., dict[str, Any]]:
    """Return a function that makes a record of the values of its targets."""
    tree: dict[str, Any] = {}
    for number, (*outer, last) in enumerate(targets):
        inner = tree
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = f"v{number}"
    names = ", ".join(f"v{number}" for number in range(len(targets)))
    make: Callable[..., dict[str, Any]] = eval(f"lambda {names}: {_literal(tree)}")  # noqa: S307  of literals of ours
    return make


def _literal(tree: dict[str, Any]) -> str:
    members = (f"{name!r}: {each if isinstance(each, str) else _literal(each)}" for name, each in tree.items())
    return f"{{{', '.join(members)}}}"
