"""Outputs of the transformation: standard output and files, plain, compressed or Parquet."""

from __future__ import annotations

import fcntl
import gzip
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, TextIO

import orjson

from umbel.errors import InvalidValue, Terminal
from umbel.transform.inputs import STDIN, check_ending
from umbel.transform.parts import Letter

Write = Any
OWN = 0o600
"""Permissions of a file in the making: it may be as secret as the one that it replaces."""


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
        check_ending(Path(name))
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
        read: the configuration and the inputs; `-` is standard input.
        written: the names of outputs, None for standard output.

    Raises:
        InvalidValue: one is.
    """
    names: dict[object, str] = {}
    for each in read:
        is_standard = str(each) == STDIN
        if (found := _identity(sys.stdin if is_standard else each)) is not None:
            names[found] = "standard input" if is_standard else str(each)
    for name in written:
        found = _identity(sys.stdout if name is None else Path(name))
        if found in names:
            where = "standard output" if name is None else name
            raise InvalidValue(f"{where} is {names[found]}, which this run reads or writes", hint="write another file")
        if found is not None:
            names[found] = str(name)


def _identity(file: Path | TextIO | BinaryIO | None) -> object:
    """Return the identity of a file, equal for all of its names.

    It is None of other than regular files, and of a standard stream that is closed.
    """
    try:
        found = file.stat() if isinstance(file, Path) else os.fstat(file.fileno())  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return os.path.realpath(file) if isinstance(file, Path) else None  # it is not there yet
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def _file(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():  # a pipe or a device, or a link as /dev/stdout, which leads to no name
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if path.is_symlink():
        raise InvalidValue(f"{path}: the link leads to itself", hint="remove it, or write another file")
    if not path.parent.is_dir():
        raise InvalidValue(f"{path}: there is no folder {path.parent}", hint="make it first")
    unfinished = path.with_name(f".{_text(path.name)}.unfinished")
    with _claimed(unfinished, path):
        with _opened(unfinished, path.suffix.lower()) as file:
            yield file
        _completed(unfinished, path)


@contextmanager
def _claimed(unfinished: Path, path: Path) -> Iterator[None]:
    """Lock an unfinished file for one run, and remove it at the end."""
    with _locked(unfinished, path) as file:
        try:
            if path.exists():
                _set_mode(unfinished, OWN)
            yield
        finally:
            if _identity(file) == _identity(unfinished):  # once it is complete, the name may be of the next run
                unfinished.unlink(missing_ok=True)


@contextmanager
def _locked(unfinished: Path, path: Path) -> Iterator[BinaryIO]:
    """Open and lock the unfinished file, which a run that ends meanwhile may rename."""
    while True:
        with unfinished.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidValue(
                    f"{path}: another run writes it", hint="wait for its end, or write another file"
                ) from None
            if _identity(file) == _identity(unfinished):
                yield file
                return


def _set_mode(path: Path, mode: int) -> None:
    with suppress(PermissionError):  # of a file system without permissions
        path.chmod(mode)


def _opened(path: Path, ending: str) -> Any:
    if ending == ".gz":
        return gzip.open(path, "wb", compresslevel=6)
    if ending == ".zst":
        import pyarrow as pa

        return pa.output_stream(path.open("wb"), compression="zstd")  # by a name only if it is UTF-8
    return path.open("wb")


def _completed(unfinished: Path, path: Path) -> None:
    """Put an unfinished file in its place, with the permissions of the former one."""
    mode = stat.S_IMODE((path if path.exists() else unfinished).stat().st_mode)
    if path.suffix.lower() == ".parquet":
        _make_parquet(unfinished, path, mode)
        return
    _set_mode(unfinished, mode)
    unfinished.replace(path)


def _make_parquet(unfinished: Path, path: Path, mode: int) -> None:
    import polars as pl
    import pyarrow as pa

    from umbel.transform.parquet import write_parquet

    made = path.with_name(f".{_text(path.name)}.made")
    before = os.umask(~OWN & 0o777)
    try:
        with _in_utf8(path.parent) as folder:
            write_parquet(folder / unfinished.name, folder / made.name)
        _set_mode(made, mode)
        made.replace(path)
    except (pl.exceptions.PolarsError, pa.ArrowException, RecursionError) as error:
        raise Terminal(
            f"{path}: the records cannot be columns: {error}", hint="write .json.zst, or cast the fields"
        ) from None
    finally:
        os.umask(before)
        made.unlink(missing_ok=True)


@contextmanager
def _in_utf8(folder: Path) -> Iterator[Path]:
    """Give a folder another name, if Polars cannot open its own."""
    if _text(str(folder)) == str(folder):
        yield folder
        return
    with TemporaryDirectory(prefix="umbel-") as place:
        link = Path(place, "folder")
        link.symlink_to(folder.absolute())
        yield link


def letter_line(letter: Letter, name: str, line: int) -> bytes:
    """Return a dead letter as a line of JSON.

    Args:
        letter: the dead letter.
        name: of the input.
        line: the number of the record's line in it, from 1.
    """
    found = {
        "input": _text(name),
        "line": line,
        "field": _text(letter.field),
        "step": _text(letter.step),
        "at": _text(letter.at),
        "error": _text(letter.error),
        "message": letter.message.encode(errors="replace").decode(),
        "record": letter.record.decode(errors="backslashreplace"),
    }
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)


def _text(text: str) -> str:
    """Return a text with escapes for bytes that are no UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def is_terminal(descriptor: int) -> bool:
    """Return True if a file descriptor is of a terminal."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
