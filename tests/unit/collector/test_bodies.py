"""Bodies of requests to a collector: what is accepted of them, and the bounds of decompression."""

from __future__ import annotations

import gzip
import json
import random
import time
import tracemalloc
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.collector.bodies import DEEPEST, MOST_LETTERS, TOO_DEEP, RejectedEvent, events_of, media_of, parse
from umbel.collector.settings import RequestLimits
from umbel.errors import InvalidValue
from umbel.formats.compression import decompressed
from umbel.request_errors import TooLarge, UnsupportedMedia

LIMITS = RequestLimits(body=10_000, event=100, events=50)


def accepted(data: bytes, *, is_lines: bool = False, **options: Any) -> tuple[list[Any], list[int]]:
    batch = parse(data, is_lines=is_lines, limits=LIMITS, **options)
    events = json.loads(batch.payload)
    assert len(events) == batch.rows == len(list(events_of(batch.payload)))
    return events, [each.index for each in batch.letters]


@pytest.mark.parametrize(
    ("data", "events", "rejected"),
    [
        (b'{"a": 1}', [{"a": 1}], []),
        (b' \n{"a": 1}\n', [{"a": 1}], []),
        (b'[{"a": 1}, {"b": 2}]', [{"a": 1}, {"b": 2}], []),
        (b"[]", [], []),
        (b'[{"a": 1}, 7, {"b": 2}, null, "x"]', [{"a": 1}, {"b": 2}], [1, 3, 4]),
        (b'[{"a": 1}, [{"b": 2}]]', [{"a": 1}], [1]),
        (b"7", [], [0]),
        (b"", [], [0]),
        (b"{", [], [0]),
        (b'{"a": NaN}', [], [0]),
        (b'{"a": "\xff"}', [], [0]),
        (b'{"a": "\\ud800"}', [], [0]),
        (b"[" * 100_000, [], [0]),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, [], [0]),
        (b'\xef\xbb\xbf{"a": 1}', [], [0]),
        (b'{"a": 1}{"b": 2}', [], [0]),
        (b'{"a": 1, "a": 2}', [{"a": 2}], []),
        (b'{"a": "' + b"x" * 200 + b'"}', [], [0]),
        (b'[{"a": 1}, {"a": "' + b"x" * 200 + b'"}]', [{"a": 1}], [1]),
        (b'[{"a": "\\ud83d\\ude00"}, {"a": "\\ud83d,["}, {"a": "\\\\ud83d"}]', [{"a": "😀"}, {"a": "\\ud83d"}], [1]),
        (b'[{"a": 1e999}, {"b": 2}, {"c": ' + b"9" * 400 + b"}]", [{"b": 2}], [0, 2]),
        (b'[{"a": "\xff]"}, {"\xe2": 1}, {"b": 2}, "\xc3"]', [{"b": 2}], [0, 1, 3]),
        (b'[{"a": "\\ud83d"}, {"b": 2}', [], [0]),
        (b'[{"a": "\\ud83d"}, {"b": 02}]', [], [0]),
    ],
    ids=str,
)
def test_a_document(data: bytes, events: list[Any], rejected: list[int]) -> None:
    assert accepted(data) == (events, rejected)


@pytest.mark.parametrize(
    ("data", "events", "rejected"),
    [
        (b'{"a": 1}\n{"b": 2}\r\n\n  \n', [{"a": 1}, {"b": 2}], []),
        (b"", [], []),
        (b'{"a": 1\n"b": 2}', [], [0, 1]),
        (b'{"a": [{}\n{}]}\n{},{}', [], [0, 1, 2]),
        (b'{"a": 1}\n{"a": \xff}\nnull\n{"c": 3}', [{"a": 1}, {"c": 3}], [1, 2]),
    ],
    ids=str,
)
def test_lines(data: bytes, events: list[Any], rejected: list[int]) -> None:
    assert accepted(data, is_lines=True) == (events, rejected)


TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | TEXT,
    lambda of: st.lists(of, max_size=5) | st.dictionaries(TEXT, of, max_size=5),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(TEXT, JSON, max_size=5), max_size=8), st.sampled_from([None, 2, "\r\n"]))
def test_accepted_events_are_those_sent(events: list[Any], indent: Any) -> None:
    data = json.dumps(events, indent=indent).encode()
    batch = parse(data, is_lines=False, limits=RequestLimits())
    assert [json.loads(each) for each in events_of(batch.payload)] == events
    assert not any(b"\n" in each or b"\r" in each for each in events_of(batch.payload))
    lines = parse("\n".join(map(json.dumps, events)).encode(), is_lines=True, limits=RequestLimits())
    assert json.loads(lines.payload) == events


def nested(levels: int, text: bytes = b"1") -> bytes:
    """Return an event of so many levels, of objects and lists by turns, with a text at the bottom."""
    half, odd = divmod(levels, 2)
    inner = b'{"u":' + text + b"}" if odd else text
    return b'{"]},[":[' * half + inner + b"]}" * half


@pytest.mark.parametrize("levels", [DEEPEST + 1, 990, 1000, 1020, 1023, 1024, 1025, 100_000])
def test_an_event_that_is_too_deep_costs_no_other_one(levels: int) -> None:
    deep, limits = nested(levels), RequestLimits()
    for data, is_lines in (
        (b'[{"a":1}, 5,' + deep + b', {"b":"]\\""} ] ', False),
        (b'{"a":1}\n5\n' + deep + b'\n{"b":"]\\""}', True),
    ):
        batch = parse(data, is_lines=is_lines, limits=limits)
        assert [json.loads(each) for each in events_of(batch.payload)] == [{"a": 1}, {"b": ']"'}]
        assert [(each.index, each.text) for each in batch.letters] == [(1, b"5"), (2, deep)]
        assert batch.letters[1].reason == TOO_DEEP


def test_a_list_with_errors_of_several_kinds() -> None:
    for events in (
        [b'{"a":"\\ud83d"}', nested(1100), b'{"b":[]}'],
        [nested(1100), b'{"a":"\\ud83d"}', b'{"b":[]}'],
    ):
        batch = parse(b"[" + b",".join(events) + b"]", is_lines=False, limits=RequestLimits())
        assert list(events_of(batch.payload)) == events[2:]
        assert [each.text for each in batch.letters] == events[:2]


def test_the_deepest_event_is_accepted() -> None:
    for event in (nested(DEEPEST), nested(DEEPEST, b'"[[[[[[[["')):
        for data, is_lines in ((event, False), (b"[" + event + b"," + event + b"]", False), (event, True)):
            assert parse(data, is_lines=is_lines, limits=RequestLimits()).rejected == 0
    for data in (nested(DEEPEST + 1), nested(1025)):
        assert parse(data, is_lines=False, limits=RequestLimits()).rejected == 1


@pytest.mark.parametrize("rest", [b"", b"}", b"]]", b"] 7", b'"]', b"],[1]"])
def test_a_deep_list_that_does_not_end_as_one_is_refused(rest: bytes) -> None:
    batch = parse(b'[{"a":1},' + nested(1100) + rest, is_lines=False, limits=RequestLimits())
    assert (batch.rows, batch.rejected) == (0, 1)


def test_events_are_read_at_any_depth() -> None:
    for levels in (990, 1023, 5000):
        events = [b'{"a":1}', nested(levels), b'{"b":[]}']
        assert list(events_of(b"[" + b",".join(events) + b"]")) == events


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_raise_another_error(data: bytes, is_lines: bool) -> None:
    batch = parse(data, is_lines=is_lines, limits=LIMITS)
    assert batch.rows == len(json.loads(batch.payload))


def test_too_many_events_are_refused() -> None:
    many = [{}] * 51
    for data, is_lines in ((json.dumps(many).encode(), False), (b"{}\n" * 51, True)):
        with pytest.raises(TooLarge, match="50 events, found 51"):
            parse(data, is_lines=is_lines, limits=LIMITS)


def test_dead_letters_of_a_request_are_bounded() -> None:
    batch = parse(b"7\n" * 5000, is_lines=True, limits=RequestLimits())
    assert (batch.rows, len(batch.letters), batch.rejected) == (0, MOST_LETTERS, 5000)


def test_a_check_rejects_events() -> None:
    def check(event: Any) -> str:
        return "" if "a" in event else "a is missing"

    assert accepted(b'[{"a": 1}, {"b": 2}]', check=check) == ([{"a": 1}], [1])
    assert accepted(b'{"b": 2}', check=check) == ([], [0])


@pytest.mark.parametrize(
    ("text", "packed"),
    [
        (b"{", {"event": "{", "bytes": 1}),
        (b"\xff{", {"base64": "/3s=", "bytes": 2}),
        (b"x" * 100_000, {"event": "x" * 65536, "bytes": 100_000}),
    ],
)
def test_a_dead_letter_has_the_bytes_of_its_event(text: bytes, packed: dict[str, Any]) -> None:
    assert RejectedEvent(3, "why", text).packed() == {"reason": "why", "index": 3, **packed}


def _zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"abc", b""),
        (b"abc", b"identity"),
        (gzip.compress(b"abc", mtime=0), b"gzip"),
        (gzip.compress(b"a", mtime=0) + gzip.compress(b"bc", mtime=0), b"GZIP"),
        (_zstd(b"abc"), b"zstd"),
    ],
)
def test_compressed_bodies(data: bytes, encoding: bytes) -> None:
    assert decompressed(data, encoding, 3) == b"abc"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (gzip.compress(b"abc" * 1000, mtime=0)[:-9], b"gzip"),
        (gzip.compress(b"abc", mtime=0)[:5], b"gzip"),
        (gzip.compress(b"abc", mtime=0) + b"junk", b"gzip"),
        (zlib.compress(b"abc"), b"gzip"),
        (b"abc", b"gzip"),
        (b"abc", b"zstd"),
        (_zstd(b"abc" * 1000)[:-4], b"zstd"),
    ],
)
def test_damaged_bodies_are_refused(data: bytes, encoding: bytes) -> None:
    with pytest.raises(InvalidValue, match=r"damaged|cut"):
        decompressed(data, encoding, 10_000)


@pytest.mark.parametrize("encoding", [b"gzip", b"zstd"])
def test_a_bomb_is_not_decompressed(encoding: bytes) -> None:
    huge = bytes(200 << 20)
    bomb = gzip.compress(huge, 9) if encoding == b"gzip" else _zstd(huge)
    many = b"".join([gzip.compress(bytes(600))] * 100) if encoding == b"gzip" else bomb
    del huge
    tracemalloc.start()
    for each in (bomb, many):
        with pytest.raises(TooLarge, match="10,000 bytes"):
            decompressed(each, encoding, 10_000)
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()


def test_many_members_take_time_in_proportion_to_their_bytes() -> None:
    members = [gzip.compress(b"%d" % number, mtime=0) for number in range(100)] * 2000  # 4 MB
    begun = time.process_time()
    assert decompressed(b"".join(members), b"gzip", 8 << 20) == b"".join(b"%d" % number for number in range(100)) * 2000
    assert time.process_time() - begun < 3  # copies of the rest took 7 s


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 100_000])
def test_members_end_anywhere(size: int) -> None:
    text = bytes(random.Random(size).randbytes(size))
    member = gzip.compress(text, mtime=0)
    for rest in (b"", gzip.compress(b"x" * 300, mtime=0), member):
        data = member + rest
        assert decompressed(data, b"gzip", 1 << 20) == text + (gzip.decompress(rest) if rest else b"")
        with pytest.raises(InvalidValue, match=r"damaged|cut"):
            decompressed(data[:-1], b"gzip", 1 << 20)


@pytest.mark.parametrize("encoding", [b"br", b"gzip, gzip", b"deflate", b"\xff"])
def test_other_encodings_are_refused(encoding: bytes) -> None:
    with pytest.raises(UnsupportedMedia):
        decompressed(b"abc", encoding, 100)


def test_content_types() -> None:
    assert not media_of(b"application/json; charset=utf-8")
    assert not media_of(b"")
    assert media_of(b"Application/X-NDJSON")
    for other in (b"text/plain", b"application/x-www-form-urlencoded", b"\xff"):
        with pytest.raises(UnsupportedMedia):
            media_of(other)
