"""One process at a time, and what a worker says of itself."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from umbel.errors import Transient
from umbel.processes.locks import alone
from umbel.processes.status import RUNNING, forget_status, read_status, write_status

HOLDS = """
import sys, pathlib
from umbel.processes.locks import alone
with alone(pathlib.Path(sys.argv[1]), "worker"):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_another_process_learns_who_has_the_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with (
            pytest.raises(Transient, match=f"another worker runs on .*: process {other.pid}"),
            alone(tmp_path, "worker"),
        ):
            pass
        with alone(tmp_path, "supervisor"):
            pass
        other.kill()
    with alone(tmp_path, "worker"):
        assert (tmp_path / "worker.lock").read_text() == str(os.getpid())


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a traceback, for such an error names no file."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(Transient, match="cannot be locked: No locks available"), alone(tmp_path, "worker"):
        pass


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    write_status(tmp_path, "starting")
    found = read_status(tmp_path)
    assert found is not None
    assert (found.state, found.is_running, found.process, found.batch) == ("starting", False, os.getpid(), None)
    write_status(tmp_path, RUNNING, 7)
    found = read_status(tmp_path)
    assert found is not None
    assert (found.is_running, found.batch) == (True, 7)
    (tmp_path / "work.json").write_text("{")
    assert read_status(tmp_path) is None
    forget_status(tmp_path)
    forget_status(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full: on Linux")
def test_a_full_disk_has_room_for_a_lock(tmp_path: Path) -> None:
    (tmp_path / "backup.lock").symlink_to("/dev/full")
    with alone(tmp_path, "backup"):
        pass
