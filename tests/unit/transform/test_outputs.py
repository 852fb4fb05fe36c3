"""Files that are written: never one that is read, nor one of two runs, and none is left unfinished."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import polars as pl
import psutil
import pytest

from umbel.errors import InvalidValue
from umbel.transform import outputs
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
    inputs = [] if "-f" in arguments else ["-f", "in.json"]
    command = [*COMMAND, "-c", "c.yaml", *inputs, *arguments]
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


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("-q -o /dev/stdout | cat", '{"b":1}\n'),
        ("-q --dead-letters /dev/stderr 2>&1 >/dev/null | grep -o .line.:2", '"line":2\n'),
        ("-q --dead-letters >(grep -o .line.:2) | cat; sleep 0.1", '{"b":1}\n"line":2\n'),
        ("-q -o pipe & cat pipe; wait", '{"b":1}\n'),
    ],
)
def test_pipes_are_written(folder: Path, options: str, found: str) -> None:
    os.mkfifo(folder / "pipe")
    shell = f"set -o pipefail; {' '.join(COMMAND)} -c c.yaml -f in.json {options}"
    done = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, check=True)
    assert (sorted(done.stdout), done.stderr) == (sorted(found), "")


@pytest.mark.parametrize("ending", ["json", "json.gz", "json.zst", "parquet"])
def test_names_that_are_no_utf8(folder: Path, ending: str) -> None:
    named = Path(os.fsdecode(os.fsencode(folder) + b"/\xff"))
    named.mkdir()
    (folder / "in.json").rename(named / "in.json")
    out, dead = named / os.fsdecode(b"o\xfe." + ending.encode()), named / "dead.json"
    found = ran(folder, "-f", str(named / "in.json"), "-o", str(out), "--dead-letters", str(dead))
    assert (found.returncode, sorted(named.iterdir())) == (0, sorted([named / "in.json", out, dead])), found.stderr
    assert json.loads(dead.read_bytes())["input"] == f"{folder}/\\udcff/in.json"
    if ending == "parquet":
        assert pl.read_parquet(out.read_bytes()).to_dicts() == [{"b": 1}]


def test_standard_output_is_no_input(folder: Path) -> None:
    shell = f"exec {' '.join(COMMAND)} -c c.yaml -f in.json >> in.json"
    found = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, check=False)
    assert (found.returncode, "standard output is in.json" in found.stderr) == (2, True)
    assert (folder / "in.json").read_text() == RECORDS


@pytest.mark.parametrize("options", [">> in.json", "-f - >> in.json", "-o in.json", "--dead-letters link.json"])
def test_standard_input_is_no_output(folder: Path, options: str) -> None:
    shell = f"exec {' '.join(COMMAND)} -c c.yaml < in.json {options}"
    found = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, check=False)
    assert (found.returncode, "is standard input, which this run reads" in found.stderr) == (2, True)
    assert (folder / "in.json").read_text() == RECORDS


def test_a_link_stays_one(folder: Path) -> None:
    (folder / "out.json").symlink_to(folder / "target.json")
    for _ in range(2):  # the file is missing at first
        assert ran(folder, "-o", "out.json").returncode == 0
        assert (folder / "out.json").is_symlink()
        assert (folder / "target.json").read_text() == '{"b":1}\n'


def test_a_link_that_leads_to_itself_is_no_output(folder: Path) -> None:
    (folder / "out.json").symlink_to("out.json")
    for option in ("-o", "--dead-letters"):
        found = ran(folder, option, "out.json")
        assert (found.returncode, "out.json: the link leads to itself" in found.stderr) == (2, True)
    assert (folder / "out.json").is_symlink()


@pytest.mark.parametrize("name", ["out.json", "out.parquet"])
@pytest.mark.parametrize("mode", [0o600, 0o664, 0o400])
def test_a_file_that_is_replaced_retains_its_permissions(folder: Path, name: str, mode: int) -> None:
    path = folder / name
    before = os.umask(0o022)
    try:
        with output(str(path)) as file:
            file.write(b'{"b":1}\n')
        assert path.stat().st_mode & 0o777 == 0o644
        path.chmod(mode)
        with output(str(path)) as file:
            assert (folder / f".{name}.unfinished").stat().st_mode & 0o777 == 0o600
            file.write(b'{"b":2}\n')
    finally:
        assert os.umask(before) == 0o022
    assert path.stat().st_mode & 0o777 == mode


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


def test_a_run_that_begins_when_another_is_complete_keeps_its_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, completed = str(folder / "new.json"), outputs._completed
    with ExitStack() as following:

        def begins(unfinished: Path, path: Path) -> None:
            completed(unfinished, path)
            monkeypatch.undo()
            following.enter_context(output(name)).write(b"2\n")

        monkeypatch.setattr(outputs, "_completed", begins)
        with output(name) as first:
            first.write(b"1\n")
        assert (folder / "new.json").read_bytes() == b"1\n"
    assert (folder / "new.json").read_bytes() == b"2\n"


def test_a_run_that_opens_the_file_of_one_that_ends_makes_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, lock = str(folder / "new.json"), fcntl.flock
    with ExitStack() as former:
        former.enter_context(output(name)).write(b"1\n")

        def ends(file: BinaryIO, how: int) -> None:
            monkeypatch.undo()
            former.close()
            lock(file, how)

        monkeypatch.setattr(fcntl, "flock", ends)
        with output(name) as second:
            assert (folder / "new.json").read_bytes() == b"1\n"
            second.write(b"2\n")
    assert (folder / "new.json").read_bytes() == b"2\n"


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
    assert process.wait(300) == code
    assert b"Traceback" not in process.stderr.read()
    assert sorted(each.name for each in folder.iterdir()) == ["c.yaml", "in.json", "link.json"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_terminated_group_ends_at_once(folder: Path, number: int, code: int) -> None:
    """So `timeout`, systemd and a terminal that closes do it: all processes of the run get the signal."""
    text = CONFIG + "transformations: [{name: custom_code, code: 'while source_field == 1: import time'}]\n"
    (folder / "c.yaml").write_text(text)
    (folder / "in.json").write_text('{"a":1}\n' * 100)  # to end them one by one would take 1000 s
    command = [*COMMAND, "-c", "c.yaml", "-f", "in.json", "-o", "out.json", "--processes", "2"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, start_new_session=True) as process:
        assert process.stderr is not None
        deadline = time.monotonic() + 60
        while not is_computing(process.pid):
            assert time.monotonic() < deadline
        os.killpg(process.pid, number)
        try:
            assert process.wait(120) == code
        finally:
            process.kill()
        assert process.stderr.read() == b""
    assert not (folder / ".out.json.unfinished").exists()


def is_computing(process: int) -> bool:
    """Return True if a descendant of a process has computed for a second beyond its start."""
    family = psutil.Process(process).children(recursive=True)
    return len(family) > 1 and any(each.cpu_times().user > 1 for each in family[1:])


def test_a_later_signal_ends_a_run_that_hangs() -> None:
    code = """
import os, signal, sys, time
from umbel.cli.transform import _ends_in_order
with _ends_in_order():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # the same one, of `timeout`
        print("once", flush=True)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGHUP)
        print("twice", flush=True)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (129, "once\n", "")
