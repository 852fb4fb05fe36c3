"""Events over HTTP: what is accepted is stored as it was sent; what does not fit becomes a dead letter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.serving.conftest import DEPARTURES, NOON, Served
from umbel.errors import InvalidValue, UmbelError
from umbel.serving.ingestion import taken

GOOD = {"origin": "JFK", "delay": 1, "ratio": 1.5, "at": NOON}


def rows_of(served: Served) -> list[dict[str, Any]]:
    data = served.http.get("/api/v1/dataset/Departure/inspect?n=1000").json()["data"]
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]


def test_rows_are_accepted_in_both_forms(fresh: Served) -> None:
    columns = {"origin": ["EWR"], "delay": [7], "ratio": [None], "at": [NOON]}
    assert fresh.log("departures", DEPARTURES).json() == {"rows": 3, "first_row": 0, "repeated": False}
    assert fresh.log("departures", columns).json() == {"rows": 1, "first_row": 3, "repeated": False}
    assert fresh.process() == 1
    assert {(row["origin"], row["delay"]) for row in rows_of(fresh)} == {
        ("JFK", 30),
        ("JFK", 10),
        ("LGA", -5),
        ("EWR", 7),
    }
    assert fresh.dead("Departure") == []


def test_no_rows_are_nothing(fresh: Served) -> None:
    assert fresh.log("departures", []).json() == {"rows": 0}
    assert fresh.log("departures", {}).json() == {"rows": 0}
    assert fresh.log("departures", {"origin": []}).json() == {"rows": 0}


def test_a_repeated_request_is_stored_once(fresh: Served) -> None:
    header = {"Idempotency-Key": "batch-7"}
    first = fresh.log("departures", DEPARTURES, headers=header).json()
    again = fresh.log("departures", DEPARTURES, headers=header).json()
    assert again == first | {"repeated": True}
    assert fresh.log("planes", [], headers=header).status_code == 200
    fresh.process()
    assert len(rows_of(fresh)) == 3


def test_a_key_of_other_rows_is_refused(fresh: Served) -> None:
    header = {"Idempotency-Key": "batch-8"}
    first = fresh.log("departures", DEPARTURES, headers=header).json()
    for other in (DEPARTURES[:2], [*DEPARTURES[:2], {**DEPARTURES[2], "delay": 77}]):
        refused = fresh.log("departures", other, headers=header)
        assert refused.status_code == 409
        assert refused.json()["code"] == "conflict"
        assert "key of their own" in refused.json()["hint"]
    respelled = [dict(reversed(row.items())) for row in DEPARTURES]
    assert fresh.log("departures", respelled, headers=header).json() == first | {"repeated": True}
    columns = {name: [row.get(name) for row in DEPARTURES] for name in DEPARTURES[0]}
    fresh.log("departures", columns, headers={"Idempotency-Key": "columns"})
    repeated = fresh.log("departures", columns, headers={"Idempotency-Key": "columns"})
    assert repeated.json()["repeated"] is True
    fresh.process()
    assert len(rows_of(fresh)) == 2 * len(DEPARTURES)


def test_the_header_that_names_a_batch_must_name_it(fresh: Served) -> None:
    assert fresh.log("departures", DEPARTURES, headers={"Idempotency-Key": " "}).status_code == 400
    assert fresh.log("departures", DEPARTURES, headers={"Idempotency-Key": "x" * 2000}).status_code == 400


def test_unknown_endpoints_are_reported(fresh: Served) -> None:
    answer = fresh.log("departure", DEPARTURES)
    assert answer.status_code == 404
    assert "did you mean 'events/departures'" in answer.json()["message"]


MISFITS: list[tuple[Any, str, str]] = [
    ({**GOOD, "delay": "soon"}, "delay", "soon"),
    ({**GOOD, "delay": 1.5}, "delay", "1.5"),
    ({**GOOD, "delay": None}, "delay", "null"),
    ({**GOOD, "delay": 2**70}, "delay", str(2**70)),
    ({**GOOD, "delay": [1]}, "delay", "[1]"),
    ({**GOOD, "ratio": "NaNa"}, "ratio", "NaNa"),
    ({**GOOD, "at": "yesterday"}, "at", "yesterday"),
    ({**GOOD, "at": 10**40}, "at", ""),
    ({key: value for key, value in GOOD.items() if key != "origin"}, "origin", "null"),
    (7, "", "object"),
    (None, "", "object"),
    ([GOOD], "", "object"),
    ("row", "", "object"),
]


def test_a_row_that_does_not_fit_becomes_a_dead_letter(fresh: Served) -> None:
    for row, _, _ in MISFITS:
        assert fresh.log("departures", [GOOD, row, GOOD]).status_code == 200
    fresh.process()
    assert len(rows_of(fresh)) == 2 * len(MISFITS)
    letters = fresh.dead("Departure")[::-1]
    assert [letter["position"].rpartition(", ")[2] for letter in letters] == ["row 1"] * len(MISFITS)
    for letter, (row, at, words) in zip(letters, MISFITS, strict=True):
        assert (letter["field"], words in letter["reason"], json.loads(letter["raw"])) == (at, True, row), letter


def test_strange_instants_are_instants(fresh: Served) -> None:
    instants = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2013-12-01", 0, -(10**10), 1385899200000]
    fresh.log("departures", [{**GOOD, "at": instant} for instant in instants])
    fresh.process()
    assert len(rows_of(fresh)) + len(fresh.dead("Departure")) == len(instants)
    assert len(rows_of(fresh)) >= 4


def test_long_strings_and_unknown_fields_are_taken(fresh: Served) -> None:
    long = "x" * (10 << 20)
    assert fresh.log("departures", [{**GOOD, "origin": long, "unknown": {"a": [1]}}]).status_code == 200
    fresh.process()
    (row,) = rows_of(fresh)
    assert row["origin"] == long
    found = fresh.post("/api/v1/dataset/DelayOfOrigin/lookup", {"keys": {"origin": [long]}, "as_of": NOON}).json()
    assert found["data"]["departures"] == [1]


def test_integers_stay_exact(fresh: Served) -> None:
    body = b'{"webhook": "events", "endpoint": "departures", "data": [{"delay": 123456789012345678901234567890}]}'
    assert taken(body)[2] == b'[{"delay": 123456789012345678901234567890}]'
    columns = b'{"webhook": "events", "endpoint": "departures", "data": {"delay": [123456789012345678901234567890]}}'
    assert taken(columns)[2:4] == (b'[{"delay":123456789012345678901234567890}]', 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"webhook": "events"',
        b'{"webhook": "events", "endpoint": "departures", "data": [{"delay": NaN}]}',
        b'{"webhook": "events", "endpoint": "departures", "data": [{"delay": Infinity}]}',
        b'{"webhook": "events", "endpoint": "departures", "data": [{"origin": "\xff"}]}',
        b'{"webhook": "events", "endpoint": "departures", "data": [{"origin": "\\ud800"}]}',
        b'{"webhook": "events", "endpoint": "departures", "data": [1,]}',
        b'{"webhook": "events", "endpoint": "departures", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"webhook": "events", "endpoint": "departures", "data": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"webhook": "events", "endpoint": "departures", "data": "text"}',
        b'{"webhook": "events", "endpoint": "departures", "data": 7}',
        b'{"webhook": "events", "endpoint": "departures", "data": null}',
        b'{"webhook": "events", "endpoint": "departures", "data": {"a": 7}}',
        b'{"webhook": "events", "endpoint": "departures", "data": {"a": [1], "b": []}}',
        b'{"webhook": "events", "endpoint": "departures"}',
        b'{"webhook": 7, "endpoint": "departures", "data": []}',
        b'{"webhook": "events", "endpoint": null, "data": []}',
        b'\xef\xbb\xbf{"webhook": "events", "endpoint": "departures", "data": []}',
    ],
    ids=lambda body: repr(body[:80]),
)
def test_what_is_no_request_is_refused_whole(flights: Served, body: bytes) -> None:
    answer = flights.http.post("/api/v1/log", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"code", "message", "hint"}
    with pytest.raises(UmbelError):
        taken(body)


def test_a_repeated_member_is_named() -> None:
    with pytest.raises(InvalidValue, match="the body has 'webhook' more than once"):
        taken(b'{"webhook": 5, "webhook": "events", "endpoint": "departures", "data": []}')
