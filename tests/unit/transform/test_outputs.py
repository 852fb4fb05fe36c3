"""Files that are written: never one that is read, nor one of two runs, and none is left unfinished."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from umbel.errors import InvalidValue
from umbel.transform.outputs import output

COMMAND = [sys.executable, "-m", "umbel", "transform"]
CONFIG, RECORDS = "source_field: a\ntarget_field: b\n", '{"a":1}\nbroken\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "in.json").write_text(RECORDS)
    (tmp_path / "link.json").symlink_to(tmp_path / "in.json")
    return tmp_path


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "-c", "c.yaml", "-f", "in.json", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "in.json"),
        ("-o", "link.json"),
        ("-o", "c.yaml"),
        ("--dead-letters", "in.json"),
        ("--dead-letters", "./c.yaml"),
        ("-o", "new", "--dead-letters", "../{name}/new"),
    ],
)
def test_what_is_read_is_not_written(folder: Path, arguments: tuple[str, ...]) -> None:
    found = ran(folder, *(each.format(name=folder.name) for each in arguments))
    assert (found.returncode, "this run reads or writes" in found.stderr, found.stdout) == (2, True, "")
    assert ((folder / "c.yaml").read_text(), (folder / "in.json").read_text()) == (CONFIG, RECORDS)
    assert sorted(each.name for each in folder.iterdir()) == ["c.yaml", "in.json", "link.json"]


def test_devices_may_be_written_twice(folder: Path) -> None:
    assert ran(folder, "-o", "/dev/null", "--dead-letters", "/dev/null").returncode == 0


def test_standard_output_is_no_input(folder: Path) -> None:
    shell = f"exec {' '.join(COMMAND)} -c c.yaml -f in.json >> in.json"
    found = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, check=False)
    assert (found.returncode, "standard output is in.json" in found.stderr) == (2, True)
    assert (folder / "in.json").read_text() == RECORDS


def test_a_link_stays_one(folder: Path) -> None:
    (folder / "out.json").symlink_to(folder / "target.json")
    for _ in range(2):  # the file is missing at first
        assert ran(folder, "-o", "out.json").returncode == 0
        assert (folder / "out.json").is_symlink()
        assert (folder / "target.json").read_text() == '{"b":1}\n'


def test_two_runs_do_not_write_one_file(folder: Path) -> None:
    with output(str(folder / "new.json")) as first:
        first.write(b"1\n")
        with pytest.raises(InvalidValue, match="another run writes it"), output(str(folder / "new.json")):
            pass
        first.write(b"2\n")
    assert (folder / "new.json").read_bytes() == b"1\n2\n"
    (folder / ".new.json.unfinished").write_bytes(b"of a run that was killed")
    with output(str(folder / "new.json")) as third:
        third.write(b"3\n")
    assert (folder / "new.json").read_bytes() == b"3\n"
    assert not (folder / ".new.json.unfinished").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_terminated_run_leaves_nothing_behind(folder: Path, number: int, code: int) -> None:
    command = [*COMMAND, "-c", "c.yaml", "-o", "out.json", "--dead-letters", "dead.json"]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b'{"a":1}\n' * 1_000_000)
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not (folder / ".out.json.unfinished").exists():
        assert time.monotonic() < deadline
    process.send_signal(number)
    assert process.wait(60) == code
    assert b"Traceback" not in process.stderr.read()
    assert sorted(each.name for each in folder.iterdir()) == ["c.yaml", "in.json", "link.json"]
