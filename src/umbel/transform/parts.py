"""Parts of the input and of the output, as they travel between processes.

Nothing is loaded here that only workers need.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, SupportsIndex

from umbel.errors import Transient

if TYPE_CHECKING:
    from umbel.transform.batches import BatchTransform


class ConfigurationText(Protocol):
    """A configuration as written."""

    @property
    def text(self) -> str:
        """The documents."""

    @property
    def file(self) -> str:
        """The name of its file, for messages."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: a record without result.

    Args:
        row: the number of the record's line in its batch, from 0.
        record: its bytes.
        step: the name of the step that failed; `read` for a record that cannot be read, `write` for one that cannot be written.
        field: the target field of the document.
        at: `file:line` of the step or of its code.
        error: the class of the exception.
        message: its text.
    """

    row: int
    record: bytes
    step: str
    field: str
    at: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of input: bytes, or a range of a file.

    Args:
        name: of the input, for dead letters.
        data: the lines, if there is no path; in a worker a `bytearray`.
        path: the file.
        begin: the first byte of the range: the start of a line.
        end: the byte behind the last.
        identity: of the file, as of `identity_of`.
        error: why the input cannot be read further; empty if it can.
        is_each: whether the output of each line is needed, as in front of a dataset. No step ends such a run: a record for which
            one with `on_error: fail` fails is a dead letter.
        is_apart: whether a plan is not used: it is the line of a batch that failed as a whole.
        keys: the fields that are made, all where it is empty: the lines are of deleted rows.
    """

    name: str
    data: bytes | bytearray = b""
    path: str = ""
    begin: int = 0
    end: int = 0
    identity: tuple[int, int] | None = None
    error: str = ""
    is_each: bool = False
    is_apart: bool = False
    keys: tuple[str, ...] = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[..., Lines], tuple[Any, ...]]:
        """Let the lines, which are most of it, follow the pickle."""
        name, data, *others = (getattr(self, each.name) for each in fields(self))
        return _lines_received, (name, PickleBuffer(data), *others)

    @property
    def is_pause(self) -> bool:
        """True if it has no lines: a stream has no more for now."""
        return not (self.data or self.path or self.error)

    @property
    def size(self) -> int:
        """The bytes of the lines."""
        return self.end - self.begin if self.path else len(self.data)

    def read(self) -> bytes | bytearray:
        """Return the lines.

        Raises:
            Transient: the file was replaced, or became shorter, since it was cut into ranges.
        """
        if not self.path:
            return self.data
        with Path(self.path).open("rb") as file:
            is_same = self.identity in (None, identity_of(file))
            file.seek(self.begin)
            found = file.read(self.end - self.begin)
        if not is_same or len(found) < self.end - self.begin:
            raise changed(self.path, "became shorter" if is_same else "was replaced")
        return found


def changed(path: str, change: str) -> Transient:
    """Return the error of a file that changed during the run."""
    return Transient(f"{path}: it {change} while it was read", hint="run it again when nothing writes the file")


def identity_of(file: BinaryIO) -> tuple[int, int]:
    """Return the identity of an open file; one that replaces it has another."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino


@dataclass(slots=True)
class Done:
    """The result of some lines.

    Args:
        name: of the input.
        data: the output records.
        letters: the dead letters, with the numbers of their lines in the input.
        lines: how many lines were read, blank ones too.
        records, written, dropped, nulls, one_by_one: as of a batch.
        each: the output of each line, if needed; None where it has none.
    """

    name: str
    data: bytes | bytearray
    letters: list[Letter]
    lines: int = 0
    records: int = 0
    written: int = 0
    dropped: int = 0
    nulls: int = 0
    one_by_one: int = 0
    each: list[bytes | None] = field(default_factory=list)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[..., Done], tuple[Any, ...]]:
        """Let the output records, which are most of it, follow the pickle."""
        _, _, *others = (getattr(self, each.name) for each in fields(self))
        return _received, (self.name, PickleBuffer(self.data), *others)


def _received(name: str, data: bytes | memoryview, *others: Any) -> Done:
    return Done(name, _uncopied(data), *others)


def _lines_received(name: str, data: bytes | memoryview, *others: Any) -> Lines:
    return Lines(name, _uncopied(data), *others)


def _uncopied(data: bytes | memoryview) -> Any:
    return data.obj if isinstance(data, memoryview) else data


def split(data: bytes | bytearray) -> list[bytes]:
    """Return the lines of some bytes, blank ones too."""
    lines = bytes(data).split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


class LinesTransform:
    """The transformation of lines, callable in a worker process, which loads what it needs.

    Args:
        text: the configuration as written.
        file: its name.
    """

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._transform: BatchTransform | None = None

    def __call__(self, lines: Lines) -> Done:
        from umbel.transform.work import batch_transform, transformed

        if self._transform is None:
            self._transform = batch_transform(self._text, self._file)
        return transformed(self._transform, lines)
