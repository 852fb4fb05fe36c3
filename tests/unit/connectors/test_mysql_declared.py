"""Sources of MySQL without a server: what is refused, and what is shown of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from umbel.connectors import MySQL
from umbel.connectors.mysql.cursor import MySQLCursor
from umbel.connectors.mysql.replication import BinlogSource
from umbel.connectors.sql.rows import TableSource
from umbel.definitions.arguments import ReadOptions
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, PackageError


def shop(**options: Any) -> MySQL:
    return MySQL(**{"name": "shop", "host": "h", "db_name": "d", "username": "u", "password": "s3cret", **options})


def options(folder: Path, **changed: Any) -> ReadOptions:
    described = {"directory": folder, "key": "D@1/0#x", "dataset": "D", "cdc": "upsert", "every": 1, "disorder": 1}
    return ReadOptions(**{**described, "columns": None, "keys": ("id",), "is_keyed": True, **changed})


def reader(folder: Path, cursor: str | None = "c", **changed: Any) -> TableSource:
    found = shop(**changed).table("t", cursor).reader_of(options(folder, cdc="upsert" if cursor else "native"))
    assert isinstance(found, TableSource)
    return found


def test_a_cursor_is_polled_and_changes_are_followed(tmp_path: Path) -> None:
    assert isinstance(reader(tmp_path), MySQLCursor)
    assert isinstance(reader(tmp_path, None), BinlogSource)


def test_a_missing_driver_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(PackageError, match=r"(?s)PyMySQL.*pip install 'umbel\[mysql\]'"):
        reader(tmp_path)


def test_unknown_parameters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="unknown parameter 'ssl_c'; did you mean 'ssl_ca'"):
        reader(tmp_path, jdbc_params="ssl_c=x")
    reader(tmp_path, jdbc_params="ssl_ca=x&connect_timeout=3")


def test_arns_of_no_secret_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no ARN of a secret in AWS"):
        reader(tmp_path, password=Secret(arn="arn:aws:secretsmanager:x"))


def test_the_password_is_not_shown(tmp_path: Path) -> None:
    made = reader(tmp_path)
    assert "s3cret" not in f"{made} {made!r} {made.server} {shop()} {shop().table('t', 'c')!r}"
