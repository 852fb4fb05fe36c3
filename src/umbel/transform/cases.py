"""Cases of a configuration: its document `tests:`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from umbel.errors import Terminal
from umbel.transform.configuration import Configuration, TransformCase
from umbel.transform.parts import Lines, split
from umbel.transform.values import dump
from umbel.transform.workers import TransformWorkers


def failures(configuration: Configuration) -> Iterator[str]:
    """Yield a message for each failed case."""
    with TransformWorkers(configuration, 1) as workers:  # code may end its process
        for case in configuration.cases:
            try:
                message = _failure(workers, case)
            except Terminal as error:
                message = str(error)
            if message:
                yield f"{configuration.file}:{case.line}: {case.name}: {message}"


def _failure(workers: TransformWorkers, case: TransformCase) -> str:
    """Return why a case fails; empty if it does not."""
    result = workers.result(Lines(case.name, dump(case.record)))
    letter = result.letters[0] if result.letters else None
    if letter is not None and letter.step != case.dead_letter:
        if not letter.field:  # of no step: code was ended
            return f"{letter.error}: {letter.message}"
        return f"step {letter.step} of '{letter.field}' failed ({letter.at}): {letter.error}: {letter.message}"
    if case.dead_letter and letter is None:
        return (
            f"expected a dead letter of step {case.dead_letter}, found {result.data.decode().rstrip() or 'no record'}"
        )
    expected = b"".join(dump(each) + b"\n" for each in case.output)
    if result.data == expected:
        return ""
    differ = "" if _unordered(expected) != _unordered(result.data) else ": they differ in their order"
    return (
        f"expected {expected.decode().rstrip() or 'no record'}, "
        f"found {result.data.decode().rstrip() or 'no record'}{differ}"
    )


def _unordered(records: bytes | bytearray) -> list[str]:
    """Return records, and the fields of each, in an order of their own."""
    return sorted(json.dumps(json.loads(each), sort_keys=True) for each in split(records))
