"""Sources of Postgres without a server: what is refused, and what is shown of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from umbel.connectors import Postgres
from umbel.connectors.postgres.cursor import PostgresCursor
from umbel.connectors.postgres.replication import ReplicatedSource
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.rows import TableSource
from umbel.connectors.staging import Stage
from umbel.definitions.arguments import ReadOptions
from umbel.definitions.secret import Secret
from umbel.errors import Damaged, InvalidValue, PackageError
from umbel.types.dtypes import Int, Optional, Str


def shop(**options: Any) -> Postgres:
    return Postgres(**{"name": "shop", "host": "h", "db_name": "d", "username": "u", "password": "s3cret", **options})


def options(folder: Path, **changed: Any) -> ReadOptions:
    described = {"directory": folder, "key": "D@1/0#x", "dataset": "D", "cdc": "upsert", "every": 1, "disorder": 1}
    return ReadOptions(**{**described, "columns": None, "keys": ("id",), "is_keyed": True, **changed})


def reader(folder: Path, cursor: str | None = "c", **changed: Any) -> TableSource:
    found = shop(**changed).table("t", cursor).reader_of(options(folder, cdc="upsert" if cursor else "native"))
    assert isinstance(found, TableSource)
    return found


def test_a_cursor_is_polled_and_changes_are_replicated(tmp_path: Path) -> None:
    assert isinstance(reader(tmp_path), PostgresCursor)
    assert isinstance(reader(tmp_path, None), ReplicatedSource)


def test_a_missing_driver_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(PackageError, match=r"(?s)psycopg.*pip install 'umbel\[postgres\]'"):
        reader(tmp_path)


def test_unknown_parameters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="unknown parameter 'sslmod'; did you mean 'sslmode'"):
        reader(tmp_path, jdbc_params="sslmod=require")
    reader(tmp_path, jdbc_params="sslmode=require&connect_timeout=3")


def test_arns_of_no_secret_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no ARN of a secret in AWS"):
        reader(tmp_path, password=Secret(arn="arn:aws:secretsmanager:x"))


def test_the_password_is_not_shown(tmp_path: Path) -> None:
    made = reader(tmp_path)
    assert "s3cret" not in f"{made} {made!r} {made.server} {shop()} {shop().table('t', 'c')!r}"


def test_a_position_whose_rows_are_gone_is_reported(tmp_path: Path) -> None:
    made = reader(tmp_path)
    made.check(None)
    stage = Stage(made.folder)
    for _ in range(3):
        stage.append(pl.DataFrame({"a": ["x"]}), {"columns": []})
    for read in (1, 2, 3):
        made.check({"part": read})
    with pytest.raises(Damaged, match="after part 4 are missing"):
        made.check({"part": 4})
    (made.folder / "000000000002.rows").unlink()
    with pytest.raises(Damaged, match="after part 1 are missing"):
        made.check({"part": 1})


def test_plans_have_parts_up_to_a_budget(tmp_path: Path) -> None:
    made = reader(tmp_path)
    assert made.is_loading
    assert made.plan(None, 100) == ([], {"part": 0})
    for _ in range(3):
        made.stage.append(pl.DataFrame({"a": ["x"]}), {"columns": []})
    found, position = made.plan(None, 1)
    assert ([split for split, _ in found], position) == ([{"part": 1}], {"part": 1})
    found, position = made.plan(position, 1 << 20)
    assert ([split for split, _ in found], position) == ([{"part": 2}, {"part": 3}], {"part": 3})


def test_a_column_that_is_not_there_any_more_is_null_where_a_field_may_be(tmp_path: Path) -> None:
    made = reader(tmp_path)
    text = Column("id", "text", is_array=False, type="text")
    made.stage.append(pl.DataFrame({"id": ["a", "b"]}), {"columns": [text.plain]})
    requested = {"id": Str(), "v": Optional(Int()), "w": Str()}
    (batch,) = made.open({"part": 1}, requested, exact=True)
    assert batch.raw.frame.to_dict(as_series=False) == {"id": ["a", "b"], "v": [None, None]}
