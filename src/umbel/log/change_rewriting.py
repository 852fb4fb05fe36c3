"""Rewriting of change logs without some rows, and without their former versions.

Files are replaced by one commit of the table, with the number of rows that are gone: a reader's due counts them as there. After
it, a checkpoint takes the place of the table's history, whose statistics may show values, and files that no version names are
deleted. Nobody else may write the log meanwhile; it may be interrupted at any point and repeated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import polars as pl

from umbel.errors import Damaged
from umbel.log.change_files import ChangeLogFile, added_as_json, unfinished
from umbel.log.changes import ERASED, ChangeLog
from umbel.state import disk
from umbel.state.failpoints import reach

if TYPE_CHECKING:
    from deltalake import DeltaTable

Mask = Callable[[pl.DataFrame], pl.Series]
"""Returns which rows are to go."""


def rewrite_without(log: ChangeLog, columns: Sequence[str], mask: Mask) -> int:
    """Rewrite a change log without some rows; return how many are gone.

    Args:
        log: the log; its tail is empty.
        columns: the columns that `mask` reads.
        mask: returns which rows are to go.

    Raises:
        Damaged: a file is missing, or differs from its checksum.
    """
    table = log.table()
    if table is None:
        return 0
    removed, added, rows = list[str](), list[ChangeLogFile](), 0
    for name in pl.DataFrame(table.get_add_actions(flatten=True))["path"]:
        (path,) = log.files([unquote(name)])
        hits = mask(log.stored(path, columns))
        if hits.any():
            left = log.stored(path).filter(~hits)
            rows += int(hits.sum())
            removed.append(name)
            added += log.write_stored(left, "rewritten") if left.height else []
    if removed:
        reach("rewritten")
        replace_files(log, table, removed, added, rows)
        reach("committed")
    return rows


def matching(log: ChangeLog, columns: Sequence[str], mask: Mask) -> pl.DataFrame:
    """Return the distinct values of columns in the rows that a mask hits.

    Args:
        log: the log; its tail is empty.
        columns: the columns, among them those that `mask` reads.
        mask: returns which rows are meant.
    """
    table = log.table()
    names = [] if table is None else pl.DataFrame(table.get_add_actions(flatten=True))["path"].to_list()
    found = []
    for path in log.files([unquote(each) for each in names]):
        rows = log.stored(path, columns)
        found.append(rows.filter(mask(rows)).unique())
    return pl.concat([log.empty(columns), *found]).unique()


def forget_history(log: ChangeLog) -> None:
    """Delete the commits of a table's earlier versions, and all unreferenced files.

    Raises:
        Damaged: the table cannot be opened.
    """
    table = log.table()
    if table is None:
        return
    folder, version = log.path / "_delta_log", table.version()
    table.create_checkpoint()
    for path in (folder / f"{version:020d}.checkpoint.parquet", folder / "_last_checkpoint"):
        disk.sync_file(path)
    disk.sync_directory(folder)
    reach("checkpoint")
    for path in folder.iterdir():
        number = path.name.partition(".")[0]
        # The newest commit stays: its successor is found by it.
        if number.isdigit() and (int(number) < version or (int(number) == version and path.suffix == ".tmp")):
            disk.remove(path)
    named = {unquote(each) for each in pl.DataFrame(table.get_add_actions(flatten=True))["path"]}
    for path in log.path.glob("_at_month=*/*.parquet"):
        if path.relative_to(log.path).as_posix() not in named:
            disk.remove(path)
            reach("file removed")
    for path in unfinished(log.path):
        disk.remove(path)
    disk.sync_directory(log.path)


def replace_files(
    log: ChangeLog,
    table: DeltaTable,
    removed: Sequence[str],
    added: Sequence[ChangeLogFile],
    rows: int,
    numbers: Mapping[str, int] | None = None,
) -> None:
    """Commit the replacement of files, as the next version of a table.

    Args:
        log: the log.
        table: its table.
        removed: the names of the files that go, as the table spells them.
        added: the files that come.
        rows: the number of rows that are gone.
        numbers: of further application transactions, by name.

    Raises:
        FileExistsError: another process has committed since the table was opened.
        Damaged: another process has removed the files, or added others.
    """
    now, version = time.time_ns() // 1_000_000, table.version() + 1
    erased = max(0, table.transaction_version(ERASED) or 0) + rows
    actions: list[Mapping[str, object]] = [
        {"commitInfo": {"timestamp": now, "operation": "DELETE", "operationParameters": {}}},
        *(
            {"txn": {"appId": name, "version": number, "lastUpdated": now}}
            for name, number in {ERASED: erased, **(numbers or {})}.items()
        ),
        *({"remove": {"path": name, "deletionTimestamp": now, "dataChange": True}} for name in removed),
        *({"add": added_as_json(part)} for part in added),
    ]
    path = log.path / "_delta_log" / f"{version:020d}.json"
    _put_new(path, "\n".join(json.dumps(each, separators=(",", ":")) for each in actions).encode() + b"\n")
    found = log.table()
    left = set() if found is None else set(pl.DataFrame(found.get_add_actions(flatten=True))["path"])
    if left & set(removed) or not {part.path for part in added} <= {unquote(each) for each in left}:
        raise Damaged(f"the change log {log.path.name} was written by another process while it was rewritten")


def _put_new(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.new")
    disk.write_new(draft, data)
    try:
        disk.link(draft, path)
    finally:
        disk.remove(draft)
    disk.sync_directory(path.parent)
