"""Outputs of the transformation: standard output and files, plain, compressed or Parquet."""

from __future__ import annotations

import fcntl
import gzip
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from umbel.errors import InvalidValue, Terminal
from umbel.transform.parts import Letter

Write = Any


@contextmanager
def output(name: str | None) -> Iterator[BinaryIO]:
    """Open an output: standard output for None; a file appears when it is complete.

    Args:
        name: `.gz`, `.zst` and `.parquet` are written as such.
    """
    with _named(name or "standard output"):
        if name is None:
            if sys.stdout is None:
                raise InvalidValue("standard output is closed", hint="give a file: -o FILE")
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        with _file(Path(name)) as file:
            yield file


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Give an error of the disk the name of the output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            error.filename = name
        raise


def check_apart(read: Iterable[Path], written: Iterable[str | None]) -> None:
    """Check that no output is a file that is read, or another output.

    Args:
        read: the configuration and the inputs.
        written: the names of outputs, None for standard output.

    Raises:
        InvalidValue: one is.
    """
    names: dict[object, str] = {found: str(each) for each in read if (found := _identity(each)) is not None}
    for name in written:
        found = _identity(None if name is None else Path(name))
        if found in names:
            where = "standard output" if name is None else name
            raise InvalidValue(f"{where} is {names[found]}, which this run reads or writes", hint="write another file")
        if found is not None:
            names[found] = str(name)


def _identity(path: Path | None) -> object:
    """Return the identity of a file, equal for all of its names.

    None is standard output. It is None of other than regular files.
    """
    try:
        found = os.fstat(sys.stdout.fileno()) if path is None else path.stat()
    except (OSError, ValueError, AttributeError):
        return None if path is None else path.resolve()  # it is not there yet
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def _file(path: Path) -> Iterator[BinaryIO]:
    path = path.resolve() if path.is_symlink() else path
    if not path.parent.is_dir():
        raise InvalidValue(f"{path}: there is no folder {path.parent}", hint="make it first")
    if not path.exists() or path.is_file():
        unfinished = path.with_name(f".{path.name}.unfinished")
        with _claimed(unfinished, path):
            with _opened(unfinished, path.suffix.lower()) as file:
                yield file
            _completed(unfinished, path)
        return
    with path.open("wb") as file:  # a pipe or a device
        yield file


@contextmanager
def _claimed(unfinished: Path, path: Path) -> Iterator[None]:
    """Lock an unfinished file for one run; remove it at the end of the block."""
    with unfinished.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidValue(
                f"{path}: another run writes it", hint="wait for its end, or write another file"
            ) from None
        try:
            yield
        finally:
            unfinished.unlink(missing_ok=True)


def _opened(path: Path, ending: str) -> Any:
    if ending == ".gz":
        return gzip.open(path, "wb", compresslevel=6)
    if ending == ".zst":
        import pyarrow as pa

        return pa.output_stream(str(path), compression="zstd")
    return path.open("wb")


def _completed(unfinished: Path, path: Path) -> None:
    if path.suffix.lower() != ".parquet":
        unfinished.replace(path)
        return
    import polars as pl
    import pyarrow as pa

    from umbel.transform.parquet import write_parquet

    made = path.with_name(f".{path.name}.made")
    try:
        write_parquet(unfinished, made)
        made.replace(path)
    except (pl.exceptions.PolarsError, pa.ArrowException, RecursionError) as error:
        raise Terminal(
            f"{path}: the records cannot be columns: {error}", hint="write .json.zst, or cast the fields"
        ) from None
    finally:
        made.unlink(missing_ok=True)


def letter_line(letter: Letter, name: str, line: int) -> bytes:
    """Return a dead letter as a line of JSON.

    Args:
        letter: the dead letter.
        name: of the input.
        line: the number of the record's line in it, from 1.
    """
    found = {
        "input": name,
        "line": line,
        "field": letter.field,
        "step": letter.step,
        "at": letter.at,
        "error": letter.error,
        "message": letter.message.encode(errors="replace").decode(),
        "record": letter.record.decode(errors="backslashreplace"),
    }
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)


def is_terminal(descriptor: int) -> bool:
    """Return True if a file descriptor is of a terminal."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
