"""A real collector: durable answers, retries, hostile requests, quotas, back-pressure, a drain."""

from __future__ import annotations

import gzip
import json
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.collecting import CollectorProcess, stored
from tests.deployed import wait_until
from tests.scenarios.test_security import certificate
from umbel.collector.backlog import end_of_log
from umbel.log.collected import log_of
from umbel.log.readers import note_position
from umbel.log.segments import ORIGIN

HEAD = b"POST /api/v1/events/raw HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def started(folder: Path, *options: str, **environment: str) -> CollectorProcess:
    collector = CollectorProcess(folder, *options, environment=environment)
    collector.wait()
    return collector


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    collector = started(tmp_path_factory.mktemp("collector"), "--max-body", "100KiB", "--max-event", "10KiB")
    yield collector
    assert collector.stop() == 0


def test_an_event_a_list_and_lines_are_stored_in_order(shared: CollectorProcess) -> None:
    assert shared.post({"n": 0}, "order").json() == {"accepted": 1, "first_row": 0}
    assert shared.post([{"n": 1}, {"n": 2}], "order").json() == {"accepted": 2, "first_row": 1}
    lines = b'{"n": 3}\n{"n": 4}\n'
    assert shared.post(
        gzip.compress(lines), "order", Content_Encoding="gzip", Content_Type="application/x-ndjson"
    ).json() == {
        "accepted": 2,
        "first_row": 3,
    }
    assert stored(shared.directory, "order") == [{"n": n} for n in range(5)]


def test_rejected_events_are_answered_one_by_one_and_stored(shared: CollectorProcess) -> None:
    found = shared.post(b'[{"n": 1}, 7, {"n": 2}]', "part")
    assert found.status_code == 200
    assert found.json() == {
        "accepted": 2,
        "rejected": 1,
        "errors": [{"index": 1, "reason": "it must be a JSON object, found a number"}],
        "first_row": 0,
    }
    nothing = shared.post(b'{"n": NaN}', "part", Idempotency_Key="k")
    assert (nothing.status_code, nothing.json()["code"], nothing.json()["accepted"]) == (422, "rejected-events", 0)
    assert shared.post(b'{"n": NaN}', "part", Idempotency_Key="k").status_code == 422  # its letter is stored once
    assert stored(shared.directory, "part") == [{"n": 1}, {"n": 2}]
    letters = stored(shared.directory, "part", dead=True)
    assert [(each["event"], each["index"], each["idempotency_key"]) for each in letters] == [
        ("7", 1, None),
        ('{"n": NaN}', 0, "k"),
    ]
    assert shared.metric("umbel_collect_events_total", stream="part", outcome="rejected") == 3


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (415, {"Content-Type": "text/plain"}),
        (415, {"Content-Encoding": "br"}),
        (403, {"Origin": "https://elsewhere.example"}),
        (400, {"Idempotency-Key": ""}),
        (400, {"Idempotency-Key": "x" * 1025}),
        (400, {"Content-Encoding": "gzip"}),
        (200, {"Content-Type": "application/json; charset=utf-8"}),
    ],
    ids=str,
)
def test_headers(shared: CollectorProcess, status: int, headers: dict[str, str]) -> None:
    found = shared.post({"n": 1}, "headers", **headers)
    assert found.status_code == status
    assert status == 200 or found.json()["message"]


@pytest.mark.parametrize(
    ("status", "method", "path"),
    [
        (404, "GET", "/"),
        (404, "POST", "/api/v1/log"),
        (405, "GET", "/api/v1/events/clicks"),
        (405, "DELETE", "/readyz"),
        (400, "POST", "/api/v1/events/"),
        (400, "POST", "/api/v1/events/a/b"),
        (400, "POST", "/api/v1/events/..%2F..%2Fetc"),
        (400, "POST", "/api/v1/events/%00"),
        (400, "POST", "/api/v1/events/" + "x" * 101),
    ],
)
def test_paths(shared: CollectorProcess, status: int, method: str, path: str) -> None:
    found = shared.http.request(method, path, content=b"{}" if method == "POST" else None)
    assert found.status_code == status, found.text
    assert found.json()["code"]


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
HOSTILE: list[tuple[str, list[bytes], bytes]] = [
    ("chunks", [CHUNKED + b'4\r\n{"n"\r\n', b"4\r\n: 1}\r\n0\r\nIdempotency-Key: x\r\n\r\n"], b"200"),
    ("a wrong chunk", [CHUNKED + b"zz\r\n{}\r\n"], b"400"),
    ("endless chunks", [CHUNKED + b"ffff\r\n" + b" " * 0xFFFF + b"\r\nffff\r\n" + b" " * 0xFFFF], b"413"),
    ("a cut body", [HEAD + b"Content-Length: 100\r\n\r\n{}"], b"400"),
    ("a longer body", [HEAD + b"Content-Length: 2\r\n\r\n{}{}"], b"200"),
    ("two lengths", [HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"], b"400"),
    ("length and chunks", [HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], b"400"),
    ("a negative length", [HEAD + b"Content-Length: -1\r\n\r\n"], b"400"),
    ("a vast length", [HEAD + b"Content-Length: 99999999999999\r\n\r\n"], b"413"),
    ("a length beyond numbers", [HEAD + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n"], b"4"),
    ("no length", [HEAD + b"\r\n"], b"422"),
    ("no type", [b"POST /api/v1/events/raw HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"], b"200"),
    ("two keys", [HEAD + b"Idempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Length: 2\r\n\r\n{}"], b"400"),
    ("a cut head", [HEAD], b"400"),
    ("a long head", [b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 70_000], b"431"),
    ("many headers", [b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000], b"431"),
    ("no HTTP", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], b"400"),
    ("HTTP/2", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], b"400"),
    ("an upgrade", [b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"], b"4"),
    ("a tunnel", [b"CONNECT example:443 HTTP/1.1\r\nHost: example\r\n\r\n"], b"4"),
    ("HTTP/1.0", [b"POST /api/v1/events/raw HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"], b"200"),
    ("a path of bytes", [b"POST /api/v1/events/\xff\xfe HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"], b"400"),
    ("nothing", [b""], b""),
]


@pytest.mark.parametrize(("parts", "status"), [each[1:] for each in HOSTILE], ids=[each[0] for each in HOSTILE])
def test_a_hostile_request_is_answered_and_ends_nothing(
    shared: CollectorProcess, parts: list[bytes], status: bytes
) -> None:
    process = shared.process.pid
    found = shared.raw(*parts, half_close=True)
    assert found[9:12].startswith(status), found
    assert b"\r\n" not in found or b"Traceback" not in found
    assert shared.post({"n": 1}, "alive").status_code == 200
    assert shared.process.poll() is None
    assert shared.process.pid == process
    assert "Traceback" not in shared.said


def test_a_trailer_is_no_header(shared: CollectorProcess) -> None:
    for _ in range(2):
        shared.raw(
            CHUNKED.replace(b"/raw", b"/trailer") + b"2\r\n{}\r\n0\r\nIdempotency-Key: x\r\n\r\n", half_close=True
        )
    assert stored(shared.directory, "trailer") == [{}, {}]


def test_requests_sent_without_waiting_are_answered_in_order(shared: CollectorProcess) -> None:
    def request(n: int) -> bytes:
        body = b'{"n": %d}' % n if n % 3 else b"nonsense"
        head = HEAD.replace(b"/raw", b"/pipelined")
        return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    found = shared.raw(b"".join(map(request, range(300))), half_close=True)
    answers = found.split(b"HTTP/1.1 ")[1:]
    assert [each[:3] for each in answers] == [b"200" if n % 3 else b"422" for n in range(300)]
    assert [each["n"] for each in stored(shared.directory, "pipelined")] == [n for n in range(300) if n % 3]


def test_a_client_that_waits_for_permission_gets_it(shared: CollectorProcess) -> None:
    head = HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    assert shared.raw(head).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    refused = shared.raw(head.replace(b"Content-Length: 2", b"Content-Length: 999999"))
    assert refused.startswith(b"HTTP/1.1 413")


def test_at_most_a_hundred_streams_are_made(tmp_path: Path) -> None:
    collector = started(tmp_path)
    statuses = [collector.post({}, f"s{n}").status_code for n in range(102)]
    assert statuses == [200] * 100 + [404] * 2
    assert collector.post({}, "s7").status_code == 200
    collector.stop()


def test_a_retried_request_is_stored_once_also_after_a_restart(tmp_path: Path) -> None:
    collector = started(tmp_path, "--processes", "2")
    first = collector.post([{"n": 1}, {"n": 2}], Idempotency_Key="a").json()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: collector.post([{"n": 1}, {"n": 2}], Idempotency_Key="a").json(), range(20)))
    assert found == [{**first, "repeated": True}] * 20
    collector.kill()
    collector.begin()
    collector.wait()
    assert collector.post([{"n": 1}, {"n": 2}], Idempotency_Key="a").json() == {**first, "repeated": True}
    refused = collector.post([{"n": 1}, {"n": 7}], Idempotency_Key="a")
    assert refused.status_code == 409
    assert "other events" in refused.json()["message"]
    assert collector.post([{"n": 3}], Idempotency_Key="b").json() == {"accepted": 1, "first_row": 2}
    assert stored(collector.directory) == [{"n": 1}, {"n": 2}, {"n": 3}]
    collector.stop()


def test_a_schema_rejects_events_with_the_reason(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "required": ["user"],
        "properties": {"user": {"type": "integer"}, "page": {"properties": {"tags": {"items": {"type": "string"}}}}},
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    collector = started(tmp_path, "--schema", str(tmp_path / "schema.json"))
    found = collector.post([{"user": 1}, {"user": "x"}, {}, {"user": 2, "page": {"tags": ["a", 7]}}]).json()
    assert found["accepted"] == 1
    reasons = [each["reason"] for each in found["errors"]]
    assert [reason.partition(":")[0] for reason in reasons] == ["user", "the event", "page.tags[1]"]
    assert [each["reason"] for each in stored(collector.directory, dead=True)] == reasons
    collector.stop()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--schema", "bad.json"], "schema"),
        (["--keys", "bad.json"], "keys"),
        (["--to", "http://x/y"], "kafka://host:port/topic"),
        (["--to", "kafka://user:secret@x:1/y"], "kafka://host:port/topic"),
        (["--host", "0.0.0.0"], "--without-keys"),
        (["--stream", "a.b"], "name of a stream"),
        (["--retention", "soon"], "duration"),
        (["--max-body", "1TB"], "--max-body"),
        (["--tls-cert", "bad.json"], "--tls-key"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_with_a_remedy(tmp_path: Path, options: list[str], reason: str) -> None:
    (tmp_path / "bad.json").write_text("{")
    command = [sys.executable, "-m", "umbel.cli.main", "collect", "--dir", "events", "--port", "1", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_and_a_port_are_of_one_collector(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    collector = started(tmp_path)
    for directory, port in ((collector.directory, collector.port + 1), (tmp_path / "other", collector.port)):
        command = [sys.executable, "-m", "umbel.cli.main", "collect", "--dir", str(directory), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 2
        assert "another collector runs" in done.stderr or "nothing can listen" in done.stderr
        assert "stored in" not in done.stderr
    collector.stop()


def test_keys_and_quotas(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[mobile]\nkey = "mobile-secret"\nevents_per_second = 0.5\nburst = 10\nstreams = ["clicks"]\n')
    collector = started(tmp_path, "--keys", str(keys), "--processes", "2")
    allowed = {"Authorization": "Bearer mobile-secret"}
    assert collector.post({}).status_code == 401
    assert collector.post({}, Authorization="Bearer wrong").status_code == 401
    assert collector.post({}, "orders", **allowed).status_code == 403
    assert collector.post([{}] * 12, **allowed).status_code == 200
    refused = collector.post({}, **allowed)
    assert (refused.status_code, refused.json()["code"]) == (429, "over-quota")
    assert 1 <= int(refused.headers["Retry-After"]) <= 4
    assert len(stored(collector.directory)) == 12
    keys.write_text('[other]\nkey = "other-secret"\n')
    wait_until(
        lambda: collector.post({}, Authorization="Bearer other-secret").status_code == 200, lambda: collector.said
    )
    wait_until(lambda: collector.post({}, **allowed).status_code == 401, lambda: collector.said)
    keys.write_text("[")
    wait_until(lambda: "cannot be read" in collector.said, lambda: collector.said)
    assert collector.post({}, Authorization="Bearer other-secret").status_code == 200
    collector.stop()


def test_a_backlog_refuses_until_its_reader_has_read(tmp_path: Path) -> None:
    collector = started(tmp_path, UMBEL_BACKLOG_BYTES="10000")
    log = log_of(collector.directory, "clicks")
    assert collector.post([{"n": "x" * 1000}] * 20).status_code == 200
    time.sleep(1.2)  # a look at the backlog: without a reader, nobody has promised to read
    assert collector.post({}).status_code == 200
    note_position(log, "r", "a test", ORIGIN)
    wait_until(lambda: collector.post({}).status_code == 429, lambda: collector.said)
    refused = collector.post({})
    assert (refused.json()["code"], refused.headers["Retry-After"]) == ("overloaded", "5")
    assert collector.post({}, "other").status_code == 200
    assert collector.metric("umbel_collect_refused") == 1
    assert collector.metric("umbel_collect_backlog_rows", stream="clicks") >= 20
    note_position(log, "r", "a test", end_of_log(log))
    wait_until(lambda: collector.post({}).status_code == 200, lambda: collector.said)
    collector.stop()


def test_a_full_disk_refuses_and_is_not_ready(tmp_path: Path) -> None:
    collector = started(tmp_path, UMBEL_DISK_RESERVE="4000TB")
    assert collector.post({}).status_code == 429
    assert collector.http.get("/readyz").status_code == 503
    assert collector.http.get("/healthz").status_code == 200
    assert stored(collector.directory) == []
    collector.stop()


@pytest.mark.parametrize(("processes", "by"), [("1", signal.SIGTERM), ("1", signal.SIGHUP), ("2", signal.SIGHUP)])
def test_a_drain_answers_what_has_arrived(tmp_path: Path, processes: str, by: signal.Signals) -> None:
    collector = started(tmp_path, "--processes", processes)
    answered: list[int] = []
    stop = threading.Event()

    def send(worker: int) -> None:
        with httpx.Client(base_url=collector.http.base_url) as client:
            for n in range(100_000):
                if stop.is_set():
                    return
                number = worker * 1_000_000 + n
                try:
                    found = client.post("/api/v1/events/clicks", json={"n": number})
                except httpx.TransportError:
                    return
                if found.status_code == 200:
                    answered.append(number)

    threads = [threading.Thread(target=send, args=(worker,)) for worker in range(6)]
    for each in threads:
        each.start()
    wait_until(lambda: len(answered) > 200, lambda: collector.said)
    assert collector.stop(by) == 0
    stop.set()
    for each in threads:
        each.join()
    assert {each["n"] for each in stored(collector.directory)} >= set(answered)
    assert "Traceback" not in collector.said


def test_events_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    collector = CollectorProcess(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key))
    collector.http = httpx.Client(
        base_url=f"https://localhost:{collector.port}",
        verify=ssl.create_default_context(cafile=str(cert)),
    )
    wait_until(lambda: _answers(collector), lambda: collector.said)
    assert collector.post({"n": 1}).json() == {"accepted": 1, "first_row": 0}
    assert collector.post(b" " * (9 << 20)).status_code == 413
    assert collector.raw(HEAD) == b""
    assert collector.post({"n": 2}).status_code == 200
    assert collector.stop() == 0
    assert stored(collector.directory) == [{"n": 1}, {"n": 2}]


def test_a_process_that_ends_is_started_again(tmp_path: Path) -> None:
    collector = started(tmp_path, "--processes", "2")
    assert collector.post({"n": 1}).status_code == 200
    family = [each for each in collector.family() if "spawn_main" in " ".join(each.cmdline())]
    for each in family:
        each.kill()
    collector.http.close()
    collector.http = httpx.Client(base_url=f"http://127.0.0.1:{collector.port}")
    wait_until(lambda: _answers(collector), lambda: collector.said)
    assert collector.post({"n": 2}).status_code == 200
    assert stored(collector.directory) == [{"n": 1}, {"n": 2}]
    wait_until(lambda: collector.metric("umbel_collect_events_total", outcome="accepted") >= 1, lambda: collector.said)
    collector.stop()


def _answers(collector: CollectorProcess) -> bool:
    try:
        return collector.http.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_events_go_into_a_transformation(tmp_path: Path) -> None:
    collector = started(tmp_path)
    collector.post([{"name": " Ada "}, {"name": "Bob", "page": {"n": 1}}])
    collector.stop()
    (tmp_path / "config.yaml").write_text("source_field: name\ntarget_field: user\ntransformations: [{name: trim}]\n")
    umbel = f"{sys.executable} -m umbel.cli.main"
    command = f"{umbel} collect cat clicks --dir events | {umbel} transform -q --config config.yaml"
    done = subprocess.run(command, cwd=tmp_path, shell=True, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == '{"user":"Ada"}\n{"user":"Bob"}\n'
    after: Any = subprocess.run(
        f"{umbel} collect cat clicks --dir events --after 1", cwd=tmp_path, shell=True, capture_output=True, check=True
    )
    assert json.loads(after.stdout)["name"] == "Bob"
