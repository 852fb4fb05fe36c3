"""Values of a real MariaDB server, by each way of reading: exact, or rejected."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from functools import partial
from pathlib import Path
from typing import Optional

import pytest

from tests.connectors.mysql_shop import database, shop
from tests.connectors.shop_datasets import deployed, letters, rows_of, until
from tests.servers.mysql import MySQLServer
from umbel.connectors import source
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal, struct

__owner__ = "shop@example.com"
Server = MySQLServer


@pytest.fixture
def name(mysql_server: Server) -> Iterator[str]:
    return database(mysql_server)


@struct
class Size:
    width: int
    height: int


THINGS = (
    """CREATE TABLE things(
        at timestamp(6) NULL, tiny tinyint, tinyu tinyint unsigned, small smallint, smallu smallint unsigned, medium mediumint,
        mediumu mediumint unsigned, normal int, normalu int unsigned, big bigint,
        bigu bigint unsigned, made year, yes tinyint(1),
        exact decimal(12, 3), wide decimal(28, 10), single float, other float, `double` double, bits bit(12),
        flag bit(1),
        words text CHARACTER SET latin1, short varchar(10), fixed char(5), doc json,
        list json, size json, naive datetime, fine datetime(4),
        day date, clock time(2), raw varbinary(10), padded binary(4), large blob,
        feeling enum('sad', 'happy, ever'), tags set('a', 'b', 'c'),
        id uuid, address inet6, big5 varchar(300) CHARACTER SET utf16, nothing int, after_that int unsigned)""",
    """INSERT INTO things VALUES (
        '2024-02-29 12:34:56.789012', -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295,
        -9223372036854775808,
        9223372036854775807, 2024, true, -123456789.125, -123456789012345678.0123456789, 0.1, 16777217, 1e300,
        b'101010101010', b'1',
        'a,"b"\\n\\\\N\\u00e9 \u00e9', '', 'ab', '{"a": 1}', '[1, 2]', '{"width": 1, "height": 2}', '2024-01-01 00:00:00',
        '2024-01-01 00:00:00.0501', '2024-02-29', '-838:59:59.25', x'00ff', x'ff00', x'00', 'happy, ever', 'a,c',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '::ffff:1.2.3.4', '\u6f22\U0001f600', NULL, 4000000000)""",
    """INSERT INTO things(at, words) VALUES ('2024-03-01', 'all others are null')""",
)
THING = {
    "at": datetime(2024, 2, 29, 12, 34, 56, 789012, UTC),
    "tiny": -128,
    "tinyu": 255,
    "small": -32768,
    "smallu": 65535,
    "medium": -8388608,
    "mediumu": 16777215,
    "normal": -2147483648,
    "normalu": 4294967295,
    "big": -9223372036854775808,
    "bigu": 9223372036854775807,
    "made": 2024,
    "yes": True,
    "exact": Number("-123456789.125"),
    "wide": Number("-123456789012345678.0123456789"),
    "single": 0.1,
    "other": 16777216.0,
    "double": 1e300,
    "bits": 0b101010101010,
    "flag": True,
    "words": 'a,"b"\n\\Nu00e9 \u00e9',
    "short": "",
    "fixed": "ab",
    "doc": '{"a": 1}',
    "list": [1, 2],
    "size": {"width": 1, "height": 2},
    "naive": datetime(2024, 1, 1, tzinfo=UTC),
    "fine": datetime(2024, 1, 1, 0, 0, 0, 50100, UTC),
    "day": date(2024, 2, 29),
    "clock": "-838:59:59.25",
    "raw": b"\x00\xff",
    "padded": b"\xff\x00\x00\x00",
    "large": b"\x00",
    "feeling": "happy, ever",
    "tags": "a,c",
    "id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "address": "::ffff:1.2.3.4",
    "big5": "\u6f22\U0001f600",
    "nothing": None,
    "after_that": 4000000000,
}


@dataset
class Things:
    at: datetime
    tiny: Optional[int]
    tinyu: Optional[int]
    small: Optional[int]
    smallu: Optional[int]
    medium: Optional[int]
    mediumu: Optional[int]
    normal: Optional[int]
    normalu: Optional[int]
    big: Optional[int]
    bigu: Optional[int]
    made: Optional[int]
    yes: Optional[bool]
    exact: Optional[Decimal[3]]
    wide: Optional[Decimal[10]]
    single: Optional[float]
    other: Optional[float]
    double: Optional[float]
    bits: Optional[int]
    flag: Optional[bool]
    words: str
    short: Optional[str]
    fixed: Optional[str]
    doc: Optional[str]
    list: Optional[list[int]]
    size: Optional[Size]
    naive: Optional[datetime]
    fine: Optional[datetime]
    day: Optional[date]
    clock: Optional[str]
    raw: Optional[bytes]
    padded: Optional[bytes]
    large: Optional[bytes]
    feeling: Optional[str]
    tags: Optional[str]
    id: Optional[str]
    address: Optional[str]
    big5: Optional[str]
    nothing: Optional[int]
    after_that: Optional[int]


@pytest.mark.parametrize("way", ["by a cursor", "in the first copy", "as changes"])
def test_types_are_mapped_exactly(mysql_server: Server, name: str, tmp_path: Path, way: str) -> None:
    """By each way of reading."""
    mysql_server.run(THINGS[0], database=name)
    if way != "as changes":
        mysql_server.run(*THINGS[1:], database=name)
    mysql = shop(mysql_server, name)
    options = {"every": "1s", "cdc": "append"} if way == "by a cursor" else {"cdc": "native"}
    read = source(mysql.table("things", "at" if way == "by a cursor" else None), disorder="14d", **options)(Things)
    with deployed(tmp_path, read) as made:
        if way == "as changes":
            until(made, lambda: not any(each.is_loading for each in made.deployment._sources()[1]))
            mysql_server.run(*THINGS[1:], database=name)
        until(made, lambda: made.taken().get("Things") == 2)
        assert letters(made) == []
        first, second = made.changes("Things").sort("at").select(list(read.schema())).to_dicts()
    assert first == THING
    assert {column for column, value in second.items() if value is not None} == {"at", "words"}


@pytest.mark.parametrize("way", ["by a cursor", "as changes"])
def test_values_that_no_field_has_are_rejected(mysql_server: Server, name: str, tmp_path: Path, way: str) -> None:
    """Dates of zeros, and numbers above 2^63."""
    values = (
        "'0000-00-00', 1, now()",
        "'2024-00-10', 2, now()",
        f"'2024-01-01', {2**63 - 1}, now()",
        f"'2024-01-01', {2**64 - 1}, now()",
    )
    mysql_server.run("CREATE TABLE odd(day date, n bigint unsigned, at datetime)", database=name)
    odd = shop(mysql_server, name).table("odd", "at" if way == "by a cursor" else None)

    @source(odd, disorder="14d", every="1s", cdc="append" if way == "by a cursor" else "native")
    @dataset
    class Odd:
        day: date
        n: int
        at: datetime

    with deployed(tmp_path, Odd) as made:
        until(made, lambda: not any(each.is_loading for each in made.deployment._sources()[1]))
        mysql_server.run("SET sql_mode = ''", *(f"INSERT INTO odd VALUES ({each})" for each in values), database=name)
        until(made, lambda: made.taken().get("Odd") == 4)
        assert made.changes("Odd").select("day", "n").rows() == [(date(2024, 1, 1), 2**63 - 1)]
        assert sorted(each.field for each in letters(made)) == ["day", "day", "n"]
        assert any("0000-00-00" in each.reason for each in letters(made))


SINGLE = ("latin1", "swe7", "dec8", "hp8", "keybcs2", "armscii8", "geostd8", "cp866", "greek")


def test_texts_of_changes_are_those_of_the_copy(mysql_server: MySQLServer, tmp_path: Path) -> None:
    """Of character sets that Python does not have, or has otherwise; also in a column that no field is read from."""
    name, fields = database(mysql_server), (*SINGLE, "sjis", "ujis")
    columns = "".join(f", {each} varchar(300) CHARACTER SET {each}" for each in (*fields, "cp850"))
    every = f"X'{bytes(range(256)).hex()}'"
    values = [f"CONVERT({every} USING {each})" for each in SINGLE]
    values += ["CONVERT(X'5c815f8140' USING sjis)", "CONVERT(X'5ca1c0' USING ujis)"]
    run = partial(mysql_server.run, database=name)
    run(f"CREATE TABLE t(id int PRIMARY KEY{columns}, at datetime(6) NOT NULL DEFAULT '2026-03-01')")
    insert = f"INSERT INTO t(id, {', '.join(fields)}, cp850) VALUES ({{}}, {', '.join(values)}, 'x')"

    annotations = {"id": int, **dict.fromkeys(fields, str), "at": datetime}
    declared = {"__annotations__": annotations, "__module__": __name__, "id": field(key=True)}
    read = source(shop(mysql_server, name).table("t"), disorder="1d", cdc="native")(
        dataset(type("Texts", (), declared))
    )
    run(insert.format(1))
    with deployed(tmp_path, read) as made:
        until(made, lambda: made.taken().get("Texts") == 1, 30.0)
        run(insert.format(2))
        until(made, lambda: made.taken().get("Texts") == 2, 30.0)
        copied, streamed = rows_of(made, "Texts", fields)
        assert (streamed, letters(made)) == (copied, [])
        assert (copied[0][0x81], copied[-2]) == ("\x81", "\\\\\u3000")
