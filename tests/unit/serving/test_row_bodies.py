"""Rows as lines of JSON and as Arrow streams: the same rows, dead letters and keys as with JSON; hostile bodies are refused."""

from __future__ import annotations

import gzip
import io
import json
import resource
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.unit.serving.conftest import DEPARTURES, Served
from umbel.client.plain import plain
from umbel.errors import UmbelError
from umbel.request_errors import TooLarge
from umbel.serving.arrow_rows import rows_of_stream
from umbel.serving.ingestion import rows_of_lines
from umbel.types.json_values import UNTYPED_NAN

LINES, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"
END = b"\xff\xff\xff\xff\0\0\0\0"


def post(served: Served, content: bytes, media: str | None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    kinds = {} if media is None else {"Content-Type": media}
    path = "/api/v1/log?webhook=events&endpoint=departures"
    return served.http.post(path, content=content, headers={**kinds, **named})


def stream_of(table: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def departures() -> Any:
    return pa.table(
        {
            "origin": pa.array([row["origin"] for row in DEPARTURES]).dictionary_encode(),
            "delay": pa.array([row["delay"] for row in DEPARTURES], pa.int32()),
            "ratio": pa.array([row.get("ratio") for row in DEPARTURES], pa.float32()),
            "at": pa.array([at(str(row["at"])) for row in DEPARTURES], pa.timestamp("ns", "UTC")),
        }
    )


def rows_of(served: Served) -> list[tuple[Any, ...]]:
    data = served.http.get("/api/v1/dataset/Departure/inspect?n=1000").json()["data"]
    return sorted(zip(*(data[name] for name in ("origin", "delay", "ratio", "at")), strict=True), key=str)


def test_all_forms_give_the_same_rows(fresh: Served) -> None:
    fresh.log("departures", DEPARTURES)
    fresh.process()
    expected = rows_of(fresh)
    bodies = {LINES: lines(DEPARTURES), ARROW: stream_of(departures())}
    for times, (media, body) in enumerate(bodies.items(), 2):
        for encoding in ("", "gzip"):
            sent = gzip.compress(body) if encoding else body
            key = f"{media} {encoding}"
            headers = {"Idempotency_Key": key} | ({"Content_Encoding": encoding} if encoding else {})
            first = post(fresh, sent, media, **headers)
            assert first.json()["rows"] == 3, first.text
            assert post(fresh, sent, media, **headers).json() == first.json() | {"repeated": True}
        fresh.process()
        assert rows_of(fresh) == sorted(expected * (2 * times - 1), key=str)
    assert fresh.dead("Departure") == []
    assert post(fresh, gzip.compress(b""), LINES, Content_Encoding="gzip").json() == {"rows": 0}


def test_a_compressed_body_without_the_header_is_refused_with_it(fresh: Served) -> None:
    """As lines, each piece of it would be a dead letter."""
    body = b'{"webhook": "events", "endpoint": "departures", "data": []}'
    for media in (LINES, "application/json"):
        for packed, name in ((gzip.compress(body), "gzip"), (pa.compress(body, codec="zstd", asbytes=True), "zstd")):
            refused = post(fresh, packed, media)
            assert refused.status_code == 400
            assert refused.json()["hint"] == f"Content-Encoding: {name}"


def test_compressed_json_is_read(fresh: Served) -> None:
    body = gzip.compress(json.dumps({"webhook": "events", "endpoint": "departures", "data": DEPARTURES}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert fresh.http.post("/api/v1/log", content=body, headers=headers).json()["rows"] == 3


GOOD = DEPARTURES[0]
HOSTILE_LINES = [
    (lines([GOOD]) + json.dumps(GOOD).encode()[:-5], 1),
    (lines([GOOD]) + b'{"origin": "\xff\xfe"}\n' + b"{'origin': 1}\n", 2),
    (b'{"a":1\n"b":2}\n' + lines([GOOD]), 2),
    (b"{},{}\n" + lines([GOOD]) + b"[\n", 2),
    (lines([GOOD]).replace(b"0.5", b"NaN") + lines([GOOD]), 1),
    (b"\xff\xfe{\0}\0\n\0" + b"\n" + lines([GOOD]), 2),
    (lines([GOOD]) + b"[" * 100_000, 1),
]


@pytest.mark.parametrize(("body", "broken"), HOSTILE_LINES)
def test_a_broken_line_is_a_dead_letter_and_the_others_are_rows(fresh: Served, body: bytes, broken: int) -> None:
    answer = post(fresh, body, LINES).json()
    assert (answer["rows"], answer["broken"]) == (1 + broken, broken)
    fresh.process()
    assert [row[:2] for row in rows_of(fresh)] == [("JFK", 30)]
    letters = fresh.dead("Departure")
    assert len(letters) == broken
    assert all("expected an object" in letter["reason"] for letter in letters)


def test_lines_are_stored_as_they_were_sent() -> None:
    body = b'\xef\xbb\xbf{"a": 123456789012345678901234567890}\r\n\r\n  \n{"a":\t1, "a": 2}'
    payload, rows, broken = rows_of_lines(body)
    assert (rows, broken) == (2, 0)
    assert payload == b'[{"a": 123456789012345678901234567890}\r,{"a":\t1, "a": 2}]'
    assert rows_of_lines(b"\n\n") == (b"[]", 0, 0)


def test_arrow_rows_that_do_not_fit_become_dead_letters(fresh: Served) -> None:
    wrong = departures().set_column(1, "delay", pa.array(["soon", None, "7.5"]))
    assert post(fresh, stream_of(wrong), ARROW).json()["rows"] == 3
    assert post(fresh, stream_of(departures().drop_columns(["origin"])), ARROW).json()["rows"] == 3
    fresh.process()
    assert rows_of(fresh) == []
    assert sorted(letter["field"] for letter in fresh.dead("Departure")) == ["delay"] * 3 + ["origin"] * 3


def test_an_arrow_stream_without_rows_is_nothing(fresh: Served) -> None:
    assert post(fresh, stream_of(departures().slice(0, 0)), ARROW).json() == {"rows": 0}


VALUES: dict[str, Any] = {
    "small": pa.array([1, None], pa.int8()),
    "large": pa.array([2**64 - 1, None], pa.uint64()),
    "single": pa.array([0.1, None], pa.float32()),
    "double": pa.array([1e300, -0.0]),
    "nan": pa.array([float("nan"), float("inf")]),
    "flag": pa.array([True, None]),
    "text": pa.array(['a"\n\u2028\0é', None]),
    "view": pa.array(["x" * 40, ""], pa.string_view()),
    "coded": pa.array(["a", None]).dictionary_encode(),
    "bytes": pa.array([b"\xff\0", None]),
    "fixed": pa.array([b"ab", None], pa.binary(2)),
    "exact": pa.array([Decimal("1.50"), None]),
    "day": pa.array([date(1969, 12, 31), None]),
    "instant": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("s", "Europe/Berlin")),
    "offset": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "+05:30")),
    "long": pa.array([Decimal("1.50"), None], pa.decimal256(50, 2)),
    "naive": pa.array([datetime(2024, 1, 1, 1, 2, 3, 4), None], pa.timestamp("us")),
    "list": pa.array([[1, None], None]),
    "vector": pa.array([[0.5, 1.5], None], pa.list_(pa.float32(), 2)),
    "instants": pa.array([[datetime(2024, 1, 1, tzinfo=UTC)], []]),
    "struct": pa.array([{"a": 1, "b": "x"}, None]),
    "nested": pa.array([[{"a": b"\xff"}], None]),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(2),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_keep_their_meaning(name: str) -> None:
    (payload, rows), array = rows_of_stream(stream_of(pa.table({name: VALUES[name]}))), VALUES[name]
    values = [json.loads(json.dumps(each[name])) for each in json.loads(payload)]
    expected = [dict(each) if name == "map" and each else each for each in array.to_pylist()]
    found = [plain(each, UNTYPED_NAN) for each in expected]
    if pa.types.is_timestamp(array.type):
        instants = [each and datetime.fromisoformat(each) for each in values]
        assert instants == expected
    elif name == "instants":
        assert [[datetime.fromisoformat(each) for each in one] for one in values] == expected
    else:
        assert values == found
    assert rows == 2


def bomb(kind: str = "") -> bytes:
    """Return a stream of texts that a dictionary has once, in lists or structs if `kind` says so."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["x" * 100_000]))
    if kind == "list":
        return stream_of(pa.table({"a": pa.ListArray.from_arrays(pa.array([0, 50_000, 100_000], pa.int32()), words)}))
    return stream_of(pa.table({"a": pa.StructArray.from_arrays([words], ["b"]) if kind == "struct" else words}))


def view() -> bytes:
    entry = struct.pack("<i4sii", 100_000, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(entry * 100_000), pa.py_buffer(b"x" * 100_000)]
    views = pa.Array.from_buffers(pa.string_view(), 100_000, buffers)
    return stream_of(pa.table({"a": views}))


REFUSED = {
    "no stream": (b"{}", "cut"),
    "empty": (b"", "cut"),
    "only an end": (END, "not an Arrow IPC stream"),
    "cut in a batch": (stream_of(departures())[:-100], "cut"),
    "cut in a batch, with an end": (stream_of(departures())[:-100] + END, "not an Arrow IPC stream"),
    "cut between batches": (stream_of(departures()).removesuffix(END), "cut"),
    "two streams": (stream_of(departures()) * 2, "after its end"),
    "junk at the end": (stream_of(departures()) + b"x" * 8 + END, "after its end"),
    "compressed": (stream_of(departures(), compression="zstd"), "compressed buffers"),
    "a compressed dictionary": (stream_of(departures().select(["origin"]), compression="lz4"), "compressed buffers"),
    "a duration": (stream_of(pa.table({"a": pa.array([1], pa.duration("s"))})), "'a' of the Arrow stream"),
    "a time": (stream_of(pa.table({"a": pa.array([1], pa.time32("s"))})), "'a' of the Arrow stream"),
    "a list view": (stream_of(pa.table({"a": pa.array([[1]], pa.list_view(pa.int8()))})), "'a' of the Arrow stream"),
    "a list of nothings": (stream_of(pa.table({"a": pa.array([[None]])})), "'a' of the Arrow stream"),
    "a column twice": (stream_of(pa.table([[1], [2]], names=["a", "a"])), "more than once: a"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_stream_is_refused_as_a_whole(fresh: Served, case: str) -> None:
    body, words = REFUSED[case]
    answer = post(fresh, body, ARROW)
    assert (answer.status_code, words in answer.json()["message"]) == (400, True), answer.text
    fresh.process()
    assert (rows_of(fresh), fresh.dead("Departure")) == ([], [])


@pytest.mark.parametrize(
    "body",
    [
        bomb(),
        bomb("list"),
        bomb("struct"),
        stream_of(pa.table({"n" * 1_000_000: pa.nulls(1000)})),
        stream_of(pa.table({"a": pa.nulls(100_000_000)})),
        view(),
    ],
    ids=["dictionary", "dictionary in lists", "dictionary in structs", "long name", "nulls", "view"],
)
def test_a_stream_that_would_expand_is_refused(body: bytes) -> None:
    before = peak()
    with pytest.raises(TooLarge):
        rows_of_stream(body)
    assert peak() - before < 600 << 20  # these stand for 10 GB of text


def peak() -> int:
    """Return the most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_columns_of_json_that_would_expand_are_refused(fresh: Served) -> None:
    assert fresh.log("departures", {"n" * 1_000_000: [1] * 100_000}).status_code == 413


def test_gzip_that_would_expand_is_refused(fresh: Served) -> None:
    answer = post(fresh, gzip.compress(bytes(100 << 20)), LINES, Content_Encoding="gzip")
    assert answer.status_code == 413


def test_every_damaged_byte_is_refused_or_read() -> None:
    body = stream_of(departures().slice(0, 2))
    for place in range(len(body)):
        for change in (0x01, 0x80, 0xFF):
            damaged = body[:place] + bytes([body[place] ^ change]) + body[place + 1 :]
            try:
                payload, rows = rows_of_stream(damaged)
            except UmbelError:
                continue
            assert len(json.loads(payload)) == rows


@pytest.mark.parametrize("media", [LINES, ARROW])
def test_the_endpoint_is_named_in_the_query_string(fresh: Served, media: str) -> None:
    answer = fresh.http.post("/api/v1/log?webhook=events", content=b"", headers={"Content-Type": media})
    assert (answer.status_code, "lacks 'endpoint'" in answer.json()["message"]) == (400, True)
    unknown = fresh.http.post(
        "/api/v1/log?webhook=events&endpoint=x", content=lines([GOOD]), headers={"Content-Type": LINES}
    )
    assert unknown.status_code == 404


@pytest.mark.parametrize("media", [None, "", "text/csv", "application/vnd.apache.arrow.file"])
def test_other_content_types_are_refused(fresh: Served, media: str | None) -> None:
    assert post(fresh, lines([GOOD]), media).status_code == 415


def test_the_wrong_content_type_is_refused(fresh: Served) -> None:
    assert post(fresh, lines([GOOD]), "application/json").status_code == 400
    assert post(fresh, lines([GOOD]), ARROW).status_code == 400
    answer = post(fresh, stream_of(departures()), LINES).json()
    assert answer["broken"] == answer["rows"]
    assert post(fresh, lines([GOOD]), LINES, Content_Encoding="br").status_code == 415
    assert post(fresh, lines([GOOD]), LINES, Content_Encoding="gzip").status_code == 400


def test_all_forms_wait_while_too_much_is_unprocessed(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from umbel.errors import Overloaded
    from umbel.serving.backlog import Backlog

    def full(*_: Any) -> None:
        raise Overloaded("too many events wait")

    monkeypatch.setattr(Backlog, "check", full)
    for media, body in ((LINES, lines(DEPARTURES)), (ARROW, stream_of(departures()))):
        answer = post(fresh, body, media)
        assert answer.status_code == 429
        assert "retry-after" in answer.headers
