"""Iceberg tables: where they are, their snapshots, and their data files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from umbel.connectors.versioned_source import KIND
from umbel.errors import InvalidValue, PackageError, Transient

_NUMBERED = re.compile(r"(?:v(\d+)|(\d+)-[0-9a-fA-F-]+)(?:\.gz)?\.metadata\.json")
_HINT = "version-hint.text"
EXAMINE = "see what wrote it"


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A data file of a table.

    Args:
        table: that it is of, in pyiceberg.
        entry: its description there, with the positions deleted from it.
        kind: insert for a file whose rows came, delete for one whose rows went.
    """

    table: Any
    entry: Any
    kind: str = "insert"


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One snapshot of a table.

    Args:
        number: its identity.
        at: its instant in µs.
        files: those that it adds and removes; none if it only writes the same rows to other files.
        deletes: the kinds of files of deletions that it adds.
        types: of the columns by name, each with the number of its field.
    """

    number: int
    at: int
    files: tuple[IcebergFile, ...]
    deletes: frozenset[str]
    types: Mapping[str, Any]

    @property
    def position(self) -> Mapping[str, Any]:
        """Its identity."""
        return {"snapshot_id": self.number}

    @property
    def has_changes(self) -> bool:
        """True if rows changed or were deleted."""
        return any(each.kind != "insert" for each in self.files)


@dataclass(frozen=True)
class IcebergPlace:
    """A table of a catalog, a folder or a metadata file.

    Args:
        title: of it, for messages.
        load: returns the table of pyiceberg, as it is now.
    """

    title: str
    load: Callable[[], Any] = field(repr=False)

    def opened(self) -> Any:
        """Return the table as it is now.

        Raises:
            InvalidValue: there is none, or it is damaged.
            Transient: its catalog or its storage does not answer.
        """
        with self.described():
            try:
                return self.load()
            except FileNotFoundError as error:
                raise InvalidValue(f"{self.title}: there is no Iceberg table: {_first_line(error)}") from None

    def files(self, table: Any, number: int) -> list[IcebergFile]:
        """Return the data files of a snapshot, ordered.

        Raises:
            FileNotFoundError: a file that lists them was deleted.
            InvalidValue: rows were deleted in a way that cannot be read.
        """
        with self.described():
            tasks = list(table.scan(snapshot_id=number).plan_files())
        for task in tasks:
            check_deletes(f"{self.title}, snapshot {number}", {each.content.name for each in task.delete_files})
        return sorted((IcebergFile(table, task) for task in tasks), key=lambda file: str(file.entry.file.file_path))

    def snapshot(self, table: Any, number: int) -> TableSnapshot:
        """Return what a snapshot added and removed.

        Raises:
            FileNotFoundError: a file that lists it was deleted.
        """
        found = table.snapshot_by_id(number)
        operation = found.summary.operation.value if found.summary else "overwrite"
        entries = [] if operation == "replace" else self._entries(table, found)
        files = [IcebergFile(table, task, kind) for kind, task in entries if task is not None]
        deletes = frozenset(kind for kind, task in entries if task is None)
        files.sort(key=lambda file: (file.kind, file.entry.file.file_path))
        return TableSnapshot(
            number, int(found.timestamp_ms) * 1000, tuple(files), deletes, types_of(table, found.schema_id)
        )

    def _entries(self, table: Any, snapshot: Any) -> list[tuple[str, Any]]:
        """Return the data files of a snapshot, and kinds of its delete files."""
        from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
        from pyiceberg.table import FileScanTask

        kinds = {ManifestEntryStatus.ADDED: "insert", ManifestEntryStatus.DELETED: "delete"}
        found = list[tuple[str, Any]]()
        with self.described():
            for manifest in snapshot.manifests(table.io):
                if manifest.added_snapshot_id != snapshot.snapshot_id:
                    continue
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                    if entry.status not in kinds or entry.snapshot_id != snapshot.snapshot_id:
                        continue
                    is_data = entry.data_file.content == DataFileContent.DATA
                    task = FileScanTask(entry.data_file) if is_data else None
                    found.append((kinds[entry.status] if is_data else entry.data_file.content.name, task))
        return found

    def rows(self, file: IcebergFile, types: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file in order, with their kind.

        Args:
            file: of the table.
            types: the columns to read, each with the number of its field.

        Raises:
            FileNotFoundError: it was deleted.
        """
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.schema import Schema

        table = file.table
        fields = {each.field_id: each for each in _fields(table)}
        schema = Schema(*(fields[kind["id"]] for kind in types.values()))
        with self.described():
            batches = ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches([file.entry])
            for batch in batches:
                frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([batch])))
                yield frame.rename(dict(zip(frame.columns, types, strict=True))).with_columns(
                    pl.lit(file.kind).alias(KIND)
                )

    @contextmanager
    def described(self) -> Iterator[None]:
        """Turn errors of the storage, the catalog and the library into umbel's."""
        import pyarrow as pa
        from pyiceberg import exceptions
        from sqlalchemy.exc import SQLAlchemyError

        missing = (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError, exceptions.NoSuchIcebergTableError)
        try:
            yield
        except (FileNotFoundError, InvalidValue, Transient, PackageError):
            raise
        except missing as error:
            raise InvalidValue(f"{self.title}: {_first_line(error)}", hint="create it first") from None
        except SQLAlchemyError as error:
            reason = _first_line(getattr(error, "orig", None) or error)
            raise Transient(f"{self.title}: its catalog cannot be read: {reason}") from None
        except (
            exceptions.ValidationError,
            pa.ArrowInvalid,
            ValueError,
            KeyError,
            NotImplementedError,
            EOFError,
        ) as error:
            raise InvalidValue(f"{self.title}: it cannot be read: {_first_line(error)}", hint=EXAMINE) from None
        except PermissionError as error:
            raise InvalidValue(
                f"{self.title}: {_first_line(error)}", hint="grant the worker the right to read"
            ) from None
        except OSError as error:
            raise Transient(f"{self.title}: {_first_line(error)}", hint="see that its storage can be reached") from None


def check_deletes(title: str, deletes: Collection[str]) -> None:
    """Refuse files of deletions that the library cannot apply.

    Raises:
        InvalidValue: there is one.
    """
    if "EQUALITY_DELETES" in deletes:
        raise InvalidValue(
            f"{title}: rows were deleted by equality delete files, which are not read",
            hint="rewrite the table's data files (compaction) before it is read; write with copy-on-write",
        )


def types_of(table: Any, schema: int | None) -> dict[str, Any]:
    """Return the columns of a schema, with types and numbers of fields.

    Args:
        table: of pyiceberg.
        schema: the number of the schema, None for the present one.
    """
    chosen = table.schema() if schema is None else table.schemas()[schema]
    return {each.name: {"id": each.field_id, "type": str(each.field_type)} for each in chosen.fields}


def _fields(table: Any) -> Iterator[Any]:
    """Yield the columns of all schemas of a table, the present one last."""
    for schema in [*table.schemas().values(), table.schema()]:
        yield from schema.fields


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def iceberg() -> None:
    """Check that the package that reads Iceberg tables is there.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise PackageError("Iceberg tables need the package pyiceberg", hint="pip install 'umbel[iceberg]'") from error


def from_path(title: str, address: Callable[[], tuple[str, dict[str, str]]]) -> Any:
    """Return the table whose folder or metadata file is at an address.

    Args:
        title: of it, for messages.
        address: returns the address and the options of its storage.
    """
    from pyiceberg.table import StaticTable

    path, options = address()
    properties = properties_of(options)
    location = path if path.endswith(".metadata.json") else _newest(title, path, properties)
    return StaticTable.from_metadata(location, properties)


def from_catalog(name: str, uri: str, properties: Mapping[str, str], table: str) -> Any:
    """Return a table of a catalog."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(name, **{"uri": uri, "init_catalog_tables": "false", **properties}).load_table(table)


def properties_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a storage as pyiceberg names them."""
    names = {
        "AWS_ENDPOINT_URL": "s3.endpoint",
        "AWS_REGION": "s3.region",
        "AWS_ACCESS_KEY_ID": "s3.access-key-id",
        "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
        "AWS_SESSION_TOKEN": "s3.session-token",
    }
    return {names[name]: value for name, value in options.items() if name in names}


def _newest(title: str, path: str, properties: Mapping[str, str]) -> str:
    """Return the newest metadata file of a table's folder.

    Raises:
        FileNotFoundError: there is none.
        InvalidValue: two of them are the newest.
    """
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, netloc, below = PyArrowFileIO.parse_location(path.rstrip("/"))
    files = PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, netloc)
    names = [each.base_name for each in files.get_file_info(fs.FileSelector(f"{below}/metadata"))]
    numbered = sorted((int(found[1] or found[2]), found[0]) for name in names if (found := _NUMBERED.fullmatch(name)))
    if _HINT in names:
        hint = files.open_input_stream(f"{below}/metadata/{_HINT}").read().decode().strip()
        numbered = [each for each in numbered if str(each[0]) == hint and each[1].startswith("v")]
    if not numbered:
        raise FileNotFoundError(
            f"{path}/metadata has no metadata file" + (" of its version hint" if _HINT in names else "")
        )
    newest = [name for number, name in numbered if number == numbered[-1][0]]
    if len(newest) > 1:
        raise InvalidValue(
            f"{title}: two metadata files have the number {numbered[-1][0]}, and only the table's catalog knows which is in "
            f"force: {', '.join(newest)}",
            hint="read the table by its catalog: Iceberg(name=..., uri=...).table(...)",
        )
    return f"{path.rstrip('/')}/metadata/{newest[0]}"
