"""Delimited text with errors is read in pieces: its rows are those of each record read alone."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from umbel.formats import delimited
from umbel.formats.delimited import Delimited

RECORDS = [
    *(
        b"1,a",
        b"2,b",
        b'3,"x"',
        b'4,"x\ny"',
        b'5,"x\n\n\ny"',
        b'6,""""',
        b",",
        b'""',
        b"\xef\xbb\xbf7,a",
        b"\x1f\x8b8,a",
    ),
    *(b"", b" ", b"9", b"10,d,e", b"11,\xe9", b'12,x"y"', b'13,"x', b'y"'),
]


@pytest.mark.parametrize("names", [("a", "b"), ("a",)])
@examples(300)
@given(data=st.data())
def test_pieces(names: tuple[str, ...], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    text = end.join(data.draw(st.lists(st.sampled_from(RECORDS), max_size=25))) + data.draw(st.sampled_from([b"", end]))
    reader, lines = Delimited(names, ","), data.draw(st.sampled_from([2, 10_000]))
    with patch.object(delimited, "LINES_IN_RECORD", lines):
        with patch.object(Delimited, "_at_once", return_value=None):
            expected = reader.read(text)
        with patch.object(delimited, "UNDIVIDED", data.draw(st.sampled_from([1, 8, 30, 1 << 14]))):
            found = reader.read(text)
    assert (found.frame.rows(), found.rejects.rows()) == (expected.frame.rows(), expected.rejects.rows())


@pytest.mark.parametrize("quote", [b"", b'"'])
@pytest.mark.parametrize("odd", [b"", b"1", b"1,\xe9", b"1,2,3"])
def test_records_far_from_an_error_are_read_at_once(quote: bytes, odd: bytes) -> None:
    good = b"1," + quote + b"b" * 90 + quote + b"\n"
    count = 20 * delimited.UNDIVIDED // len(good)
    with patch.object(Delimited, "_error", autospec=True, side_effect=Delimited._error) as looked_at:
        found = Delimited(("a", "b"), ",").read(good * count + odd + b"\n" + good * count)
    assert found.frame.height == 2 * count + bool(odd)
    assert found.rejects["row"].to_list() == [count] * bool(odd)
    assert looked_at.call_count <= delimited.UNDIVIDED // len(good) + 1


@pytest.mark.parametrize("beside", [[], [b"x"], [b"\xe9"]])
def test_white_space_is_no_row_of_one_column_whatever_is_beside_it(beside: list[bytes]) -> None:
    found = Delimited(("a",), ",").read(b"\n".join([*beside, b" ", b'" "', b'""', b"\t"]))
    assert found.frame["a"].to_list()[len(beside) :] == [" ", ""]
