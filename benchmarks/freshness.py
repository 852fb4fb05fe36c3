"""Freshness: from an event the webhook has accepted to a lookup that shows it, at 1 000 events a second.

python -m benchmarks.freshness
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx

from benchmarks.figure import Figure
from benchmarks.process import free_port

RATE = 1_000
REQUEST = 20
"""Events per request."""
SECONDS = 40
WARM = 10
"""Seconds at the beginning that do not count."""
PROBES = 1_000_000_000
"""Users from here on are looked up, each of them once."""


def run() -> list[Figure]:
    """Start umbel, post events, and look for some of them."""
    with tempfile.TemporaryDirectory() as place, server(Path(place)) as url:
        accepted, seen = _measured(url)
    took = sorted(seen)
    note = f"{len(took)} events watched"
    return [
        Figure("accepted → visible, median", _at(took, 0.5), "ms", at_most=400, note=note),
        Figure("accepted → visible, p99", _at(took, 0.99), "ms", at_most=800),
        Figure("of this: until the request is accepted, median", _at(sorted(accepted), 0.5), "ms"),
    ]


@contextlib.contextmanager
def server(place: Path) -> Iterator[str]:
    """Run `umbel run` for a `with` block; give its URL once it works."""
    port = free_port()
    command = [sys.executable, "-m", "umbel.cli.main", "run", "benchmarks.freshness_features"]
    options = ["--dir", str(place / "umbel"), "--port", str(port)]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log, env=os.environ)
        url = f"http://127.0.0.1:{port}"
        try:
            _await(lambda: _post(url, [{"uid": 0, "at": _now()}]) and _is_visible(url, 0), 120)
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _measured(url: str) -> tuple[list[float], list[float]]:
    """Post at the rate; return the milliseconds to acceptance of each request, and to visibility of the watched events."""
    watched: queue.Queue[tuple[int, float] | None] = queue.Queue()
    seen: list[float] = []
    watchers = [threading.Thread(target=_watch, args=(url, watched, seen), daemon=True) for _ in range(4)]
    for thread in watchers:
        thread.start()
    accepted, begun = [], time.monotonic()
    with httpx.Client(base_url=url) as client:
        for number in range(SECONDS * RATE // REQUEST):
            time.sleep(max(0.0, begun + number * REQUEST / RATE - time.monotonic()))
            sent, uid = time.monotonic(), PROBES + number
            rows = [{"uid": uid if row == 0 else number * 37 % 100_000 + row, "at": _now()} for row in range(REQUEST)]
            _post_with(client, rows)
            accepted.append((time.monotonic() - sent) * 1000)
            if number * REQUEST / RATE >= WARM and number % 5 == 0:
                watched.put((uid, time.monotonic()))
    for _ in watchers:
        watched.put(None)
    for thread in watchers:
        thread.join(30)
    return accepted, seen


def _watch(url: str, watched: queue.Queue[tuple[int, float] | None], seen: list[float]) -> None:
    with httpx.Client(base_url=url) as client:
        while (sample := watched.get()) is not None:
            uid, since = sample
            while not _found(client, uid):
                time.sleep(0.005)
            seen.append((time.monotonic() - since) * 1000)


def _found(client: httpx.Client, uid: int) -> bool:
    answer = client.post("/api/v1/dataset/Events/lookup", json={"keys": [{"uid": uid}], "fields": ["events"]})
    return answer.status_code == 200 and bool(answer.json()["found"][0])


def _is_visible(url: str, uid: int) -> bool:
    with httpx.Client(base_url=url) as client:
        return _found(client, uid)


def _post(url: str, rows: list[dict[str, object]]) -> bool:
    with httpx.Client(base_url=url) as client:
        return _post_with(client, rows)


def _post_with(client: httpx.Client, rows: list[dict[str, object]]) -> bool:
    body = {"webhook": "benchmark", "endpoint": "events", "data": rows}
    return client.post("/api/v1/log", json=body).status_code == 200


def _await(condition, seconds: float) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if condition():
                return
        time.sleep(0.2)
    raise SystemExit("umbel did not come up")


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


if __name__ == "__main__":
    for figure in run():
        print(figure)
