"""Iceberg tables: where they are, their snapshots, and their data files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from umbel.connectors.versioned_source import KIND
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

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

    @property
    def name(self) -> str:
        """Its address."""
        return str(self.entry.file.file_path)

    @property
    def deletes(self) -> frozenset[str]:
        """The files that list rows of it as deleted."""
        return frozenset(each.file_path for each in self.entry.delete_files)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One snapshot of a table.

    Args:
        number: its identity.
        at: its instant in µs.
        files: those that it adds, removes, or deletes rows from; none if it only writes the same rows to other files.
        types: of the columns by name, each with the number of its field.
    """

    number: int
    at: int
    files: tuple[IcebergFile, ...]
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
        return sorted((IcebergFile(table, task) for task in tasks), key=lambda file: file.name)

    def snapshot(self, table: Any, number: int) -> TableSnapshot:
        """Return what a snapshot added and removed.

        Raises:
            FileNotFoundError: a file that lists it was deleted.
            InvalidValue: rows were deleted in a way that cannot be read.
        """
        found = table.snapshot_by_id(number)
        operation = found.summary.operation.value if found.summary else "overwrite"
        files = [] if operation == "replace" else self._changed(table, found)
        files.sort(key=lambda file: (file.kind, file.name))
        return TableSnapshot(number, int(found.timestamp_ms) * 1000, tuple(files), types_of(table, found.schema_id))

    def _changed(self, table: Any, snapshot: Any) -> list[IcebergFile]:
        """Return the data files that a snapshot adds, removes, or deletes rows from."""
        from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus
        from pyiceberg.table import FileScanTask

        kinds, deleted = {ManifestEntryStatus.ADDED: "insert", ManifestEntryStatus.DELETED: "delete"}, False
        found = list[IcebergFile]()
        with self.described():
            manifests = snapshot.manifests(table.io)
            for manifest in manifests:
                if manifest.added_snapshot_id != snapshot.snapshot_id:
                    continue
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                    if entry.status not in kinds or entry.snapshot_id != snapshot.snapshot_id:
                        continue
                    if entry.data_file.content == DataFileContent.DATA:
                        found.append(IcebergFile(table, FileScanTask(entry.data_file), kinds[entry.status]))
                    else:
                        deleted = True
        is_merged = any(each.content == ManifestContent.DELETES for each in manifests)
        if deleted or (is_merged and any(each.kind == "delete" for each in found)):
            return self._differing(table, snapshot)
        return found

    def _differing(self, table: Any, snapshot: Any) -> list[IcebergFile]:
        """Return the data files whose rows differ from the snapshot before.

        They were added or removed, or have other deletions.
        """
        parent = snapshot.parent_snapshot_id
        if parent is not None and table.snapshot_by_id(parent) is None:
            raise FileNotFoundError
        before = {each.name: each for each in self.files(table, parent)} if parent is not None else {}
        after = {each.name: each for each in self.files(table, snapshot.snapshot_id)}
        gone = [each for name, each in before.items() if name not in after or each.deletes != after[name].deletes]
        came = [each for name, each in after.items() if name not in before or each.deletes != before[name].deletes]
        return [replace(each, kind="delete") for each in gone] + came

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
        try:
            yield
        except (FileNotFoundError, UmbelError):
            raise
        except Exception as error:
            translated = _translated(self.title, error)
            if translated is None:
                raise
            raise translated from None


def _translated(title: str, error: Exception) -> UmbelError | None:
    """Return an error of the libraries as umbel's, None if it is none of theirs."""
    import pyarrow as pa
    from pyiceberg import exceptions
    from sqlalchemy.exc import SQLAlchemyError

    reason = f"{title}: {_first_line(error)}"
    if "equality deletes" in reason:
        return InvalidValue(
            f"{title}: rows were deleted by equality delete files, which are not read",
            hint="rewrite the table's data files (compaction) before it is read; write with copy-on-write",
        )
    match error:
        case exceptions.NoSuchTableError() | exceptions.NoSuchNamespaceError():
            return InvalidValue(reason, hint="create it first")
        case SQLAlchemyError():
            original = _first_line(getattr(error, "orig", None) or error)
            return Transient(f"{title}: its catalog cannot be read: {original}")
        case exceptions.UnauthorizedError() | exceptions.ForbiddenError() | exceptions.OAuthError():
            return InvalidValue(
                f"{title}: its catalog refuses the worker: {_first_line(error)}",
                hint="see `token` or `credential` in its properties, and the rights in the catalog",
            )
        case exceptions.BadRequestError():
            return InvalidValue(f"{title}: its catalog refuses the request: {_first_line(error)}")
        case exceptions.RESTError():
            return Transient(f"{title}: its catalog does not answer: {_first_line(error)}")
        case exceptions.NotInstalledError():
            return PackageError(reason, hint="install what PyIceberg needs for this catalog or storage")
        case PermissionError():
            return InvalidValue(reason, hint="grant the worker the right to read")
        case exceptions.ValidationError() | pa.ArrowInvalid() | ValueError() | KeyError():
            return InvalidValue(f"{title}: it cannot be read: {_first_line(error)}", hint=EXAMINE)
        case NotImplementedError() | EOFError():
            return InvalidValue(f"{title}: it cannot be read: {_first_line(error)}", hint=EXAMINE)
        case OSError():
            return Transient(reason, hint="see that its storage and its catalog can be reached")
    return None


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
