"""Framing: what was packed is found again, and nothing else is taken for a record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from umbel.log.records import HEADER_BYTES, Entry, digest_of, head, pack, size_of, unpack, walk

ENTRIES = st.builds(
    Entry,
    payload=st.binary(max_size=300),
    rows=st.integers(0, 2**32 - 1),
    received_at=st.integers(-(2**63), 2**63 - 1),
    digest=st.none() | st.text(max_size=5).map(digest_of),
)


@given(st.lists(ENTRIES, max_size=8), st.integers(0, 2**40))
def test_records_come_back(entries: list[Entry], offset: int) -> None:
    data, row, rows = b"", 7, []
    for entry in entries:
        assert len(pack(entry, row)) == size_of(entry)
        data += pack(entry, row)
        rows.append(row)
        row += entry.rows
    found = list(walk(data, offset))
    assert [record.entry for record in found] == entries
    assert [record.row for record in found] == rows
    assert [record.offset for record in found] == [offset + sum(map(size_of, entries[:n])) for n in range(len(entries))]


@given(ENTRIES, ENTRIES, st.data())
def test_a_cut_record_is_not_a_record(first: Entry, last: Entry, data: st.DataObject) -> None:
    whole, torn = pack(first, 0), pack(last, first.rows)
    cut = data.draw(st.integers(0, len(torn) - 1))
    assert [record.entry for record in walk(whole + torn[:cut], 0)] == [first]


@given(ENTRIES, st.data())
def test_a_changed_byte_is_noticed(entry: Entry, data: st.DataObject) -> None:
    packed = bytearray(pack(entry, 3))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    assert unpack(bytes(packed), 0, 0) is None


@given(ENTRIES)
def test_heads_tell_what_records_tell(entry: Entry) -> None:
    packed = pack(entry, 11)
    found = head(packed[: HEADER_BYTES + 16], 5)
    assert found is not None
    assert (found.offset, found.size, found.rows, found.row) == (5, len(packed), entry.rows, 11)
    assert (found.received_at, found.digest) == (entry.received_at, entry.digest)
    assert head(packed[: HEADER_BYTES - 1], 5) is None
