"""Steps: what each returns, and for what it fails."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from umbel.errors import UmbelError
from umbel.transform.batches import BatchTransform
from umbel.transform.configuration import loads
from umbel.transform.steps import lookups


def run(record: Any, *steps: dict[str, Any], source: str = "a", head: str = "") -> list[Any]:
    text = json.dumps({"source_field": source, "target_field": "t", "transformations": list(steps)})
    result = BatchTransform(loads(f"{head}\n---\n{text}" if head else text, "c.yaml"))([json.dumps(record).encode()])
    return [each.error for each in result.letters] or [json.loads(line) for line in result.data.splitlines()]


def value(incoming: Any, **step: Any) -> Any:
    (found,) = run({"a": incoming}, step)
    return found["t"] if isinstance(found, dict) else found


@pytest.mark.parametrize(
    ("incoming", "step", "expected"),
    [
        ("Äb", {"name": "lower"}, "äb"),
        ("äb", {"name": "upper"}, "ÄB"),
        (" a\t", {"name": "trim"}, "a"),
        ("a.b", {"name": "replace", "pattern": ".", "by": "-"}, "a-b"),
        ("a1b22", {"name": "replace", "pattern": r"(\d+)", "by": r"<\1>", "regex": True}, "a<1>b<22>"),
        ("x-12", {"name": "regex_extract", "pattern": r"(\d+)", "group": 1}, "12"),
        ("x", {"name": "regex_extract", "pattern": r"\d+"}, None),
        ("a,b", {"name": "split"}, ["a", "b"]),
        (["a", "b"], {"name": "join", "separator": "-"}, "a-b"),
        ("12", {"name": "cast", "type": "int"}, 12),
        (1.9, {"name": "cast", "type": "int"}, 1),
        ("1.5", {"name": "cast", "type": "float"}, 1.5),
        (True, {"name": "cast", "type": "str"}, "true"),
        ({"x": [1]}, {"name": "cast", "type": "str"}, '{"x":[1]}'),
        ("Yes", {"name": "cast", "type": "bool"}, True),
        ("off", {"name": "cast", "type": "bool"}, False),
        ("maybe", {"name": "cast", "type": "bool"}, "ValueError"),
        ("1.10", {"name": "cast", "type": "decimal"}, "1.10"),
        ("2024-01-02T03:04:05+01:00", {"name": "cast", "type": "datetime"}, "2024-01-02T02:04:05Z"),
        (1_700_000_000, {"name": "cast", "type": "datetime"}, "2023-11-14T22:13:20Z"),
        ("2024-01-02T23:30:00-02:00", {"name": "cast", "type": "date"}, "2024-01-03"),
        ("2024-01-01T00:00:00Z", {"name": "cast", "type": "epoch_s"}, 1_704_067_200),
        ("2024-01-01T00:00:00.5Z", {"name": "cast", "type": "epoch_ms"}, 1_704_067_200_500),
        (None, {"name": "cast", "type": "int"}, None),
        (None, {"name": "default", "value": {"x": 1}}, {"x": 1}),
        (0, {"name": "default", "value": 5}, 0),
        (
            "01.02.2024 10:00",
            {"name": "parse_datetime", "format": "%d.%m.%Y %H:%M", "timezone": "Europe/Berlin"},
            "2024-02-01T09:00:00Z",
        ),
        (
            "2024-07-01T00:00:00Z",
            {"name": "format_datetime", "format": "%d.%m.%Y %H:%M", "timezone": "Europe/Berlin"},
            "01.07.2024 02:00",
        ),
        ('{"x":1}', {"name": "json_parse"}, {"x": 1}),
        ('{"x":[1,2]}', {"name": "json_extract", "path": "x[1]"}, 2),
        ({"x": 1}, {"name": "json_extract", "path": "y"}, None),
        ("a", {"name": "hash", "algorithm": "md5"}, "0cc175b9c0f1b6a831c399e269772661"),
        ("a", {"name": "hash", "algorithm": "md5", "salt": "s"}, None),
        ("4111111111111111", {"name": "mask"}, "************1111"),
        ("abc", {"name": "mask", "keep": 5}, "abc"),
        ("de", {"name": "map_values", "values": {"de": "Germany"}, "default": "?"}, "Germany"),
        (None, {"name": "map_values", "values": {"de": "Germany"}, "default": "?"}, "?"),
        ("fr", {"name": "map_values", "values": {"de": "Germany"}}, None),
        (1, {"name": "lower"}, "TypeError"),
    ],
)
def test_a_step_returns(incoming: Any, step: dict[str, Any], expected: Any) -> None:
    if step.get("salt"):
        import hashlib

        expected = hashlib.md5(b"sa").hexdigest()
    assert value(incoming, **step) == expected


def test_filter_leaves_records_out() -> None:
    assert run({"a": "x"}, {"name": "filter"}) == [{"t": "x"}]
    assert run({"a": ""}, {"name": "filter"}) == []
    assert run({"a": 3}, {"name": "filter", "code": "return source_field > 3"}) == []
    assert run(
        {"a": 3, "b": 4},
        head='{"source_field": "b", "transformations": [{"name": "filter", "code": "return source_field > 3"}]}',
    ) == [{"t": 3}]


def test_explode_makes_records() -> None:
    assert run({"a": ["X", "Y"]}, {"name": "explode"}, {"name": "lower"}) == [{"t": "x"}, {"t": "y"}]
    assert run({"a": []}, {"name": "explode"}) == []
    assert run({"a": None}, {"name": "explode"}) == [{"t": None}]


def test_passthrough_keeps_the_other_fields() -> None:
    record = {"b": {"t": 1}, "a": 2}
    assert run(record, head="passthrough: true") == [{"b": {"t": 1}, "a": 2, "t": 2}]


def test_targets_nest_without_changing_the_input() -> None:
    text = "passthrough: true\n---\nsource_field: a\ntarget_field: o.x\n---\nsource_field: o\ntarget_field: p"
    lines = BatchTransform(loads(text))([b'{"o":{"y":1},"a":2}'])
    assert lines.data == b'{"o":{"y":1,"x":2},"a":2,"p":{"y":1}}\n'


@pytest.mark.parametrize(("there", "kind"), [("text", "str"), ([{"x": 1}], "list"), (5, "int"), (False, "bool")])
@pytest.mark.parametrize("code", ["return 7", "import os; return 7"])
def test_a_target_inside_of_a_value_that_stays_makes_a_dead_letter(there: Any, kind: str, code: str) -> None:
    """The text or list was replaced by an object, without a word."""
    steps = json.dumps([{"name": "custom_code", "code": code}])
    text = f"passthrough: true\n---\nsource_field: a\ntarget_field: o.p.x\ntransformations: {steps}"
    records = [{"a": 1, "o": {"p": there}}, {"a": 1, "o": None}, {"a": 1}, {"a": 1, "o": there}]
    for transform in (BatchTransform(loads(text, "c.yaml")), BatchTransform(loads(text, "c.yaml")).without_plan):
        result = transform([json.dumps(each).encode() for each in records])
        assert [json.loads(each) for each in result.data.splitlines()] == [{"a": 1, "o": {"p": {"x": 7}}}] * 2
        found = [(each.row, each.step, each.field, each.at, each.error, each.message) for each in result.letters]
        where = ("write", "o.p.x", "c.yaml:3", "TypeError")
        assert found == [
            (0, *where, f"expected an object in 'p', found {kind}"),
            (3, *where, f"expected an object in 'o', found {kind}"),
        ]


@pytest.mark.parametrize(
    ("on_error", "expected"), [("null", [{"t": None}]), ("drop", []), ("dead_letter", ["TypeError"])]
)
def test_on_error(on_error: str, expected: list[Any]) -> None:
    assert run({"a": 1}, {"name": "lower", "on_error": on_error}) == expected


def test_one_bad_record_costs_no_other() -> None:
    text = json.dumps({"source_field": "a", "target_field": "t", "transformations": [{"name": "lower"}]})
    result = BatchTransform(loads(text))([b'{"a":"X"}', b'{"a":1}', b"broken", b'{"a":"Y"}'])
    assert result.data == b'{"t":"x"}\n{"t":"y"}\n'
    assert [(each.row, each.step) for each in result.letters] == [(1, "lower"), (2, "read")]


def test_a_batch_of_other_types_makes_another_plan() -> None:
    transform = BatchTransform(loads("source_field: a\ntarget_field: t"))
    assert transform([b'{"a":1}'] * 9).one_by_one == 0
    assert transform([b'{"a":"x"}'] * 9).one_by_one == 9
    assert transform([b'{"a":"x"}'] * 9).one_by_one == 0


@pytest.mark.parametrize(
    ("incoming", "expr", "expected"),
    [
        ("ab", "col('value').str.len()", 2),
        (2, "col('value') * 2.5", 5.0),
        (True, "~col('value')", False),
        (None, "col('value') + 1", None),
        (1, "col('value').str.len()", "ValueError"),
        ([1], "col('value')", "TypeError"),
        (2**70, "col('value') + 1", "ValueError"),
    ],
)
def test_expr_is_umbels_own_language(incoming: Any, expr: str, expected: Any) -> None:
    assert value(incoming, name="expr", expr=expr) == expected


@pytest.mark.parametrize("expr", ["col('value", "col('other')", "3", "open('x')", "().__class__"])
def test_what_is_no_expression_is_refused(expr: str) -> None:
    with pytest.raises(UmbelError, match=r"(no expression|reads 'other').*c\.yaml:1"):
        value(1, name="expr", expr=expr)


class _Server(BaseHTTPRequestHandler):
    requests: ClassVar[list[Any]] = []
    odd = b""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.requests.append((self.path, self.headers["authorization"], body))
        keys = body["keys"]["user"]
        known = [isinstance(each, int) for each in keys]
        bad = any(isinstance(each, str) for each in keys)
        if "odd" in self.path:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(_Server.odd)
            return
        data = (
            b"refused"
            if bad
            else json.dumps({"data": {"city": [f"c{each}" for each in keys]}, "found": known}).encode()
        )
        self.send_response(400 if bad else 200)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


def test_lookup_asks_once_for_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMBEL_TOKEN", "t")
    server = HTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    step = {
        "name": "lookup",
        "dataset": "Users",
        "key": "user",
        "field": "city",
        "url": f"http://127.0.0.1:{server.server_port}/",
    }
    text = json.dumps({"source_field": "a", "target_field": "t", "transformations": [step]})
    result = BatchTransform(loads(text))([json.dumps({"a": each}).encode() for each in (1, 2, 1, None, 2.5)])
    assert [json.loads(line)["t"] for line in result.data.splitlines()] == ["c1", "c2", "c1", None, None]
    assert _Server.requests == [
        ("/api/v1/dataset/Users/lookup", "Bearer t", {"keys": {"user": [1, 2, 2.5]}, "fields": ["city"]})
    ]
    result = BatchTransform(loads(text))([b'{"a":1}', b'{"a":"x"}'])
    assert (result.data, [each.error for each in result.letters]) == (b'{"t":"c1"}\n', ["ValueError"])
    for odd in (b"<html>", b"[]", b'{"data":{},"found":[true]}', b'{"data":{"city":[]},"found":[]}', b"\xff"):
        _Server.odd, step["dataset"] = odd, "odd"
        broken = BatchTransform(
            loads(json.dumps({"source_field": "a", "target_field": "t", "transformations": [step]}))
        )
        assert {each.step for each in broken([b'{"a":1}', b'{"a":2}']).letters} == {"lookup"}
        assert len(broken([b'{"a":1}', b'{"a":2}', b'{"a":null}']).letters) == 2
    server.shutdown()
    server.server_close()
    monkeypatch.setattr(lookups, "RETRIED_FOR", 0.5)
    assert [each.error for each in BatchTransform(loads(text))([b'{"a":1}']).letters] == ["ConnectionError"]
    monkeypatch.setattr(lookups, "RETRIED_FOR", 1e9)  # it is not tried for so long again
    assert [each.error for each in BatchTransform(loads(text))([b'{"a":1}']).letters] == ["ConnectionError"]


class _Restarting(BaseHTTPRequestHandler):
    answers: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b'{"data": {"city": ["c"]}, "found": [true]}')
        self.close_connection = True  # without an answer, if there is none

    def log_message(self, *_: Any) -> None: ...


@pytest.mark.parametrize(
    ("statuses", "error"),
    [([0, 503, 429, 200], None), ([502, 0, 504, 200], None), ([401], "ValueError"), ([503, 500], "ValueError")],
)
def test_lookup_waits_for_a_server_that_restarts(
    statuses: list[int], error: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record of that moment was a dead letter."""
    monkeypatch.setattr(lookups, "PAUSE", 0.01)
    monkeypatch.setattr(lookups, "RETRIED_FOR", 60.0)
    monkeypatch.setattr(_Restarting, "answers", list(statuses))
    server = HTTPServer(("127.0.0.1", 0), _Restarting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    step = {"name": "lookup", "dataset": "Users", "key": "user", "field": "city", "url": url}
    text = json.dumps({"source_field": "a", "target_field": "t", "transformations": [step]})
    result = BatchTransform(loads(text))([b'{"a":1}', b'{"a":1}'])
    server.shutdown()
    server.server_close()
    assert result.data == (b"" if error else b'{"t":"c"}\n' * 2)
    assert {each.error for each in result.letters} == ({error} if error else set())
    assert _Restarting.answers == statuses[-1:]


@pytest.mark.parametrize("machine", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize(
    ("text", "layout", "expected"),
    [
        ("2026-01-02 03:04 GMT", "%Y-%m-%d %H:%M %Z", "2026-01-02T03:04:00Z"),
        ("2026-01-02 03:04 est", "%Y-%m-%d %H:%M %Z", "2026-01-02T08:04:00Z"),
        ("2026-07-02 03:04 PDT", "%Y-%m-%d %H:%M %Z", "2026-07-02T10:04:00Z"),
        ("Z 2026-07-02", "%Z %Y-%m-%d", "2026-07-02T00:00:00Z"),
        ("est: 2026-07-02 UTC", "est: %Y-%m-%d %Z", "2026-07-02T00:00:00Z"),
        ("2026-01-02 +0530 (UTC)", "%Y-%m-%d %z (%Z)", "2026-01-01T18:30:00Z"),
        ("2026-01-02 %Z", "%Y-%m-%d %%Z", "2026-01-01T15:00:00Z"),
        ("2026-01-02 IST", "%Y-%m-%d %Z", None),
        ("2026-01-02 BEST", "%Y-%m-%d %Z", None),
        ("2026-01-02 ", "%Y-%m-%d %Z", None),
    ],
)
def test_a_named_zone_is_the_same_on_all_machines(
    text: str, layout: str, expected: str | None, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", machine)
    time.tzset()
    try:
        found = value(text, name="parse_datetime", format=layout, timezone="Asia/Tokyo")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == (expected or "ValueError")


@pytest.mark.parametrize(("step", "text"), [("lower", "A\ua7cb"), ("upper", "a\u019b"), ("trim", "\xa0a\x85")])
def test_characters_of_other_versions_of_unicode_are_pythons(step: str, text: str) -> None:
    method = {"lower": str.lower, "upper": str.upper, "trim": str.strip}[step]
    assert value(text, name=step) == method(text)


@pytest.mark.parametrize(
    "code", ["source_field / 3", "(source_field + 0.5) / 7", "source_field / 49.0", "-source_field / 10"]
)
def test_a_quotient_is_rounded_as_python_rounds_it(code: str) -> None:
    step = {"name": "custom_code", "code": f"return {code}"}
    text = json.dumps({"source_field": "a", "target_field": "t", "transformations": [step]})
    result = BatchTransform(loads(text))([json.dumps({"a": each}).encode() for each in range(1, 5000)])
    expected = [eval(code, {"source_field": each}) for each in range(1, 5000)]
    assert [json.loads(line)["t"] for line in result.data.splitlines()] == expected
    assert result.one_by_one == 0


@pytest.mark.parametrize("number", ["1e999999999", "-1E+99999", "1e4300"])
def test_a_huge_number_is_not_written_out(number: str) -> None:
    """A text of a few characters made an integer of a billion digits, which no limit of time ends in a stream."""
    steps = [{"name": "cast", "type": "decimal"}, {"name": "cast", "type": "int"}]
    assert run({"a": number}, *steps) == ["ValueError"]
    assert run({"a": "1e20"}, *steps) == [{"t": 10**20}]
