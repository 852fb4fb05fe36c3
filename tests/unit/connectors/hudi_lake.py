"""Hudi tables of type `COPY_ON_WRITE`, written as Hudi's specification of version 6 has them: no Python package writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from umbel.connectors import Files

START = datetime.now(UTC).replace(microsecond=0) - timedelta(days=10)
FIELDS = {"id": "long", "note": "string", "updated_at": {"type": "long", "logicalType": "timestamp-micros"}}
PROPERTIES = {
    "name": "orders",
    "type": "COPY_ON_WRITE",
    "version": "6",
    "base.file.format": "PARQUET",
    "recordkey.fields": "id",
    "keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
}
Rows = dict[int, str]


class Lake:
    """A table whose file groups have rows, by their names."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder, self.path = folder, folder / "orders"
        (self.path / ".hoodie").mkdir(parents=True)
        lines = [f"hoodie.table.{name}={value}" for name, value in {**PROPERTIES, **properties}.items()]
        lines.append("hoodie.timeline.layout.version=1")
        (self.path / ".hoodie" / "hoodie.properties").write_text("\n".join(lines) + "\n")
        self.groups: dict[str, Rows] = {}
        self.last: dict[str, str] = {}
        self._instants = count(1)
        self.fields = dict(FIELDS)
        self.times: dict[int, datetime] = {}
        """The timestamps of rows that have others than their number says."""

    def table(self, name: str, _: Any = None) -> Any:
        return Files(name="lake", folder=str(self.folder)).path(name, format="hudi")

    def commit(self, groups: dict[str, Rows], instant: str | None = None, action: str = "commit") -> str:
        """Replace the rows of some file groups."""
        at = instant or (START + timedelta(seconds=next(self._instants))).strftime("%Y%m%d%H%M%S") + "000"
        stats = [self._written(group, rows, at) for group, rows in groups.items()]
        self.groups |= groups
        schema = {
            "type": "record",
            "name": "orders",
            "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in self.fields.items()],
        }
        content = {
            "partitionToWriteStats": {"": stats},
            "compacted": False,
            "operationType": "UPSERT",
            "extraMetadata": {"schema": json.dumps(schema)},
        }
        for name in (f"{at}.{action}.requested", f"{at}.inflight"):
            (self.path / ".hoodie" / name).write_text("")
        complete = self.path / ".hoodie" / f"{at}.{action}"
        written = complete.with_name(f".{complete.name}")  # a commit is there whole, or not at all
        written.write_text(json.dumps(content))
        written.rename(complete)
        return at

    def _written(self, group: str, rows: Rows, at: str) -> dict[str, Any]:
        name = f"{group}_0-1-2_{at}.parquet"
        ids = list(rows)
        special = {
            "commit_time": [at] * len(ids),
            "commit_seqno": [f"{at}_0_{i}" for i in ids],
            "record_key": [str(i) for i in ids],
            "partition_path": [""] * len(ids),
            "file_name": [name] * len(ids),
        }
        columns = {f"_hoodie_{key}": pa.array(values, pa.string()) for key, values in special.items()}
        times = pa.array([self._time(i) for i in ids], pa.timestamp("us", "UTC"))
        own = {"id": pa.array(ids, pa.int64()), "note": pa.array(list(rows.values()), pa.string()), "updated_at": times}
        pq.write_table(pa.table({**columns, **{key: own[key] for key in self.fields}}), self.path / name)
        size = (self.path / name).stat().st_size
        before = self.last.get(group, "null")
        self.last[group] = at
        return {
            "fileId": group,
            "path": name,
            "prevCommit": before,
            "numWrites": len(ids),
            "numDeletes": 0,
            "numUpdateWrites": 0,
            "numInserts": len(ids),
            "totalWriteBytes": size,
            "totalWriteErrors": 0,
            "partitionPath": "",
            "fileSizeInBytes": size,
        }

    def rows(self) -> list[tuple[Any, ...]]:
        found = ((i, note) for rows in self.groups.values() for i, note in rows.items())
        return sorted((i, note, self._time(i)) for i, note in found)

    def _time(self, row: int) -> datetime:
        return self.times.get(row, START + timedelta(seconds=row))


A, B = "aaaaaaaa-1111-1111-1111-111111111111-0", "bbbbbbbb-1111-1111-1111-111111111111-0"


def numbered(ids: Sequence[int], note: str = "new") -> Rows:
    return dict.fromkeys(ids, note)
