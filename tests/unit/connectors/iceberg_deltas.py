"""Snapshots of Iceberg tables with delete files, as Flink commits them, by PyIceberg's writers of manifests."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

PATH, POSITION = 2147483546, 2147483545


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@dataclass
class Delta:
    """What one snapshot adds and removes.

    Args:
        table: of pyiceberg.
        spec: the number of the partition spec of its files.
        partition: the values of their partition.
    """

    table: Any
    spec: int = 0
    partition: Sequence[Any] = ()
    added: list[tuple[int, Any]] = field(default_factory=list)
    removed: list[Any] = field(default_factory=list)

    def data(self, rows: Any) -> str:
        """Add a data file; return its address."""
        return self._add(DataFileContent.DATA, self.table.schema(), rows)

    def equality(self, rows: Any, ids: Sequence[int], **attributes: Any) -> str:
        """Add a file of deleted values, of the columns that have some numbers; return its address."""
        schema = Schema(*(self.table.schema().find_field(each) for each in ids))
        attributes = {"equality_ids": list(ids), **attributes}
        return self._add(DataFileContent.EQUALITY_DELETES, schema, rows, **attributes)

    def positions(self, places: Iterable[tuple[str, int]]) -> str:
        """Add a file of deleted positions; return its address."""
        paths, numbers = zip(*sorted(places), strict=True)
        fields = [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH)}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION)}),
        ]
        rows = pa.table([pa.array(paths), pa.array(numbers, pa.int64())], schema=pa.schema(fields))
        bounds = {"lower_bounds": {PATH: min(paths).encode()}, "upper_bounds": {PATH: max(paths).encode()}}
        return self.written(DataFileContent.POSITION_DELETES, rows, **bounds)

    def _add(self, content: DataFileContent, schema: Schema, rows: Any, **attributes: Any) -> str:
        names = [each.name for each in schema.fields]
        rows = rows.select(names).cast(schema_to_pyarrow(schema))
        return self.written(content, rows, schema, **attributes)

    def written(self, content: DataFileContent, rows: Any, schema: Schema | None = None, **attributes: Any) -> str:
        """Write a file, and add it; return its address."""
        path = f"{self.table.location()}/data/{uuid.uuid4()}.parquet"
        at = Path(path.removeprefix("file://"))
        at.parent.mkdir(exist_ok=True, parents=True)
        pq.write_table(rows, at)
        statistics = {} if schema is None else _statistics(at, schema)
        described: Mapping[str, Any] = {
            "content": content,
            "file_path": path,
            "file_format": FileFormat.PARQUET,
            "partition": Record(*self.partition),
            "record_count": rows.num_rows,
            "file_size_in_bytes": at.stat().st_size,
            **statistics,
            **attributes,
        }
        self.added.append((self.spec, DataFile.from_args(**described)))
        return path

    def commit(self, operation: Operation = Operation.OVERWRITE, sequence: int | None = None) -> int:
        """Commit the snapshot; return its number.

        Args:
            operation: what it says that it does.
            sequence: of the added files, if not that of the snapshot.
        """
        table, number = self.table.refresh(), random.getrandbits(62)
        parent = table.current_snapshot()
        manifests = list(parent.manifests(table.io)) if parent else []
        listed = [self._without(each, number) for each in manifests]
        for spec, is_data in sorted({(spec, file.content == DataFileContent.DATA) for spec, file in self.added}):
            files = [file for key, file in self.added if (key, file.content == DataFileContent.DATA) == (spec, is_data)]
            listed.append(self._manifest(spec, is_data, number, [_added(number, file, sequence) for file in files]))
        path = f"{table.location()}/metadata/snap-{uuid.uuid4()}.avro"
        next_sequence, output = table.metadata.next_sequence_number(), table.io.new_output(path)
        before = parent.snapshot_id if parent else None
        with write_manifest_list(2, output, number, before, next_sequence, "deflate") as writer:
            writer.add_manifests([each for each in listed if each is not None])
        snapshot = Snapshot(
            snapshot_id=number,
            parent_snapshot_id=before,
            sequence_number=next_sequence,
            manifest_list=path,
            summary=Summary(operation),
            schema_id=table.schema().schema_id,
        )
        updates = (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=number),
        )
        table.catalog.commit_table(table, (AssertRefSnapshotId(ref="main", snapshot_id=before),), updates)
        return number

    def _manifest(self, spec: int, is_data: bool, number: int, entries: Sequence[ManifestEntry]) -> Any:
        table = self.table
        output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}-m.avro")
        kind = ManifestWriterV2 if is_data else _DeleteManifest
        with kind(table.specs()[spec], table.schema(), output, number, "deflate") as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _without(self, manifest: Any, number: int) -> Any:
        """Return a manifest without the files that are removed; the same one if it has none of them, None if it is empty."""
        entries = manifest.fetch_manifest_entry(self.table.io)
        if not any(each.data_file.file_path in self.removed for each in entries):
            return manifest
        for each in entries:
            is_removed = each.data_file.file_path in self.removed
            each.status = ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING
            each.snapshot_id = number if is_removed else each.snapshot_id
        is_data = manifest.content == ManifestContent.DATA
        return self._manifest(manifest.partition_spec_id, is_data, number, entries)


def _statistics(path: Path, schema: Schema) -> dict[str, Any]:
    plan, names = compute_statistics_plan(schema, {}), parquet_path_to_id_mapping(schema)
    return data_file_statistics_from_parquet_metadata(pq.read_metadata(path), plan, names).to_serialized_dict()


def _added(number: int, file: DataFile, sequence: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=number, sequence_number=sequence, data_file=file
    )


def naive_rows(table: Any) -> list[dict[int, Any]]:
    """Return the rows of a table by the numbers of fields: each is compared with each deletion, as the specification says."""
    entries = [
        entry
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    plain = {number for number, spec in table.specs().items() if not spec.fields}
    deletes = [each for each in entries if each.data_file.content != DataFileContent.DATA]
    return [
        row
        for entry in entries
        if entry.data_file.content == DataFileContent.DATA
        for position, row in enumerate(_rows(entry.data_file))
        if not any(_is_deleted(entry, position, row, each, plain) for each in deletes)
    ]


def _is_deleted(entry: Any, position: int, row: Mapping[int, Any], delete: Any, plain: set[int]) -> bool:
    file, other = entry.data_file, delete.data_file
    is_near = (file.spec_id, list(file.partition._data)) == (other.spec_id, list(other.partition._data))
    if other.content == DataFileContent.POSITION_DELETES:
        places = [(each[PATH], each[POSITION]) for each in _rows(other)]
        return is_near and entry.sequence_number <= delete.sequence_number and (file.file_path, position) in places
    if entry.sequence_number >= delete.sequence_number or not (is_near or other.spec_id in plain):
        return False
    return any(all(row.get(each) == values[each] for each in other.equality_ids) for values in _rows(other))


def _rows(file: Any) -> list[dict[int, Any]]:
    return _rows_at(file.file_path.removeprefix("file://"))


@cache
def _rows_at(path: str) -> list[dict[int, Any]]:
    rows = pq.read_table(path)
    numbers = [int(each.metadata[b"PARQUET:field_id"]) for each in rows.schema]
    return [dict(zip(numbers, row.values(), strict=True)) for row in rows.to_pylist()]
