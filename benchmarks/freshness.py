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
from collections.abc import Callable, Iterator
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
    with tempfile.TemporaryDirectory() as place, server(Path(place), "benchmarks.freshness_features") as url:
        accepted, seen = measured(url, lambda seconds: seconds >= SECONDS)
    took = sorted(seen)
    note = f"{len(took)} events watched"
    return [
        Figure("accepted → visible, median", at_share(took, 0.5), "ms", at_most=120, note=note),
        Figure("accepted → visible, p99", at_share(took, 0.99), "ms", at_most=250),
        Figure("of this: until the request is accepted, median", at_share(sorted(accepted), 0.5), "ms"),
    ]


@contextlib.contextmanager
def server(place: Path, module: str) -> Iterator[str]:
    """Run `umbel run` with a module for a `with` block; give its URL once it works."""
    port = free_port()
    command = [sys.executable, "-m", "umbel.cli.main", "run", module]
    options = ["--dir", str(place / "umbel"), "--port", str(port)]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log, env=os.environ)
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: _post(url, [{"uid": 0, "at": _now()}]) and _is_visible(url, 0), 120)
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def measured(
    url: str, is_over: Callable[[float], bool], warm: float = WARM, first: int = 0
) -> tuple[list[float], list[float]]:
    """Post at the rate; return the milliseconds to acceptance of each request, and to visibility of the watched events.

    Args:
        url: of the server.
        is_over: receives the seconds since the beginning; returns whether to stop.
        warm: seconds at the beginning that do not count.
        first: the number of the first request; each has a number of its own.
    """
    watched: queue.Queue[tuple[int, float] | None] = queue.Queue()
    seen: list[float] = []
    watchers = [threading.Thread(target=_watch, args=(url, watched, seen), daemon=True) for _ in range(4)]
    for thread in watchers:
        thread.start()
    accepted, begun, number = [], time.monotonic(), first
    with httpx.Client(base_url=url) as client:
        while not is_over(time.monotonic() - begun):
            due = (number - first) * REQUEST / RATE
            time.sleep(max(0.0, begun + due - time.monotonic()))
            sent, uid = time.monotonic(), PROBES + number
            rows = [{"uid": uid if row == 0 else number * 37 % 100_000 + row, "at": _now()} for row in range(REQUEST)]
            _post_with(client, rows)
            accepted.append((time.monotonic() - sent) * 1000)
            if due >= warm and number % 5 == 0:
                watched.put((uid, time.monotonic()))
            number += 1
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


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition of a server is met."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if condition():
                return
        time.sleep(0.2)
    raise SystemExit(f"{seconds:.0f} s were not enough")


def _now() -> str:
    return datetime.now(UTC).isoformat()


def at_share(ordered: list[float], share: float) -> float:
    """Return the value below which a share of sorted values is."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


if __name__ == "__main__":
    for figure in run():
        print(figure)
