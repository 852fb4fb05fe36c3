"""Webhooks as a source: what was posted is read, each row by itself, in the order it was accepted."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.unit.connectors.reading import Read, read
from umbel.connectors import webhook
from umbel.connectors.webhook import EndpointSource, Webhook
from umbel.formats import json_lines
from umbel.formats.json_lines import parse_value
from umbel.log.ingest import IngestLog
from umbel.types.dtype import DType
from umbel.types.dtypes import Dict, Float, Int, Optional, Str

SCHEMA: dict[str, DType] = {"i": Int(), "s": Optional(Str())}

VALUES = st.sampled_from(
    ["x", "},{", "}, {", "]", "\n", '"', "\\", "ü", None, 5, 1.5, [1], {"a": [{"b": 1}, {"b": 2}]}]
)
ROWS = st.fixed_dictionaries(
    {"i": st.integers(-3, 3) | st.just("no") | st.just(2.0)}, optional={"s": VALUES, "z": VALUES}
)
POSTS = st.lists(
    st.tuples(st.lists(ROWS | st.just(7), max_size=4), st.sampled_from([None, 1]), st.booleans()), max_size=8
)


def endpoint(root: Path) -> EndpointSource:
    return EndpointSource(root, Webhook(name="web").endpoint("payments"))


def post(root: Path, payloads: list[tuple[bytes, int]]) -> None:
    log = IngestLog(root, "web", "payments")
    for payload, rows in payloads:
        log.append_blocking(payload, rows)
    log.close()


def judged(row: Any) -> Any:
    """Return what a naive reader takes of a row, None for nothing."""
    if not isinstance(row, dict) or isinstance(row["i"], str):
        return None
    text = row.get("s")
    if text is not None and not isinstance(text, str | int | float):
        return None
    return int(row["i"]), None if text is None else str(text)


@given(POSTS, st.integers(1, 300), st.booleans(), st.booleans())
@examples(35)
def test_every_row_is_read_once_and_by_itself(
    tmp_path_factory: pytest.TempPathFactory, posts: list[Any], budget: int, exact: bool, small: bool
) -> None:
    root = tmp_path_factory.mktemp("log")
    rows = [row for batch, _, _ in posts for row in batch]
    post(root, [(json.dumps(batch, indent=i, ensure_ascii=a).encode(), len(batch)) for batch, i, a in posts])
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(webhook, "CHUNK_BYTES", 100)
            patch.setattr(json_lines, "MOST_VALUES", 4)
        found = read(endpoint(root), SCHEMA, budget=budget, exact=exact)
    assert {number: tuple(row.values()) for number, row in found.rows.items()} == {
        number: judged(row) for number, row in enumerate(rows) if judged(row) is not None
    }
    assert {number: json.loads(text) for number, (_, _, text) in found.dead.items()} == {
        number: row for number, row in enumerate(rows) if judged(row) is None
    }


def test_a_broken_payload_is_dead_and_numbers_stay(tmp_path: Path) -> None:
    post(tmp_path, [(b'[{"i":1}]', 1), (b'[{"i":2},', 2), (b'{"i":3}', 1), (b'[{"i":4}]', 3), (b'[{"i":5}]', 1)])
    found = read(endpoint(tmp_path), SCHEMA)
    assert {number: row["i"] for number, row in found.rows.items()} == {0: 1, 7: 5}
    assert sorted(found.dead) == [1, 2, 3, 4, 5, 6]
    assert found.dead[2][2] == b'[{"i":2},'
    assert "expected a list of 3 rows" in found.dead[5][1]
    assert found.dead[1][0] == "web/payments: segment 1, byte 73, row 0"
    places = [place for place, _, _ in found.dead.values()]
    assert len(set(places)) == len(places)


def test_an_endpoint_nobody_posted_to_is_empty(tmp_path: Path) -> None:
    source = endpoint(tmp_path)
    assert source.plan(None, 100)[0] == []
    post(tmp_path, [(b'[{"i":1}]', 1)])
    assert read(source, SCHEMA).values() == [(1, None)]


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source, found = endpoint(tmp_path), Read()
    for number in range(5):
        post(tmp_path, [(b'[{"i":%d}]' % number, 1)])
        found.position = json.loads(json.dumps(read(source, SCHEMA, into=found).position))
        source = pickle.loads(pickle.dumps(source))
    assert found.values() == [(number, None) for number in range(5)]


def test_big_integers_and_dictionaries(tmp_path: Path) -> None:
    post(tmp_path, [(b'[{"i":1,"m":{"a":1}},{"i":99999999999999999999,"m":{}},{"i":2,"m":{"a":1.5}}]', 3)])
    found = read(endpoint(tmp_path), {"i": Int(), "m": Dict(Int())})
    assert found.values() == [(1, [{"key": "a", "value": 1}])]
    assert "99999999999999999999" in found.dead[1][1]


@pytest.mark.parametrize("levels", [200, 500, 1000])
def test_a_rejected_row_may_be_nested_deeply(tmp_path: Path, levels: int) -> None:
    """The worker ended at such a row, again and again: no encoder goes as deep as the parser."""
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        deep = f'{{"i":{opening * levels}-1.5{closing * levels},"s":"\\"","z":[{{}},[],null]}}'
        post(tmp_path / closing, [(f'[{deep},{{"i":7}}]'.encode(), 2)])
        found = read(endpoint(tmp_path / closing), SCHEMA)
        assert found.values() == [(7, None)]
        assert found.dead[0][2] == deep.encode()


def test_large_batches_of_the_fast_kind(tmp_path: Path) -> None:
    rows = [{"i": number, "s": "x" * (number % 7), "f": number / 3} for number in range(20_000)]
    post(tmp_path, [(json.dumps(rows[at : at + 500]).encode(), 500) for at in range(0, 20_000, 500)])
    found = read(endpoint(tmp_path), {**SCHEMA, "f": Float()}, budget=100_000)
    assert found.values() == [(row["i"], row["s"], row["f"]) for row in rows]


def rejected(root: Path, rows: int, requests: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return how many times a request's bytes are parsed to get at the text of every row of some rejected requests."""
    payload = json.dumps([{"i": "no", "n": number} for number in range(rows)]).encode()
    post(root, [(payload, rows)] * requests)
    parsed = 0

    def counting(data: bytes) -> Any:
        nonlocal parsed
        parsed += len(data)
        return parse_value(data)

    monkeypatch.setattr(webhook, "parse_value", counting)
    reader = endpoint(root)
    for split, _ in reader.plan(None, 1 << 30)[0]:
        for batch in reader.open(split, SCHEMA, exact=True):
            texts = [json.loads(batch.text(row))["n"] for row in range(batch.raw.frame.height)]
            assert texts == [*range(rows)] * requests
            assert batch.request is not None
            assert {batch.request(row) for row in range(batch.raw.frame.height)} == {*range(0, rows * requests, rows)}
    return parsed / len(payload)


def test_rejected_rows_cost_as_much_as_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (rejected(tmp_path / str(rows), rows, 3, monkeypatch) for rows in (10, 1000))
    assert small == large <= 2 * 3


def test_the_text_of_rows_that_cannot_be_taken_apart_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def counting(data: bytes) -> Any:
        nonlocal calls
        calls += 1
        return parse_value(data)

    monkeypatch.setattr(webhook, "parse_value", counting)
    post(tmp_path, [(b"no JSON", 500)])
    reader = endpoint(tmp_path)
    for split, _ in reader.plan(None, 1 << 30)[0]:
        (batch,) = reader.open(split, SCHEMA, exact=True)
        assert {batch.text(row) for row in range(500)} == {b"no JSON"}
    assert calls == 1
