"""Files as a source: the files of a folder of this machine.

Create files by renaming them into the folder: a file counts as complete once it exists. Names that start with a dot or an
underscore, and names in `.tmp` or `.part`, are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, ClassVar

from umbel.definitions.arguments import DataConnector, DataSource, ReadOptions
from umbel.errors import InvalidValue
from umbel.formats.avro_blocks import avro
from umbel.formats.declarations import CSV, check_format, letters_of
from umbel.formats.stored import LocalFile, Stamp, StoredFile, stamp_of

if TYPE_CHECKING:
    from umbel.connectors.file_source import FileSource
    from umbel.connectors.splits import SplitSource

FORMATS = ("json", "parquet", "avro", "delta", "hudi", "iceberg")
TABLES = ("delta", "hudi", "iceberg")


@dataclass(frozen=True, kw_only=True)
class FilesConnector(DataConnector):
    """The files of one folder that match a pattern.

    Args:
        folder: absolute path of the folder.
        pattern: a pattern of files in it, with `*` and `**`; also of files compressed by gzip or zstd.
        format: "json" (one object per line), "parquet", "avro", "delta", "hudi", "iceberg" or CSV. For those
            of tables, the pattern is the path of a table.
        presorted: True if paths sort by time.
    """

    folder: str
    pattern: str
    format: str | CSV
    presorted: bool = field(default=False, metadata={"identity": "where set"})

    @property
    def nests(self) -> bool:
        return self.format == "json"

    @property
    def place(self) -> tuple[str, ...]:
        return (*super().place, self.pattern) if self.format in TABLES else super().place

    @property
    def cdcs(self) -> frozenset[str]:  # type: ignore[override]
        """The supported `cdc` values of rows read from the folder."""
        return frozenset({"native"}) if self.format in TABLES else DataConnector.cdcs

    @property
    def letter_format(self) -> Any:
        return letters_of(self.format)

    def reader_of(self, options: ReadOptions) -> SplitSource:
        if self.format not in TABLES:
            return self.reader(options.directory)
        from umbel.connectors.delta_tables import in_folder
        from umbel.connectors.s3 import table_source

        title, path = f"Files '{self.source.name}', table '{self.pattern}'", str(Path(self.folder, self.pattern))
        return table_source(str(self.format), title, self.pattern, partial(in_folder, path), options)

    def reader(self, directory: Path) -> FileSource:
        from umbel.connectors.file_source import FileSource
        from umbel.connectors.path_dates import Presorted

        if self.format == "avro":
            avro()
        order = Presorted() if self.presorted else None
        return FileSource(Folder(self.folder, self.pattern), self.format, order=order)


@dataclass(frozen=True, kw_only=True)
class Files(DataSource):
    """A folder of files; new files are ingested as they appear.

    A file must not change once it exists: a changed one is not read again, and is reported as a rejected record.

    Args:
        folder: its path.
    """

    folder: str

    needs: ClassVar[str] = "which files: .path(...)"

    def path(self, pattern: str, format: Any = "json", presorted: bool = False) -> FilesConnector:
        """Return the connector for the files that match a pattern such as `2013/*.json.gz`.

        Args:
            pattern: relative to the folder, with `*` and `**`.
            format: "json", "parquet", "avro", "delta", "hudi", "iceberg" (the path of a table) or CSV(...).
            presorted: True if paths sort by time: files whose names sort before one that was read are never read then, and rows
                more than `disorder` behind others are late from the first file on. Without it no row is late until the files
                that exist have been read.
        """
        check_format(f"Files '{self.name}', path '{pattern}'", format, FORMATS, CSV)
        if format in TABLES and "*" in pattern:
            raise InvalidValue(f"Files '{self.name}', path '{pattern}': a table has one path, without wildcards")
        if format not in TABLES and isinstance(pattern, str):
            _check_pattern(f"Files '{self.name}', path {pattern!r}", pattern)
        folder = str(Path(self.folder).absolute())
        return FilesConnector(source=self, folder=folder, pattern=pattern, format=format, presorted=presorted)


def _check_pattern(subject: str, pattern: str) -> None:
    """Refuse a pattern that no file of a folder can match."""
    parts = PurePosixPath(pattern).parts
    if not parts or "\0" in pattern:
        raise InvalidValue(f"{subject}: it names no files", hint='path("**/*.json") for all below the folder')
    if pattern.startswith("/") or ".." in parts:
        raise InvalidValue(
            f"{subject}: it must lie in the folder", hint="name the folder in Files(folder=...), and here what is in it"
        )
    if any("**" in part and part != "**" for part in parts) or parts[-1] == "**":
        raise InvalidValue(
            f"{subject}: '**' stands for folders: it must be a whole part, and not the last one",
            hint='path("**/*.json"), or path("**/*") for all files',
        )


_UNFINISHED = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of a folder that match a pattern.

    A stamp is the size, and the modification time in µs since the epoch.

    Args:
        path: of the folder.
        pattern: relative to it.
    """

    path: str
    pattern: str

    is_costly: ClassVar[bool] = False
    failure_domain: ClassVar[None] = None

    @property
    def trouble(self) -> str:
        """The reason why the folder cannot be listed; empty if it can."""
        try:
            with os.scandir(self.path):  # `glob` passes over what cannot be listed
                Path(self.path, "..").stat()  # without the right to search it no file of it is found
        except OSError as error:
            return f"folder {self.path}: {error.strerror}"
        return ""

    def listed(self, start: str) -> tuple[dict[str, Stamp], str]:
        folder = Path(self.path)
        prefix = str(folder).rstrip("/") + "/"  # names as texts: paths take most of the time of a large folder
        found = ((str(path).removeprefix(prefix), path) for path in folder.glob(self.pattern))
        stamps = {name: _stamp(path) for name, path in found if _is_complete(name)}
        return {name: stamp for name, stamp in sorted(stamps.items()) if stamp is not None and name > start}, ""

    def file(self, name: str, stamp: Stamp | None) -> LocalFile:
        return LocalFile(Path(self.path, name), stamp)

    def fetch_ahead(self, files: Sequence[StoredFile]) -> None:
        """Fetch nothing: the files are of this machine."""

    def spelled(self, stamp: Stamp) -> str:
        return f"{stamp[0]} bytes, modified at {datetime.fromtimestamp(stamp[1] / 1e6, UTC).isoformat()}"

    def examine(self) -> None:
        """Accept any folder: it may be made later."""


def _stamp(path: Path) -> Stamp | None:
    """Return the stamp that identifies a file's content, None for no file."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return stamp_of(facts) if S_ISREG(facts.st_mode) else None


def _is_complete(name: str) -> bool:
    return not (name.endswith(_UNFINISHED) or name.startswith((".", "_")) or "/." in name or "/_" in name)
