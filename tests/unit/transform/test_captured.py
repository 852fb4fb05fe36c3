"""A transformation in front of change capture: deletions and truncations pass it, the keys of deletions transformed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from umbel.connectors import Postgres, source
from umbel.datasets import dataset, field
from umbel.definitions.preproc import ReferenceColumn
from umbel.ingestion.rows import prepare
from umbel.transform.configuration import loads
from umbel.types.raw import Raw, rejects

__owner__ = "test@umbel.dev"

FIRST, LATER = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
CONFIG = """passthrough: true
---
source_field: name
target_field: id
transformations: [{name: trim}, {name: lower, on_error: drop}]
---
source_field: country
target_field: country
transformations: [{name: filter}, {name: custom_code, code: return source_field.upper()}]
"""


def prepared(*rows: dict[str, Any], is_keyed: bool = True, config: str = CONFIG, **changes: Any) -> tuple[Any, Any]:
    database = Postgres(name="pg", host="localhost", db_name="shop", username="u", password="p")

    @source(database.table("users"), disorder="1d", cdc="native", transform=loads(config))
    @dataset(index=is_keyed)
    class User:
        user: str = field(key=is_keyed)
        country: str
        at: datetime

    names = ("name", "country", "at")
    frame = pl.DataFrame([{name: row.get(name) for name in names} for row in rows], strict=False)
    feed = replace(User._record.sources[0], preproc=(("user", ReferenceColumn(("id",))),))
    found = prepare(Raw(frame, rejects({}), **changes), feed, User._record)
    weights = found.frame["_weight"] if "_weight" in found.frame.columns else [1] * found.frame.height
    rows_found = zip(found.frame["user"], found.frame["country"], weights, found.accepted, strict=True)
    return list(rows_found), [(row, why) for row, _, why in found.rejects.iter_rows()]


ADA = {"name": " Ada ", "country": "uk", "at": FIRST}
BOB = {"name": "BOB", "country": "", "at": FIRST}


def test_a_deletion_of_which_the_key_alone_is_known_has_its_new_key() -> None:
    rows, letters = prepared(ADA, BOB, {"name": " Ada "}, {"name": "BOB"}, deletions={2: LATER, 3: LATER})
    assert rows == [("ada", "UK", 1, 0), ("ada", None, -1, 2), ("bob", None, -1, 3)]
    assert letters == []


def test_a_deletion_whose_key_cannot_be_made_is_a_dead_letter() -> None:
    config = CONFIG.replace("name: lower", "name: json_parse")
    ada = {**ADA, "name": '"ada"'}
    rows, letters = prepared(ada, {"name": "ada"}, {}, config=config, deletions={1: LATER, 2: LATER})
    assert rows == [("ada", "UK", 1, 0)]
    assert [row for row, _ in letters] == [1, 2]
    assert letters[0][1].startswith("transform: step json_parse of 'id'")
    assert letters[1][1] == "null in a key"


def test_a_deletion_of_a_row_without_key_is_made_as_the_row_was() -> None:
    rows, letters = prepared(ADA, BOB, ADA, BOB, is_keyed=False, deletions={2: LATER, 3: LATER})
    assert rows == [("ada", "UK", 1, 0), ("ada", "UK", -1, 2)]
    assert letters == []


@pytest.mark.parametrize("config", [CONFIG, CONFIG.replace("passthrough: true\n---\n", "")])
def test_a_truncation_passes(config: str) -> None:
    config += "---\nsource_field: at\ntarget_field: at\n"
    rows, letters = prepared(ADA, {}, ADA, config=config, truncations={1: LATER})
    assert [each[3] for each in rows] == [0, 1, 2]
    assert letters == []


def test_starts_and_replacements_are_those_of_the_rows_that_are_left() -> None:
    starts = pl.Series([None, FIRST, FIRST], dtype=pl.Datetime("us", "UTC"))
    rows, letters = prepared(BOB, ADA, ADA, starts=starts, replaces=pl.Series([False, False, True]))
    assert [(user, number) for user, _, weight, number in rows] == [("ada", 1), ("ada", 2)]
    assert rows[0][2] != rows[1][2]
    assert letters == []


def test_an_update_that_a_filter_leaves_out_ends_the_row_before_it() -> None:
    starts = pl.Series([None, LATER, LATER], dtype=pl.Datetime("us", "UTC"))
    gone = {**ADA, "country": ""}
    rows, letters = prepared(ADA, gone, ADA, starts=starts)
    assert rows == [("ada", "UK", 1, 0), ("ada", "", -1, 1), ("ada", "UK", 1, 2)]
    dropped = CONFIG.replace("{name: filter}", "{name: parse_datetime, format: '%Y', on_error: drop}")
    rows, letters = prepared(gone, gone, starts=starts[:2], config=dropped)
    assert [(user, weight, row) for user, _, weight, row in rows] == [("ada", -1, 1)]
    assert letters == []
    rows, letters = prepared(gone, gone, starts=starts[:2], is_keyed=False)
    assert rows == letters == []


def test_bytes_of_a_row_are_base64() -> None:
    """A table with a column of bytes had a dead letter for each row, whatever the configuration reads."""
    database = Postgres(name="pg", host="localhost", db_name="shop", username="u", password="p")

    config = "passthrough: true\n---\nsource_field: at\ntarget_field: at\n"

    @source(database.table("files"), disorder="1d", cdc="native", transform=loads(config))
    @dataset(index=True)
    class File:
        digest: bytes = field(key=True)
        parts: list[bytes]
        at: datetime

    columns = {"digest": [b"\0\xff", b"\0\xff"], "parts": [[b"a", b"", None], None], "other": [b"x", None]}
    frame = pl.DataFrame({**columns, "at": [FIRST, None]})
    found = prepare(Raw(frame, rejects({}), deletions={1: LATER}), File._record.sources[0], File._record)
    assert [why for *_, why in found.rejects.iter_rows()] == ["[2]: null, and bytes is not Optional"]
    frame = frame.with_columns(pl.Series("parts", [[b"a", b""], None]))
    found = prepare(Raw(frame, rejects({}), deletions={1: LATER}), File._record.sources[0], File._record)
    assert found.frame.select("digest", "parts", "_weight").rows() == [
        (b"\0\xff", [b"a", b""], 1),
        (b"\0\xff", None, -1),
    ]
