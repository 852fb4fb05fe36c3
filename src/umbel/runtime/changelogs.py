"""The change logs: everything that ever happened to a dataset, as open tables.

Each log is a Delta table `(columns…, _at, _weight, _seq, _batch)` that anything which reads Delta can read. Large batches are
written to it by the tasks that made them, as Parquet parts which the driver commits; small ones go to a tail of Arrow files,
one per batch, which is moved into the table now and then. Both are idempotent per batch: a part's name and the Delta
transaction say which batch it is, and readers pass over tail files the table already has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from umbel.plan.graph import Node
from umbel.state.port import Stamp

BATCH = "_batch"
PARTS, TAIL = "umbel-parts", "umbel-tail"
FLUSH_BYTES = 8 << 20
FLUSH_FILES = 200


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file of one batch, not yet part of its table.

    Args:
        log: the name of the log.
        path: relative to the log's folder.
        size: in bytes.
        rows: how many changes.
    """

    log: str
    path: str
    size: int
    rows: int


class ChangeLogs:
    """The change logs of a deployment.

    Args:
        folder: where they are kept, a folder each.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write_part(self, node: Node, stamp: Stamp, name: str, frames: Sequence[pl.DataFrame]) -> Part:
        """Write changes beside the table. The same batch and name write the same file."""
        folder = self._folder / node.log
        folder.mkdir(parents=True, exist_ok=True)
        path = f"batch-{stamp.batch:012d}-{stamp.step}-{name}-{node.number}.parquet"
        changes = _stamped(pl.concat(frames), stamp.batch)
        fresh = folder / f".{path}.{os.getpid()}"
        changes.write_parquet(fresh, compression="zstd", compression_level=1, statistics=True)
        _settle(fresh, folder / path)
        return Part(node.log, path, (folder / path).stat().st_size, changes.height)

    def commit(self, batch: int, parts: Iterable[Part], nodes: Mapping[str, Node]) -> None:
        """Make the parts of a batch part of their tables.

        Args:
            batch: its number.
            parts: all of them.
            nodes: the node behind each log, by its name.
        """
        by_log: dict[str, list[Part]] = {}
        for part in parts:
            by_log.setdefault(part.log, []).append(part)
        for log, own in by_log.items():
            self._commit(nodes[log], batch, own)

    def keep(self, node: Node, batch: int, frames: Sequence[pl.DataFrame]) -> None:
        """Put the changes of a small batch into the tail."""
        folder = self._folder / node.log / "_tail"
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f".{batch:012d}"
        with fresh.open("wb") as file:
            _stamped(pl.concat(frames), batch).write_ipc(file, compression="lz4")
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(folder / f"{batch:012d}.arrow")

    def flush(self, node: Node, *, everything: bool = False) -> None:
        """Move the tail into the table once it is worth it."""
        files = self._tail(node)
        if not files or not (everything or len(files) >= FLUSH_FILES or _bytes(files) >= FLUSH_BYTES):
            return
        table = self._table(node)
        done = _version(table, TAIL)
        fresh = [path for path in files if int(path.stem) > done]
        if fresh:
            self._append(node, pl.concat(pl.read_ipc(path) for path in fresh), int(fresh[-1].stem))
        for path in files:
            path.unlink(missing_ok=True)

    def read(self, node: Node, predicate: pl.Expr | None = None, *, until: int | None = None) -> pl.DataFrame:
        """Return the changes of a log: its table and its tail.

        Args:
            node: whose log.
            predicate: which of them; pushed down to the files.
            until: only batches up to this one.
        """
        from deltalake import DeltaTable

        schema = {**node.operator.schema.changes(), BATCH: pl.Int64()}
        tail = self._tail(node)
        frames = [pl.LazyFrame(schema=schema)]
        done = -1
        if DeltaTable.is_deltatable(str(self._folder / node.log)):
            table = DeltaTable(self._folder / node.log)
            done = _version(table, TAIL)
            frames.append(pl.scan_parquet(table.file_uris(), schema=schema) if table.file_uris() else frames[0])
        frames += [pl.scan_ipc(path) for path in tail if int(path.stem) > done]
        found = pl.concat(frames)
        if until is not None:
            found = found.filter(pl.col(BATCH) <= until)
        if predicate is not None:
            found = found.filter(predicate)
        return found.drop(BATCH).collect()

    def _tail(self, node: Node) -> list[Path]:
        return sorted((self._folder / node.log / "_tail").glob("[0-9]*.arrow"))

    def _table(self, node: Node) -> Any:
        from deltalake import DeltaTable

        path = self._folder / node.log
        path.mkdir(parents=True, exist_ok=True)
        if not DeltaTable.is_deltatable(str(path)):
            empty = _stamped(node.operator.schema.empty(), 0)
            DeltaTable.create(str(path), schema=empty.to_arrow().schema, mode="ignore", name=node.dataset or node.owner)
        return DeltaTable(str(path))

    def _commit(self, node: Node, batch: int, parts: Sequence[Part]) -> None:
        from deltalake.transaction import AddAction

        table = self._table(node)
        if _version(table, PARTS) >= batch:
            return
        actions = [
            AddAction(
                path=part.path,
                size=part.size,
                partition_values={},
                modification_time=0,
                data_change=True,
                stats=json.dumps({"numRecords": part.rows}),
            )
            for part in parts
        ]
        table.create_write_transaction(actions, "append", table.schema(), [], commit_properties=_once(PARTS, batch))

    def _append(self, node: Node, changes: pl.DataFrame, batch: int) -> None:
        from deltalake import write_deltalake

        write_deltalake(
            str(self._folder / node.log), changes.to_arrow(), mode="append", commit_properties=_once(TAIL, batch)
        )


def _stamped(changes: pl.DataFrame, batch: int) -> pl.DataFrame:
    return changes.with_columns(pl.lit(batch, pl.Int64).alias(BATCH))


def _once(application: str, batch: int) -> Any:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(application, batch)])


def _version(table: Any, application: str) -> int:
    found = table.transaction_version(application)
    return -1 if found is None else int(found)


def _bytes(files: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _settle(fresh: Path, path: Path) -> None:
    """Make a file durable under its final name."""
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.rename(path)
