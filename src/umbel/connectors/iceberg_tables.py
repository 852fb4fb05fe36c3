"""Iceberg tables: where they are, their snapshots, and their data files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from umbel.connectors.iceberg_deletes import (
    NO_DELETES,
    AppliedDeletes,
    DeletedValues,
    comparable,
    fields_of,
    planned,
)
from umbel.connectors.versioned_source import KIND, moved_removed
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError, unwrapped
from umbel.types.arrow import check_texts

EXAMINE = "see what wrote it"
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A data file of a table.

    Args:
        table: that it is of, in pyiceberg.
        entry: its description there, with the files of positions deleted from it.
        deletions: the files of values deleted from it.
        kind: insert for a file whose rows came, delete for one whose rows went, change for one that has other deletions.
        former: the file with the deletions before the change.
    """

    table: Any
    entry: Any
    deletions: AppliedDeletes = NO_DELETES
    kind: str = "insert"
    former: IcebergFile | None = None

    @property
    def name(self) -> str:
        """Its address."""
        return str(self.entry.file.file_path)

    @property
    def positions(self) -> frozenset[str]:
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
                raise InvalidValue(
                    f"{self.title}: there is no Iceberg table: {_first_line(error)}", hint="create it first"
                ) from None

    def files(self, table: Any, number: int) -> list[IcebergFile]:
        """Return the data files of a snapshot, ordered.

        Raises:
            FileNotFoundError: a file that lists them was deleted.
            InvalidValue: rows were deleted in a way that cannot be read.
        """
        return self._planned(table, number, DeletedValues(self.title, table))

    def _planned(self, table: Any, number: int, values: DeletedValues) -> list[IcebergFile]:
        """Return the data files of a snapshot, ordered, with their deletions."""
        with self.described():
            found = planned(table, table.snapshot_by_id(number), values)
        return sorted((IcebergFile(table, *each) for each in found), key=lambda file: file.name)

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
                        found.append(IcebergFile(table, FileScanTask(entry.data_file), kind=kinds[entry.status]))
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
        values, known = DeletedValues(self.title, table), dict[tuple[int, int], tuple[AppliedDeletes, AppliedDeletes]]()
        before = {each.name: each for each in self._planned(table, parent, values)} if parent is not None else {}
        after = {each.name: each for each in self._planned(table, snapshot.snapshot_id, values)}
        found = [replace(each, kind="delete") for name, each in before.items() if name not in after]
        for name, each in after.items():
            former = before.get(name)
            if former is None:
                found.append(each)
                continue
            pair = former.deletions, each.deletions
            if pair[0] is not pair[1] and (id(pair[0]), id(pair[1])) not in known:
                known[id(pair[0]), id(pair[1])] = pair[1].without(pair[0]), pair[0].without(pair[1])
            others = known.get((id(pair[0]), id(pair[1])), ())
            if each.positions != former.positions or any(other.narrowed(each.entry.file).files for other in others):
                found.append(replace(each, kind="change", former=former))
        return found

    def rows(self, file: IcebergFile, types: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file in order, with their kind.

        Of a file that has other deletes than before, these are the rows that went and came.

        Args:
            file: of the table.
            types: the columns to read, each with the number of its field.

        Raises:
            FileNotFoundError: it was deleted.
        """
        with self.described():
            if file.former is None:
                kind = pl.lit(file.kind).alias(KIND)
                yield from (rows.with_columns(kind) for rows in self._present(file, types))
            elif file.former.positions == file.positions:
                yield from self._differing_values(file, file.former, types)
            else:
                sides = [
                    rows.with_columns(pl.lit(kind).alias(KIND))
                    for each, kind in ((file.former, "delete"), (file, "insert"))
                    for rows in self._present(each, types)
                ]
                yield from [moved_removed(pl.concat(sides))] if sides else []

    def _present(self, file: IcebergFile, types: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file that are not deleted."""
        deletions = file.deletions.narrowed(file.entry.file)
        read = self._read(file, types, deletions.ids)
        if not deletions.files:
            yield from (rows for rows, _ in read)
        elif frames := list(read):
            rows, keys = (pl.concat(each) for each in zip(*frames, strict=True))
            yield from rows.filter(~deletions.matching(keys)).iter_slices(_ROWS_AT_ONCE)

    def _differing_values(
        self, file: IcebergFile, former: IcebergFile, types: Mapping[str, Any]
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file that other values delete than before."""
        now, before = (each.deletions.narrowed(each.entry.file) for each in (file, former))
        if not (frames := list(self._read(file, types, now.ids | before.ids))):
            return
        rows, keys = (pl.concat(each) for each in zip(*frames, strict=True))
        touched = now.without(before).matching(keys) | before.without(now).matching(keys)
        rows, keys = rows.filter(touched), keys.filter(touched)
        was_gone, is_gone = before.matching(keys), now.matching(keys)
        yield rows.filter(is_gone & ~was_gone).with_columns(pl.lit("delete").alias(KIND))
        yield rows.filter(was_gone & ~is_gone).with_columns(pl.lit("insert").alias(KIND))

    def _read(
        self, file: IcebergFile, types: Mapping[str, Any], compared: Collection[int]
    ) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Yield the rows of a file without deleted positions, and their compared columns."""
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.schema import Schema

        table, fields = file.table, fields_of(file.table)
        chosen = [kind["id"] for kind in types.values()]
        numbers = [*chosen, *sorted(set(compared) - set(chosen))]
        # of older schemas there may be fields of the same name, and required ones that the file has not
        changes = [{} if each in chosen else {"name": f"\0{each}", "required": False} for each in numbers]
        schema = Schema(*(fields[each].model_copy(update=more) for each, more in zip(numbers, changes, strict=True)))
        for batch in ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches([file.entry]):
            made = pa.Table.from_batches([batch.select(range(len(chosen)))])
            check_texts(made, f"{self.title}, file {file.name}")
            read = pl.DataFrame(pl.from_arrow(made))
            keys = [comparable(each, batch.column(numbers.index(each))) for each in sorted(compared)]
            yield read.rename(dict(zip(read.columns, types, strict=True))), pl.DataFrame(keys)

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
    match error:
        case exceptions.NoSuchTableError() | exceptions.NoSuchNamespaceError():
            return InvalidValue(reason, hint="create it first")
        case SQLAlchemyError():
            original = _first_line(unwrapped(error))
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
        case OSError() if "timed out" in reason:
            return Transient(
                f"{title}: its catalog or its storage does not answer in time: {_first_line(error)}",
                hint="see that they work; `rest.client.socket-timeout-ms` in its properties gives a REST catalog more time",
            )
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


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
