"""Spark starts with nothing but Python on the machine, says nothing, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

SCRIPT = """
import json, os, sys
from pathlib import Path
from umbel.spark.session import Settings, running

def doubled(batches):
    import os, sys
    import pyarrow as pa
    for batch in batches:
        numbers = [2 * number for number in batch["id"].to_pylist()]
        described = f"{sys.executable} {os.environ['POLARS_MAX_THREADS']}"
        yield pa.RecordBatch.from_pydict({"number": numbers, "worker": [described] * len(numbers)})

with running(Settings(Path(sys.argv[1]), slots=2)) as session:
    rows = session.range(4, numPartitions=2).mapInArrow(doubled, "number long, worker string").collect()
    print(json.dumps(sorted([row.number, row.worker] for row in rows)), flush=True)
    if len(sys.argv) > 2:
        sys.stdin.read()
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Return the environment of an account that has no Java: the system's commands without it, an empty home."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for command in Path(folder).glob("*"):
            if not command.name.startswith(("java", "jdk")) and not (commands / command.name).is_symlink():
                (commands / command.name).symlink_to(command)
    (tmp_path / "home").mkdir()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"PATH": str(commands), "HOME": str(tmp_path / "home"), "PYTHONPATH": path}


@pytest.fixture
def waiting(bare: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a process that has run a job in its session and now waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "umbel"), "wait"],
        env=bare,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


def folders(tmp_path: Path) -> list[Path]:
    """Return the folders of temporary files that are there."""
    return [each for each in (tmp_path / "umbel" / "spark").iterdir() if each.is_dir()]


def test_it_starts_without_java_and_is_quiet(bare: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "umbel")],
        env=bare,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[number, f"{sys.executable} 1"] for number in (0, 2, 4, 6)]
    assert done.stderr == ""
    assert (tmp_path / "umbel" / "logs" / "spark.log").exists()
    assert folders(tmp_path) == []
    assert [entry.name for entry in (tmp_path / "home").iterdir()] == [".cache"]


def test_modules_of_the_folder_it_runs_in_hide_none_of_pythons(bare: dict[str, str], tmp_path: Path) -> None:
    for name in ("queue", "json", "random", "socket"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('the {name} of the user')")
    program = [sys.executable, "-P", "-c", SCRIPT, str(tmp_path / "umbel")]
    done = subprocess.run(program, env=bare, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_master_that_is_not_reached_is_named_with_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "umbel", "work", "--dir", str(tmp_path / "umbel"), "--master", "spark://127.0.0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "error Spark did not start: Invalid master URL: spark://127.0.0.1" in done.stderr
    assert "does the master run there, and can it be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_drivers_of_two_containers_with_one_volume(
    waiting: subprocess.Popen[str], bare: dict[str, str], tmp_path: Path
) -> None:
    """Neither sees the other's processes."""
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith("[[0,")
    (running,) = folders(tmp_path)
    alone = "import os\ndef kill(*_): raise ProcessLookupError\nos.kill = kill\n"
    program = [sys.executable, "-c", alone + SCRIPT, str(tmp_path / "umbel")]
    done = subprocess.run(program, env=bare, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert folders(tmp_path) == [running]
    assert any(running.iterdir())


@pytest.mark.parametrize("signum", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_a_killed_driver_leaves_no_process(waiting: subprocess.Popen[str], signum: signal.Signals) -> None:
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith("[[0,")
    family = psutil.Process(waiting.pid).children(recursive=True)
    assert any(process.name() == "java" for process in family)
    waiting.send_signal(signum)
    waiting.wait()
    deadline = time.monotonic() + 30
    while (left := [process for process in family if process.is_running()]) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.2)
    assert left == []
