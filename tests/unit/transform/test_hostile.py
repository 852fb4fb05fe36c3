"""Hostile code, inputs and outputs: a message or a dead letter each, never a traceback, never another record's loss."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from umbel.errors import UmbelError
from umbel.formats.chunks import MAX_ROW
from umbel.transform.configuration import loads
from umbel.transform.parts import Lines
from umbel.transform.workers import TransformWorkers

COMMAND = [sys.executable, "-m", "umbel", "transform"]
COPY = "source_field: a\ntarget_field: b\n"
CODES = {
    "class E(BaseException): pass\nif source_field == 2: raise E('x')": "E: x",
    "if source_field == 2: raise KeyboardInterrupt": "KeyboardInterrupt: ",
    "class E(Exception):\n  def __str__(self): return 1 / 0\nif source_field == 2: raise E": "E: its text cannot be made",
    "if source_field == 2: raise ValueError('x' * 10**7)": "ValueError: xxx",
    "if source_field == 2: return datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9)))": "OverflowError: ",
    "class D(dict):\n  def items(self): raise LookupError('odd')\nif source_field == 2: return {1: D(a=1)}": "LookupError",
    "import os\nif source_field == 2 and os.fork() == 0: raise SystemExit": "",
}


def code(text: str) -> str:
    steps = [{"name": "custom_code", "code": f"{text}\nreturn source_field"}]
    return json.dumps({"source_field": "a", "target_field": "b", "transformations": steps})


@pytest.mark.parametrize("text", CODES)
def test_code_that_costs_its_own_record_only(text: str) -> None:
    with TransformWorkers(loads(code(text), "c.yaml"), 1) as workers:
        parts = [Lines("in", b'{"a":1}\n{"a":2}\n{"a":3}\n'), Lines("in", b'{"a":4}\n')]
        first, second = workers.results(parts)
    assert second.data == b'{"b":4}\n'
    if not CODES[text]:
        assert first.data == b'{"b":1}\n{"b":2}\n{"b":3}\n'
        return
    if "LookupError" in CODES[text] and not first.letters:
        return  # the C encoder does not ask the class
    assert first.data == b'{"b":1}\n{"b":3}\n'
    (letter,) = first.letters
    assert letter.row == 1
    assert f"{letter.error}: {letter.message}".startswith(CODES[text])
    assert len(letter.message) < 3000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\0a: b", "broken YAML"),
        (
            "a: &a0 [x, x]\n" + "".join(f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            "aliases",
        ),
        ("pasthrough: true\n---\n" + COPY, "did you mean 'passthrough'"),
        (
            "source_field: a\ntarget_field: b\ntransformations: [{name: parse_datetime, format: '%Q'}]",
            "'%Q' is no format",
        ),
        ("source_field: a\ntarget_field: b\ntransformations: [{name: split, separator: ''}]", "must not be empty"),
        (
            "source_field: a\ntarget_field: b\ntransformations: [{name: replace, pattern: a, by: '\\9', regex: true}]",
            "is no replacement",
        ),
        (code("yield 1"), "yield"),
    ],
)
def test_configurations_with_errors(text: str, message: str) -> None:
    with pytest.raises(UmbelError, match=message):
        loads(text, "c.yaml")


def test_on_error_of_null_as_yaml_has_it() -> None:
    text = COPY + "transformations: [{name: lower, on_error: null}]"
    assert [each.on_error for each in loads(text).applied] == ["null"]


def ran(folder: Path, *arguments: object, config: str = COPY, **options: object) -> subprocess.CompletedProcess[str]:
    (folder / "c.yaml").write_text(config)
    (folder / "in.json").write_text('{"a":1}\n{"a":2}\n')
    command = [*COMMAND, *map(str, arguments or ("-c", folder / "c.yaml", "-f", folder / "in.json"))]
    found = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert "Traceback" not in found.stderr
    assert "panicked" not in found.stderr
    return found  # type: ignore[no-any-return]


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    config, source = tmp_path / "c.yaml", tmp_path / "in.json"
    full = ran(tmp_path, "-c", config, "-f", source, "-o", "/dev/full")
    assert (full.returncode, "/dev/full: No space left on device" in full.stderr) == (2, True)
    shell = f"exec {' '.join(COMMAND)} -c {config} -f {source}"
    for ending, message in ((">/dev/full", "No space left on device"), (">&-", "standard output is closed")):
        found = subprocess.run(["bash", "-c", f"{shell} {ending}"], capture_output=True, text=True, check=False)
        assert (found.returncode, message in found.stderr, "Traceback" in found.stderr) == (2, True, False)
    found = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} -c {config} <&-"], capture_output=True, text=True, check=False
    )
    assert (found.returncode, "standard input is closed" in found.stderr) == (2, True)
    missing = ran(tmp_path, "-c", config, "-f", source, "-o", tmp_path / "no" / "out.json")
    assert (missing.returncode, "there is no folder" in missing.stderr) == (2, True)
    same = ran(tmp_path, "-c", config, "-f", source, "-o", tmp_path / "o", "--dead-letters", tmp_path / "o")
    assert (same.returncode, "it is the file of -o" in same.stderr) == (2, True)


def test_a_line_that_is_too_long_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(COPY)
    lines = b'{"a":1}\n{"a":"' + b"x" * (5 * MAX_ROW) + b'"}\n{"a":2}\n' + b"y" * (5 * MAX_ROW)
    found = subprocess.run([*COMMAND, "-c", tmp_path / "c.yaml"], input=lines, capture_output=True, check=False)
    assert found.stdout == b'{"b":1}\n{"b":2}\n'
    assert b"standard input:2: read: Damaged: a record of 41943048 bytes" in found.stderr
    assert b"2 dead letters (read 2)" in found.stderr


def test_bytes_in_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "s": [[{"x": b"\xff"}]]}), tmp_path / "in.parquet")
    ran(tmp_path)
    found = ran(tmp_path, "-c", tmp_path / "c.yaml", "-f", tmp_path / "in.parquet")
    assert (found.returncode, "column 's' is list" in found.stderr) == (2, True)


def test_cases_whose_code_ends_its_process(tmp_path: Path) -> None:
    cases = "\n---\ntests:\n  - {input: {a: 1}, output: {b: 1}}\n  - {input: {a: 2}, output: {b: 2}}\n"
    ran(tmp_path, config=code("import os\nif source_field == 1: os._exit(3)") + cases)
    found = ran(
        tmp_path, "test", tmp_path / "c.yaml", config=code("import os\nif source_field == 1: os._exit(3)") + cases
    )
    assert (found.returncode, found.stdout) == (1, "2 cases, 1 failed\n")
    assert "exit code 3" in found.stderr
    failing = COPY + "transformations: [{name: lower, on_error: fail}]" + cases
    found = ran(tmp_path, "test", tmp_path / "c.yaml", config=failing)
    assert (found.returncode, found.stdout) == (1, "2 cases, 2 failed\n")


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(COPY)
    process = subprocess.Popen(
        [*COMMAND, "-c", tmp_path / "c.yaml", "-o", tmp_path / "out.json"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b'{"a":1}\n' * 1_000_000)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert b"Traceback" not in process.stderr.read()
    assert [each.name for each in tmp_path.iterdir()] == ["c.yaml"]
