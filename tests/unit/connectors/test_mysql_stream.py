"""Events of the binary log become changes; bytes of MySQL that no server of the suite sends are made after its documentation."""

from __future__ import annotations

import json
import socket
import struct
import uuid
import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from umbel.connectors.mysql import stream
from umbel.connectors.mysql.binary_json import json_text
from umbel.connectors.mysql.binlog import STATEMENT, BinlogDecoder
from umbel.connectors.mysql.copying import CopiedRanges, Copy, CopyOutdated
from umbel.connectors.mysql.positions import MariaDBHistory, MySQLHistory
from umbel.connectors.mysql.server import MySQLDescription
from umbel.connectors.mysql.stream import Event, _unpacked
from umbel.connectors.mysql.tables import TableMaps
from umbel.connectors.mysql.values import StreamColumn, decoder
from umbel.connectors.sql.changes import Deletions
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.rows import AT, DELETE, INSERT, OP, REDUCED, TRUNCATE, UPDATE
from umbel.errors import InvalidValue, Terminal

SERVER = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
COLUMNS = {name: Column(name, kind, is_array=False, type=kind) for name, kind in (("k", "int"), ("v", "text"))}
TABLE = MySQLDescription("`d`.`t`", COLUMNS, "d", "t", "CREATE TABLE t", is_view=False, unordered=frozenset())
SECOND = 1_700_000_000


def event(kind: int, data: bytes = b"", at: int = SECOND) -> Event:
    return Event(kind, at, 1, data)


def string(text: str) -> bytes:
    return bytes([len(text.encode())]) + text.encode()


def table_map(table: str = "t", number: int = 7, names: Sequence[str] = ("k", "v"), *, has_names: bool = True) -> Event:
    """Return the description of a table with an unsigned INT and a VARCHAR(20) in utf8mb4."""
    head = struct.pack("<HIH", number, 0, 1) + string("d") + b"\0" + string(table) + b"\0"
    body = b"\x02\x03\x0f" + b"\x02" + struct.pack("<H", 80) + b"\x02"
    extra = b"\x01\x01\x80" + b"\x02\x01\x2d"
    listed = b"".join(map(string, names))
    return event(19, head + body + extra + (b"\x04" + bytes([len(listed)]) + listed if has_names else b""))


def image(key: int | None, value: str | None) -> bytes:
    nulls = (key is None) | (value is None) << 1
    return bytes([nulls]) + (b"" if key is None else struct.pack("<I", key)) + (b"" if value is None else string(value))


def rows(kind: int, *images: bytes, number: int = 7, present: bytes = b"\x03") -> Event:
    extra = b"\x02\x00" if kind >= 30 else b""
    bitmaps = present * (2 if kind in {24, 31} else 1)
    return event(kind, struct.pack("<HIH", number, 0, 1) + extra + b"\x02" + bitmaps + b"".join(images))


def gtid(number: int, committed: int = 0) -> Event:
    data = b"\0" + SERVER.bytes + struct.pack("<QBQQ", number, 2, 1, 2) + committed.to_bytes(7, "little")
    return event(33, data)


def query(sql: str, database: str = "d") -> Event:
    return event(2, struct.pack("<IIBHH", 1, 0, len(database), 0, 0) + database.encode() + b"\0" + sql.encode())


def made(
    keys: Sequence[str] = ("k",), history: Any = None, now: float = SECOND + 100, copied: CopiedRanges | None = None
) -> BinlogDecoder:
    maps = TableMaps("s", TABLE, ("k", "v"), {45: "utf-8"})
    return BinlogDecoder(maps, keys, Deletions(), history or MySQLHistory(""), clock=lambda: now, copied=copied)


def transaction(to: BinlogDecoder, number: int, *events: Event, committed: int = 0) -> None:
    for each in (gtid(number, committed), query("BEGIN"), table_map(), *events, event(16, b"\0" * 8)):
        to.feed(each)


def changes(of: BinlogDecoder) -> list[tuple[Any, ...]]:
    return [row for batch in of.batches() for row in batch.rows.select(OP, "k", "v", AT).rows()]


def test_rows_of_mysql() -> None:
    reader = made()
    at = SECOND * 1_000_000 + 123
    transaction(reader, 5, rows(30, image(2**32 - 1, "ä"), image(1, None)), committed=at)
    transaction(reader, 6, rows(31, image(1, None), image(2, "b")), rows(32, image(2**32 - 1, "ä")), committed=at + 1)
    assert reader.history.text == f"{SERVER}:5-6"
    assert changes(reader) == [
        (INSERT, 2**32 - 1, "ä", at),
        (INSERT, 1, None, at),
        (DELETE, 1, None, at + 1),
        (UPDATE, 2, "b", at + 1),
        (DELETE, 2**32 - 1, "ä", at + 1),
    ]
    assert not reader.has_changes


def test_commits_within_a_second_keep_their_order() -> None:
    """Their instants are not before the rows' own, which are within the second."""
    reader = made(now=SECOND + 0.25)
    for number in range(3):
        transaction(reader, number + 1, rows(30, image(number, "a")))
    instants = [row[3] - SECOND * 1_000_000 for row in changes(reader)]
    assert instants == [250_000, 250_001, 250_002]
    late = made(now=SECOND + 100)
    transaction(late, 1, rows(30, image(1, "a")))
    assert [row[3] - SECOND * 1_000_000 for row in changes(late)] == [999_999]


def test_an_answer_that_takes_long_does_not_set_the_clock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits seemed to be before the instants of their rows: of a row inserted and updated within a second, with an
    older timestamp, the former one stayed.
    """
    at = [float(SECOND)]

    def answered(_: Any, sql: str, *__: Any) -> list[tuple[Any, ...]]:
        found = at[0]
        at[0] += 0.5
        return [(found, "NONE")] if "UNIX_TIMESTAMP" in sql else []

    monkeypatch.setattr(stream, "rows", answered)
    monkeypatch.setattr(stream, "time", SimpleNamespace(time=lambda: at[0], monotonic=lambda: 0.0))
    with socket.socket() as unused:
        connection = SimpleNamespace(_sock=unused, _execute_command=lambda *_: None)
        assert stream.BinlogStream(connection, MariaDBHistory(""), 1).server_time >= at[0]


def test_an_instant_far_in_the_future_is_not_believed() -> None:
    reader = made(now=SECOND)
    transaction(reader, 1, rows(30, image(1, "a")), committed=(SECOND + 10**8) * 1_000_000)
    assert changes(reader)[0][3] == (SECOND + 3600) * 1_000_000


def test_what_did_not_end_is_not_there() -> None:
    reader = made()
    for each in (gtid(1), query("BEGIN"), table_map(), rows(30, image(1, "a")), event(15, b"\0" * 60)):
        reader.feed(each)
    assert reader.is_open
    transaction(reader, 2, rows(30, image(2, "b")))
    for each in (gtid(3), query("BEGIN"), rows(30, image(3, "c")), query("ROLLBACK")):
        reader.feed(each)
    assert [row[1] for row in changes(reader)] == [2]
    assert reader.history.text == f"{SERVER}:2-3"


def test_other_tables_are_left_out() -> None:
    reader = made()
    transaction(reader, 1, table_map("u", 8), rows(30, image(1, "a"), number=8), rows(30, image(2, "b")))
    transaction(reader, 2, table_map("u", 7), rows(30, image(3, "c")))  # a number may be given anew
    assert [row[1] for row in changes(reader)] == [2]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("TRUNCATE t", TRUNCATE),
        ("truncate table `d` . `t`", TRUNCATE),
        ("TRUNCATE u", None),
        ("TRUNCATE e.t", None),
        ("TRUNCATE t2", None),
        ("/* t */ TRUNCATE u", None),
        ("ALTER TABLE t ADD x int", None),
        ("ALTER TABLE t DROP PARTITION p", REDUCED),
        ("ALTER TABLE t RENAME TO u", "r"),
        ("ALTER TABLE t RENAME COLUMN v TO w", None),
        ("DROP TABLE IF EXISTS u, t", "r"),
        ("DROP TABLE t_old", None),
        ("DROP TEMPORARY TABLE t", None),
        ("DROP DATABASE d", "r"),
        ("DROP DATABASE dd", None),
        ("INSERT INTO t VALUES (1)", STATEMENT),
        ("CREATE TABLE t2 LIKE t", None),
    ],
)
def test_statements_that_change_rows_are_noted(sql: str, kind: str | None) -> None:
    reader = made()
    reader.feed(gtid(1))
    reader.feed(query(sql))
    found = [row for batch in reader.batches() for row in batch.rows[OP]]
    assert found == ([] if kind is None else [kind])
    assert reader.history.text == f"{SERVER}:1"


def test_another_description_of_the_table_begins_a_batch() -> None:
    reader = made()
    transaction(reader, 1, rows(30, image(1, "a")))
    transaction(reader, 2, table_map(names=("k", "w")), rows(30, image(2, "b")))
    first, second = reader.batches()
    assert (first.history, [*first.columns]) == (f"{SERVER}:1", ["k", "v"])
    assert (second.history, [*second.columns]) == (f"{SERVER}:1-2", ["k"])


def test_missing_names_of_columns_are_an_error() -> None:
    with pytest.raises(Terminal, match=r"(?s)without the names of columns.*SET GLOBAL binlog_row_metadata = 'FULL'"):
        made().feed(table_map(has_names=False))


@pytest.mark.parametrize("kind", [26, 39, 42])
def test_events_that_cannot_be_read_are_errors(kind: int) -> None:
    with pytest.raises(Terminal):
        made().feed(event(kind))


def test_transactions_that_mysql_compressed() -> None:
    inner = b""
    for each in (query("BEGIN"), table_map(), rows(30, image(1, "a" * 30)), event(16, b"\0" * 8)):
        inner += struct.pack("<IBIIIH", each.timestamp, each.kind, 1, 19 + len(each.data), 0, 0) + each.data
    body = pa.compress(inner, codec="zstd", asbytes=True)
    size = b"\xfc" + struct.pack("<H", len(inner))
    fields = b"\x02\x01\x00" + b"\x03\x03" + size + b"\x01\x03\xfc" + struct.pack("<H", len(body)) + b"\x00"
    for data in (fields + body, b"\x02\x03\xfc\xff\x00\x00" + inner):
        reader = made()
        reader.feed(gtid(1))
        for each in _unpacked(event(40, data)):
            reader.feed(each)
        assert [row[2] for row in changes(reader)] == ["a" * 30]


def test_sets_of_transactions_of_mysql() -> None:
    text = f"{SERVER}:1-5:7,\nffffffff-71ca-11e1-9e33-c80aa9429562:3"
    found = MySQLHistory(text)
    assert found.text == text.replace("\n", "")
    for number in (6, 9, 8, 5):
        found.add(gtid(number).data, 1)
    assert found.text == f"{SERVER}:1-9,ffffffff-71ca-11e1-9e33-c80aa9429562:3"
    encoded = struct.pack("<Q", 1) + SERVER.bytes + struct.pack("<QQQQQ", 2, 1, 6, 7, 8)
    assert MySQLHistory(f"{SERVER}:1-5:7").encoded == encoded
    with pytest.raises(InvalidValue, match="have tags"):
        MySQLHistory(f"{SERVER}:tag:1-5")


def test_sets_of_transactions_of_mariadb() -> None:
    found = MariaDBHistory("0-1-5,7-2-9")
    found.add(struct.pack("<QIB", 6, 0, 0), 3)
    assert found.text == "0-3-6,7-2-9"
    assert found.missing_in(MariaDBHistory("0-1-6")) == "7-2-9"
    assert found.missing_in(MariaDBHistory("0-9-7,7-2-10")) == ""
    assert MariaDBHistory("").text == ""


def test_what_a_set_of_transactions_has() -> None:
    found, other = MySQLHistory(f"{SERVER}:1-5:7"), "ffffffff-71ca-11e1-9e33-c80aa9429562"
    assert [number for number in range(1, 10) if found.has(gtid(number).data)] == [1, 2, 3, 4, 5, 7]
    assert not MySQLHistory(f"{other}:1-9").has(gtid(1).data)
    assert found.missing_in(MySQLHistory(f"{SERVER}:1-9")) == ""
    assert found.missing_in(MySQLHistory(f"{SERVER}:1-6")) == f"{SERVER}:7-7"
    assert found.missing_in(MySQLHistory(f"{SERVER}:2-9,{other}:1-9")) == f"{SERVER}:1-5"
    assert MySQLHistory("").missing_in(found) == ""
    mariadb = MariaDBHistory("0-1-5,7-2-9")
    identifiers = [struct.pack("<QIB", number, domain, 0) for domain, number in ((0, 5), (0, 6), (7, 1), (8, 1))]
    assert [mariadb.has(each) for each in identifiers] == [True, False, True, False]


def copied(*positions: str, bounds: Sequence[str] = ("10", "20")) -> CopiedRanges:
    copy = Copy("x", f"{SERVER}:1", COLUMNS["k"], bounds, 0, [f"{SERVER}:1-{each}" for each in positions])
    return CopiedRanges(copy, MySQLHistory)


def test_changes_that_ranges_have_are_left_out() -> None:
    """Each range is as of another transaction of MySQL, whatever their order."""
    reader = made(history=MySQLHistory(f"{SERVER}:1"), copied=copied("3", "5", "2"))
    keys = (9, 10, 19, 20)
    for number in (2, 3, 4, 5, 6):
        transaction(reader, number, rows(30, *(image(key, str(number)) for key in keys)))
    found = [(key, int(value)) for _, key, value, _ in changes(reader)]
    assert found == [(20, 3), (9, 4), (20, 4), (9, 5), (20, 5), *((key, 6) for key in keys)]


def test_a_key_that_moves_between_ranges() -> None:
    reader = made(history=MySQLHistory(f"{SERVER}:1"), copied=copied("2", "4", "4"))
    transaction(reader, 3, rows(31, image(5, "a"), image(15, "a")), rows(31, image(16, "b"), image(6, "b")))
    assert [row[:3] for row in changes(reader)] == [(DELETE, 5, "a"), (UPDATE, 6, "b")]
    keyless = made((), history=MySQLHistory(f"{SERVER}:1"), copied=copied("2", "4", "4"))
    transaction(keyless, 3, rows(31, image(15, "a"), image(25, "a")))
    with pytest.raises(CopyOutdated, match="another k") as refused:
        transaction(keyless, 3, rows(31, image(5, "a"), image(15, "a")))
    assert refused.value.is_whole


def test_statements_between_the_ranges_make_a_copy_outdated() -> None:
    for number, expected in ((2, []), (5, [TRUNCATE])):
        reader = made(history=MySQLHistory(f"{SERVER}:1"), copied=copied("2", "4", "4"))
        for each in (gtid(number), query("TRUNCATE t")):
            reader.feed(each)
        assert [op for each in reader.batches() for op in each.rows[OP]] == expected
    reader = made(history=MySQLHistory(f"{SERVER}:1"), copied=copied("2", "4", "4"))
    reader.feed(gtid(3))
    with pytest.raises(CopyOutdated, match="truncated"):
        reader.feed(query("TRUNCATE t"))


def test_the_end_of_a_copy() -> None:
    found = copied("2", "4", "3")
    passed = [each for each in range(1, 7) if found.is_passed(MySQLHistory(f"{SERVER}:1-{each}"))]
    assert passed == [4, 5, 6]
    with pytest.raises(CopyOutdated, match="another server"):
        CopiedRanges(Copy("x", f"{SERVER}:1-9", COLUMNS["k"], [], 0, [f"{SERVER}:1-5"]), MySQLHistory)


def small_object(pairs: dict[str, tuple[int, bytes]]) -> bytes:
    """Return an object in MySQL's binary form, whose values stand behind the keys."""
    keys = b"".join(name.encode() for name in pairs)
    begin = 4 + 4 * len(pairs) + 3 * len(pairs)
    key_entries, value_entries, values, at = b"", b"", b"", begin
    for name in pairs:
        key_entries += struct.pack("<HH", at, len(name.encode()))
        at += len(name.encode())
    for kind, data in pairs.values():
        if kind in {0x04, 0x05, 0x06}:
            value_entries += bytes([kind]) + data.ljust(2, b"\0")
        else:
            value_entries += bytes([kind]) + struct.pack("<H", begin + len(keys) + len(values))
            values += data
    size = begin + len(keys) + len(values)
    return struct.pack("<HH", len(pairs), size) + key_entries + value_entries + keys + values


def test_binary_json() -> None:
    inner = small_object({"x": (0x0C, b"\x02hi"), "ä": (0x0B, struct.pack("<d", 0.1))})
    decimal = bytes([246, 4]) + bytes([4, 2]) + b"\x8c\x22"
    moment = bytes([12, 8]) + struct.pack("<q", ((2024 * 13 + 2) << 22 | 29 << 17 | 12 << 12 | 34 << 6 | 56) << 24 | 7)
    data = small_object(
        {
            "a": (0x04, b"\x01"),
            "b": (0x04, b"\x00"),
            "c": (0x05, struct.pack("<h", -3)),
            "d": (0x07, struct.pack("<i", -70000)),
            "e": (0x0A, struct.pack("<Q", 2**64 - 1)),
            "f": (0x00, inner),
            "g": (0x0F, decimal),
            "h": (0x0F, moment),
        }
    )
    text = json_text(b"\x00" + data)
    assert '"g": 12.34' in text
    assert json.loads(text) == {
        "a": True, "b": None, "c": -3, "d": -70000, "e": 2**64 - 1, "f": {"x": "hi", "ä": 0.1}, "g": 12.34,
        "h": "2024-02-29 12:34:56.000007",
    }  # fmt: skip
    array = struct.pack("<HH", 2, 10) + b"\x05\x01\x00" + b"\x04\x02\x00"
    assert json_text(b"\x02" + array) == "[1, false]"
    assert json_text(b"\x0c\x85\x01" + b"x" * 133) == json.dumps("x" * 133)
    assert json_text(b"") == "null"


@pytest.mark.parametrize(
    ("precision", "scale", "data", "expected"),
    [
        (4, 2, b"\x8c\x22", "12.34"),
        (4, 2, b"\x73\xdd", "-12.34"),
        (10, 0, b"\x80\x00\x00\x00\x07", "7"),
        (18, 9, b"\x80\x00\x00\x00\x00\x00\x00\x01", "0.000000001"),
        (14, 4, b"\x81\x0d\xfb\x38\xd2\x04\xd2", "1234567890.1234"),
        (14, 4, b"\x7e\xf2\x04\xc7\x2d\xfb\x2d", "-1234567890.1234"),
    ],
)
def test_decimals(precision: int, scale: int, data: bytes, expected: str) -> None:
    column = StreamColumn(246, bytes([precision, scale]), is_unsigned=False, codec=None, names=(), declared="")
    kind, decode = decoder(column)
    assert (kind, decode(b"?" + data + b"?", 1)) == ("numeric", (expected, 1 + len(data)))


@pytest.mark.parametrize(
    ("text", "digits"),
    [("00:00:00", 0), ("-00:00:01", 0), ("-00:00:00.10", 2), ("838:59:59.999999", 6), ("-01:00:00.1", 1)],
)
def test_spans_of_time(text: str, digits: int) -> None:
    sign, (clock, _, fraction) = (-1 if text[0] == "-" else 1), text.lstrip("-").partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    size = (digits + 1) // 2
    part = int(fraction.ljust(2 * size, "0") or 0)
    packed = sign * ((hours << 12 | minutes << 6 | seconds) << 8 * size | part) + (0x800000 << 8 * size)
    column = StreamColumn(19, bytes([digits]), is_unsigned=False, codec=None, names=(), declared="")
    assert decoder(column)[1](packed.to_bytes(3 + size, "big"), 0)[0] == text


def test_columns_that_mariadb_compressed() -> None:
    column = StreamColumn(140, b"\x02", is_unsigned=False, codec="utf-8", names=(), declared="")
    packed = b"\x81\x1e" + zlib.compress(b"a" * 30)
    data = struct.pack("<H", len(packed)) + packed + struct.pack("<H", 3) + b"\x00ab"
    decode = decoder(column)[1]
    value, at = decode(data, 0)
    assert (value, decode(data, at)[0]) == ("a" * 30, "ab")


def test_an_unknown_character_set_matters_in_requested_columns_only() -> None:
    reader = TableMaps("s", TABLE, ("k",), {})
    reader.add(table_map().data)
    with pytest.raises(Terminal, match="column 'v': collation 45 is unknown"):
        TableMaps("s", TABLE, ("k", "v"), {}).add(table_map().data)
