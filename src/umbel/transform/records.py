"""The meaning of a configuration: records one by one, as Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from umbel.errors import Terminal, text_of
from umbel.transform.configuration import READ, WRITE, AppliedStep, Configuration, FieldDocument
from umbel.transform.parts import Letter
from umbel.transform.python_code import line_in_code
from umbel.transform.values import BadRecord, copied, dump, parse

EXPLODE, FILTER = "explode", "filter"


class StepFailed(Exception):
    """A step that failed for a record.

    Args:
        document: of the step.
        applied: the step.
        error: its exception.
    """

    def __init__(self, document: FieldDocument, applied: AppliedStep, error: BaseException) -> None:
        super().__init__(text_of(error))
        self.document, self.applied, self.error = document, applied, error


class RecordDropped(Exception):
    """A record that is left out by `on_error: drop`.

    Args:
        step: the name of the step that failed.
    """

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


class NotPlaced(Exception):
    """A value whose target is inside of a text, a list or a number.

    Those stay with `passthrough`.

    Args:
        document: the one with the target.
        error: the reason.
    """

    def __init__(self, document: FieldDocument, error: TypeError) -> None:
        super().__init__(str(error))
        self.document = document


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one record.

    Args:
        lines: the output records, as JSON.
        letter: the dead letter, if it is one.
        nulls: how many steps failed with `on_error: null`.
        is_dropped: whether a step failed with `on_error: drop`.
    """

    lines: tuple[bytes, ...] = ()
    letter: Letter | None = None
    nulls: int = 0
    is_dropped: bool = False


class RecordTransform:
    """A configuration, applied to records one by one.

    Args:
        configuration: the documents and their steps.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._explodes = any(each.step.name == EXPLODE for each in configuration.applied)

    def outcome(self, line: bytes, row: int) -> Outcome:
        """Return the result of a line; `row` is its number in the batch.

        Raises:
            Terminal: a step with `on_error: fail` failed.
        """
        nulls = list[str]()
        outputs: Sequence[dict[str, Any]] = ()
        try:
            outputs = self.outputs(parse(line), nulls)
            lines = tuple(map(dump, outputs))
        except BadRecord as error:
            return Outcome(letter=Letter(row, line, READ, "", "", "BadRecord", str(error)))
        except StepFailed as failed:
            return Outcome(letter=self._letter(row, line, failed), nulls=len(nulls))
        except RecordDropped:
            return Outcome(nulls=len(nulls), is_dropped=True)
        except Terminal:
            raise
        except NotPlaced as error:
            at = f"{self.configuration.file}:{error.document.line}"
            letter = Letter(row, line, WRITE, error.document.title, at, "TypeError", str(error))
            return Outcome(letter=letter, nulls=len(nulls))
        except Exception as error:  # noqa: BLE001  what code returns may be anything
            field, at = self._unwritable(outputs)
            letter = Letter(row, line, WRITE, field, at, type(error).__name__, text_of(error))
            return Outcome(letter=letter, nulls=len(nulls))
        return Outcome(lines, nulls=len(nulls))

    def outputs(self, record: dict[str, Any], nulls: list[str]) -> Sequence[dict[str, Any]]:
        """Return the output records of a record.

        Args:
            record: the input.
            nulls: receives the names of steps that failed with `on_error: null`.

        Raises:
            StepFailed: a step failed with `on_error: dead_letter`.
            RecordDropped: a step failed with `on_error: drop`.
            NotPlaced: a target is inside of a value that is no object.
            Terminal: a step failed with `on_error: fail`.
        """
        columns = []
        for document in self.configuration.documents:
            values = self._values(document, record, nulls)
            if values is None:
                return ()
            if document.target is not None:
                columns.append([(document, value) for value in values])
        if self._explodes:
            return [self._assembled(record, row) for row in product(*columns)]
        return [self._assembled(record, [column[0] for column in columns])]

    def _assembled(self, record: dict[str, Any], values: Sequence[tuple[FieldDocument, Any]]) -> dict[str, Any]:
        found = dict(record) if self.configuration.passthrough else {}
        for document, value in values:
            assert document.target is not None
            try:
                document.target.put(found, value)
            except TypeError as error:
                raise NotPlaced(document, error) from None
        return found

    def _values(self, document: FieldDocument, record: dict[str, Any], nulls: list[str]) -> list[Any] | None:
        """Return the values of a document; None if the record is left out."""
        if document.may_mutate:
            record = copied(record)  # other documents read the input
        values = [document.source.get(record)]
        for applied in document.steps:
            name = applied.step.name
            found = []
            for value in values:
                result = applied_to(document, applied, value, record, self.configuration.file, nulls)
                if name == FILTER:
                    found += [value] if result else []
                elif name == EXPLODE and type(result) is list:
                    found += result
                else:
                    found.append(result)
            if name == FILTER and not found:
                return None
            values = found
        return values

    def _unwritable(self, outputs: Sequence[dict[str, Any]]) -> tuple[str, str]:
        """Return the target, and its last step's location, of what JSON cannot have."""
        for document, output in product(self.configuration.documents, outputs):
            try:
                dump(document.target and document.target.get(output))
            except Exception:  # noqa: BLE001  what code returns may be anything
                line = document.steps[-1].line if document.steps else document.line
                return document.title, f"{self.configuration.file}:{line}"
        return "", ""

    def _letter(self, row: int, line: bytes, failed: StepFailed) -> Letter:
        return letter_of(row, line, failed, self.configuration.file)


def letter_of(row: int, line: bytes, failed: StepFailed, file: str) -> Letter:
    """Return the dead letter of a failed step."""
    at = location(failed.applied, failed.error, file)
    name = type(failed.error).__name__
    return Letter(row, line, failed.applied.step.name, failed.document.title, at, name, text_of(failed.error))


def applied_to(
    document: FieldDocument, applied: AppliedStep, value: Any, record: dict[str, Any], file: str, nulls: list[str]
) -> Any:
    """Return the result of one step for one value."""
    step = applied.step
    if value is None and not step.takes_null:
        return None
    try:
        return step.apply(value, record)
    except (Exception, SystemExit, GeneratorExit) as error:
        if applied.on_error == "null":
            nulls.append(step.name)
            return None
        if applied.on_error == "drop":
            raise RecordDropped(step.name) from error
        if applied.on_error == "fail":
            at = location(applied, error, file)
            raise Terminal(
                f"step '{step.name}' of '{document.title}': {type(error).__name__}: {text_of(error)}", where=at
            ) from error
        raise StepFailed(document, applied, error) from error


def location(applied: AppliedStep, error: BaseException, file: str) -> str:
    """Return `file:line` of the failed step; with code, of its line, if that is known."""
    line = line_in_code(error) if applied.code_line else None
    return f"{file}:{applied.line if line is None else applied.line_of(line)}"


def outcomes(transform: RecordTransform, lines: Sequence[bytes], rows: Sequence[int]) -> Iterator[Outcome]:
    """Yield the results of some lines of a batch."""
    for line, row in zip(lines, rows, strict=True):
        yield transform.outcome(line, row)
