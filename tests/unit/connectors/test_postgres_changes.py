"""Messages of logical replication become changes: what lasts of each transaction, in order."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import polars as pl

from umbel.connectors.postgres.pgoutput import EPOCH_2000, Decoder
from umbel.connectors.sql.changes import Deletions
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.rows import AT, OP, START

COLUMNS = {name: Column(name, "text", is_array=False, type="text") for name in ("k", "v")}
Values = Sequence[str | None]


def relation(identity: bytes = b"d", names: Sequence[str] = ("k", "v"), number: int = 1) -> bytes:
    columns = b"".join(
        struct.pack(">B", name == "k") + name.encode() + b"\0" + struct.pack(">Ii", 25, -1) for name in names
    )
    return b"R" + struct.pack(">I", number) + b"public\0t\0" + identity + struct.pack(">H", len(names)) + columns


def row(values: Values) -> bytes:
    """Return a row; `...` stands for a large value that did not change."""
    parts = [
        b"n"
        if each is None
        else b"u"
        if each == "..."
        else b"t" + struct.pack(">I", len(each.encode())) + each.encode()
        for each in values
    ]
    return struct.pack(">H", len(values)) + b"".join(parts)


def insert(*values: str | None) -> bytes:
    return b"I" + struct.pack(">I", 1) + b"N" + row(values)


def update(new: Values, old: Values | None = None, kind: bytes = b"K") -> bytes:
    return b"U" + struct.pack(">I", 1) + (b"" if old is None else kind + row(old)) + b"N" + row(new)


def delete(*values: str | None) -> bytes:
    return b"D" + struct.pack(">I", 1) + b"K" + row(values)


def transaction(decoder: Decoder, *messages: bytes, at: int = 1000, end: int = 77) -> None:
    decoder.feed(b"B" + struct.pack(">QqI", end, at - EPOCH_2000, 5))
    assert decoder.is_open
    for each in messages:
        decoder.feed(each)
    decoder.feed(b"C" + struct.pack(">BQQq", 0, end - 1, end, at - EPOCH_2000))


def changes(decoder: Decoder) -> list[tuple[Any, ...]]:
    return decoder.take(COLUMNS).select(OP, "k", "v", AT, START).rows()


def decoder(limit: int = 10, *, keys: Sequence[str] = ("k",), identity: bytes = b"d") -> Decoder:
    made = Decoder(keys, Deletions(limit), 1, {9}.__contains__)
    made.feed(relation(identity))
    return made


def test_changes_wait_for_their_commit() -> None:
    made = decoder()
    made.feed(b"B" + struct.pack(">QqI", 1, 0, 5))
    made.feed(insert("a", "1"))
    assert (made.rows, made.is_open) == (0, True)
    transaction(made, insert("a", "ä\n"), insert("b", None), end=99)
    assert (made.rows, made.lsn, made.is_open) == (2, 99, False)
    assert changes(made) == [("i", "a", "ä\n", 1000, None), ("i", "b", None, 1000, None)]
    assert made.rows == 0


def test_a_changed_key_ends_the_old_one() -> None:
    made = decoder()
    transaction(made, update(["b", "2"], ["a", None]))
    assert changes(made) == [("d", "a", None, 1000, None), ("u", "b", "2", 1000, 1000)]


def test_a_full_identity_has_values_that_were_not_sent() -> None:
    made = decoder(identity=b"f")
    transaction(made, update(["a", "..."], ["a", "old"], b"O"))
    assert changes(made) == [("u", "a", "old", 1000, 1000)]
    made = decoder()
    transaction(made, update(["a", "..."]))
    assert changes(made) == [("?", "a", None, 1000, None)]


def test_rows_written_anew_in_one_transaction_are_updated() -> None:
    """Whatever their number: not by the memory of deletions."""
    made, keys = decoder(limit=2), "abcde"
    transaction(made, *(delete(key, None) for key in keys), *(insert(key, "new") for key in keys))
    assert changes(made) == [("u", key, "new", 1000, 1000) for key in keys]


def test_a_deleted_row_that_comes_back_begins_after_its_deletion() -> None:
    made = decoder()
    transaction(made, delete("a", None), at=1000)
    transaction(made, insert("a", "again"), insert("b", "1"), at=2000)
    transaction(made, insert("a", "no deletion before"), at=3000)
    assert [each[-1] for each in changes(made)] == [None, 1001, None, None]


def test_deleted_after_it_was_inserted() -> None:
    made = decoder()
    transaction(made, insert("a", "1"), delete("a", None))
    assert [each[0] for each in changes(made)] == ["i", "d"]


def test_a_truncation_is_a_change() -> None:
    made = decoder()
    transaction(made, b"T" + struct.pack(">IBI", 1, 0, 1))
    assert changes(made) == [("t", None, None, 1000, None)]


def test_rows_begin_after_a_truncation() -> None:
    """Those of its transaction before it are left out; a table that inherits is a part of the table."""
    made, truncation = decoder(), b"T" + struct.pack(">IBII", 2, 3, 9, 1)
    made.feed(relation(number=9))
    transaction(
        made, insert("a", "1"), delete("b", None), truncation, insert("a", "2"), insert("c", "3"), delete("c", None)
    )
    transaction(made, insert("d", "4"), delete("a", None), at=900)
    transaction(made, b"T" + struct.pack(">IBI", 1, 0, 9), at=2000)
    assert [(op, key, at, start) for op, key, _, at, start in changes(made)] == [
        ("t", None, 1000, None),
        ("i", "a", 1000, 1001),
        ("i", "c", 1000, 1001),
        ("d", "c", 1001, None),
        ("i", "d", 900, 1001),
        ("d", "a", 1001, None),
        ("p", None, 2000, None),
    ]


def test_a_keyless_dataset_has_all_changes_around_a_truncation() -> None:
    made = decoder(keys=())
    transaction(made, insert("a", "1"), b"T" + struct.pack(">IBI", 1, 0, 1), insert("a", "2"))
    assert [(op, start) for op, *_, start in changes(made)] == [("i", None), ("t", None), ("i", None)]


def test_columns_may_come_and_go() -> None:
    made = decoder()
    transaction(made, insert("a", "1"))
    made.feed(relation(names=("k", "more")))
    transaction(made, insert("b", "2"))
    assert changes(made) == [("i", "a", "1", 1000, None), ("i", "b", None, 1000, None)]


def test_nothing_is_taken_from_nothing() -> None:
    assert decoder().take(COLUMNS).equals(pl.DataFrame())


def test_tables_beside_this_one_in_the_publication_are_left_out() -> None:
    """Their rows were taken for rows of this table."""

    def of_table(number: int, message: bytes) -> bytes:
        return message[:1] + struct.pack(">I", number) + message[5:]

    def truncation(*numbers: int) -> bytes:
        return b"T" + struct.pack(f">IB{len(numbers)}I", len(numbers), 0, *numbers)

    made = Decoder(("k",), Deletions(10), 1, {3}.__contains__)
    for number in (1, 2, 3):
        made.feed(relation(number=number))
    others = [of_table(2, each) for each in (insert("a", "2"), update(("a", "3")), delete("a", None))]
    transaction(made, insert("a", "1"), *others, of_table(3, insert("b", "1")), truncation(2))
    assert changes(made) == [("i", "a", "1", 1000, None), ("i", "b", "1", 1000, None)]
    transaction(made, truncation(2, 3), at=2000)
    transaction(made, truncation(2, 1), at=3000)
    assert [op for op, *_ in changes(made)] == ["p", "t"]
    assert {*made.columns()} == {"k", "v"}


def test_columns_are_as_the_stream_describes_them() -> None:
    types = {"n": (23, -1), "many": (1007, -1), "price": (1700, (10 << 16 | 2) + 4), "own": (99_999, -1)}
    described = b"".join(b"\0" + name.encode() + b"\0" + struct.pack(">Ii", *each) for name, each in types.items())
    decoder = Decoder((), Deletions(), 1)
    decoder.feed(b"R" + struct.pack(">I", 1) + b"public\0t\0d" + struct.pack(">H", len(types)) + described)
    found = decoder.columns().items()
    assert {name: (each.kind, each.is_array, each.scale) for name, each in found} == {
        "n": ("int", False, None),
        "many": ("int", True, None),
        "price": ("numeric", False, 2),
        "own": ("text", False, None),
    }
