"""API keys of a collector and their quotas."""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from umbel.collector import keys as module
from umbel.collector.keys import ApiKeys, TokenBucket
from umbel.errors import InvalidType, InvalidValue
from umbel.request_errors import Forbidden, OverQuota, Unauthenticated


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_bucket_fills_at_its_rate_and_not_above_its_burst(tmp_path: Path, clock: Clock) -> None:
    bucket = TokenBucket(tmp_path / "b", rate=10, burst=20)
    assert bucket.take(15) == 0
    assert bucket.take(15) == 0  # 5 are there: the request passes, and its debt is waited for
    assert bucket.take(1) == pytest.approx(1.0)
    clock.now += 0.5
    assert bucket.take(1) == pytest.approx(0.5)
    clock.now += 0.6
    assert bucket.take(1) == 0
    clock.now += 3600
    assert bucket.take(20) == 0
    assert bucket.take(1) == pytest.approx(0.0, abs=1e-9) or bucket.take(1) > 0


def test_a_clock_that_begins_anew_neither_blocks_nor_fills(tmp_path: Path, clock: Clock) -> None:
    bucket = TokenBucket(tmp_path / "b", rate=10, burst=20)
    bucket.take(30)
    clock.now = 5.0
    assert bucket.take(1) == pytest.approx(1.0)
    clock.now = 6.1
    assert bucket.take(1) == 0


def test_processes_share_a_bucket(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from umbel.collector.keys import TokenBucket\n"
        "b = TokenBucket(Path(sys.argv[1]), 0.001, 1000)\n"
        "print(sum(b.take(1) == 0 for _ in range(600)))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "b")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sum(int(each.communicate()[0]) for each in running) in (1000, 1001)


def test_a_bucket_that_another_process_makes_is_not_filled_again(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from umbel.collector.keys import TokenBucket\n"
        "print('begun', flush=True)\n"
        "print(TokenBucket(Path(sys.argv[1]), 1, 1000).take(1))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "b")]
    with (tmp_path / "b").open("w+b", buffering=0) as file, subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        time.sleep(0.5)  # it would have written to the file
        size = os.fstat(file.fileno()).st_size
        file.seek(0)
        file.write(struct.pack("<dd", -5.0, time.monotonic()))
        fcntl.lockf(file, fcntl.LOCK_UN)
        assert size == 0
        assert float(other.communicate()[0]) == pytest.approx(5.0, abs=1.0)


def opened(folder: Path, text: str) -> ApiKeys:
    (folder / "keys.toml").write_text(text)
    found = ApiKeys(folder / "keys.toml", folder / "quotas")
    found.refresh()
    return found


KEYS = f"""
[mobile]
key = "mobile-secret"
events_per_second = 2
streams = ["clicks"]

[batch]
sha256 = "{hashlib.sha256(b"batch-secret").hexdigest()}"
"""


def test_keys_are_found_by_either_header(tmp_path: Path) -> None:
    found = opened(tmp_path, KEYS)
    assert found.key_of({b"authorization": b"Bearer mobile-secret"}, "clicks").name == "mobile"
    assert found.key_of({b"authorization": b"bearer  batch-secret "}, "any").name == "batch"
    assert found.key_of({b"x-api-key": b"batch-secret"}, "any").name == "batch"
    for wrong in ({}, {b"authorization": b"Basic batch-secret"}, {b"x-api-key": b"x"}, {b"authorization": b"Bearer"}):
        with pytest.raises(Unauthenticated):
            found.key_of(wrong, "clicks")
    with pytest.raises(Forbidden, match="'mobile' may not send to 'orders'"):
        found.key_of({b"x-api-key": b"mobile-secret"}, "orders")


def test_a_quota_says_when_to_come_again(tmp_path: Path, clock: Clock) -> None:
    key = opened(tmp_path, KEYS).key_of({b"x-api-key": b"mobile-secret"}, "clicks")
    key.take(12)
    with pytest.raises(OverQuota, match="2 events per second") as error:
        key.take(0)
    assert error.value.retry_after == pytest.approx(5.0)
    opened(tmp_path, KEYS).key_of({b"x-api-key": b"batch-secret"}, "clicks").take(10**9)


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(tmp_path: Path) -> None:
    found = opened(tmp_path, KEYS)
    (tmp_path / "keys.toml").write_text("[new]\nkey = 'new-secret'\n")
    os.utime(tmp_path / "keys.toml", (1, 1))
    found.refresh()
    assert found.key_of({b"x-api-key": b"new-secret"}, "s").name == "new"
    with pytest.raises(Unauthenticated):
        found.key_of({b"x-api-key": b"batch-secret"}, "s")
    for broken in ("[", "[x]\n", "\xff"):
        (tmp_path / "keys.toml").write_text(broken, encoding="latin-1")
        with pytest.raises(InvalidValue):
            found.refresh()
        assert found.key_of({b"x-api-key": b"new-secret"}, "s").name == "new"


@pytest.mark.parametrize(
    "text",
    [
        "x = 1",
        "[x]\nkey = 'short'",
        "[x]\nkey = 7",
        "[x]\nsha256 = 'abc'",
        "[x]\nkey = 'long-enough'\nsha256 = 'abc'",
        "[x]\nkey = 'long-enough'\nrate = 1",
        "[x]\nkey = 'long-enough'\nevents_per_second = '5'",
        "[x]\nkey = 'long-enough'\nevents_per_second = -5",
        "[x]\nkey = 'long-enough'\nevents_per_second = nan",
        "[x]\nkey = 'long-enough'\nevents_per_second = true",
        "[x]\nkey = 'long-enough'\nevents_per_second = 0",
        "[x]\nkey = 'long-enough'\nevents_per_second = 5\nburst = 0",
        "[x]\nkey = 'long-enough'\nburst = 5",
        "[x]\nkey = 'long-enough'\nstreams = 'clicks'",
        "[x]\nkey = 'long-enough'\n[y]\nkey = 'long-enough'",
        f"[x]\nkey = 'batch-secret'\n{KEYS}",
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises((InvalidValue, InvalidType)) as error:
        opened(tmp_path, text)
    assert "short" not in str(error.value)
