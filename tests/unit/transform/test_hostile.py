"""Hostile code, inputs and outputs: a message or a dead letter each, never a traceback, never another record's loss."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from codecs import BOM_UTF8
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from umbel.errors import Terminal, UmbelError
from umbel.formats.chunks import MAX_ROW
from umbel.isolation.function_limits import FunctionLimits
from umbel.isolation.process import CallFailed, IsolatedProcess
from umbel.transform.batches import BatchTransform, _PlanRunner
from umbel.transform.configuration import Configuration, loads
from umbel.transform.inputs import RANGE_BYTES, InputFile, inputs
from umbel.transform.parts import Done, Lines
from umbel.transform.work import runner, transformed
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


ENDS = "import os\nif source_field == 2: os._exit(3)\nreturn source_field"


def ending(*on_errors: str) -> Configuration:
    steps = [{"name": "custom_code", "code": ENDS, "on_error": each} for each in on_errors]
    return loads(json.dumps({"source_field": "a", "target_field": "b", "transformations": steps}), "c.yaml")


def test_on_error_of_code_that_ends_its_process() -> None:
    lines = Lines("in", b'{"a":1}\n{"a":2}\n{"a":3}\n')
    for on_errors, dropped, letters in (
        (("drop",), 1, 0),
        (("drop", "drop"), 1, 0),
        (("drop", "null"), 0, 1),
        (("null",), 0, 1),
    ):
        with TransformWorkers(ending(*on_errors), 1) as workers:
            done = workers.result(lines)
        assert (done.data, done.dropped, len(done.letters)) == (b'{"b":1}\n{"b":3}\n', dropped, letters)
    with TransformWorkers(ending("drop", "fail"), 1) as workers, pytest.raises(Terminal, match="exit code 3") as failed:
        workers.result(lines)
    assert failed.value.where == "c.yaml:1"


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
    assert ran(tmp_path, "-c", config, "-f", source, "-o", tmp_path / "new", umask=0o22).returncode == 0
    assert oct((tmp_path / "new").stat().st_mode & 0o777) == "0o644"
    missing = ran(tmp_path, "-c", config, "-f", source, "-o", tmp_path / "no" / "out.json")
    assert (missing.returncode, "there is no folder" in missing.stderr) == (2, True)


def test_a_line_that_is_too_long_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(COPY)
    lines = b'{"a":1}\n{"a":"' + b"x" * (5 * MAX_ROW) + b'"}\n{"a":2}\n' + b"y" * (5 * MAX_ROW)
    found = subprocess.run([*COMMAND, "-c", tmp_path / "c.yaml"], input=lines, capture_output=True, check=False)
    assert found.stdout == b'{"b":1}\n{"b":2}\n'
    assert b"standard input:2: read: Damaged: a record of 41943048 bytes" in found.stderr
    assert b"2 dead letters (read 2)" in found.stderr


def test_a_file_with_lines_that_are_too_long(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(COPY)
    (tmp_path / "in.json").write_bytes(
        b'{"a":1}\n{"a":"' + b"x" * (5 * MAX_ROW) + b'"}\n{"a":2}\n' + b"y" * (3 * MAX_ROW)
    )
    command = [*COMMAND, "-c", tmp_path / "c.yaml", "-f", tmp_path / "in.json", "--dead-letters", tmp_path / "dead"]
    found = subprocess.run(command, capture_output=True, check=True)
    assert found.stdout == b'{"b":1}\n{"b":2}\n'
    first, second = map(json.loads, (tmp_path / "dead").read_text().splitlines())
    assert (first["line"], first["message"]) == (2, "a record of 41943048 bytes is longer than 8388608")
    assert (second["line"], second["message"]) == (4, "a record of 25165824 bytes is longer than 8388608")
    assert len(first["record"]) == 1024


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path: Path, ending: str) -> None:
    data, source = BOM_UTF8 + b'{"a":1}\n' + BOM_UTF8 + b'{"a":2}\n', tmp_path / f"in.json{ending}"
    if ending == ".zst":
        with pa.output_stream(str(source), compression="zstd") as file:
            file.write(data)
    else:
        source.write_bytes(gzip.compress(data) if ending else data)
    (tmp_path / "c.yaml").write_bytes(BOM_UTF8 + COPY.encode())
    command = [*COMMAND, "-c", tmp_path / "c.yaml"]
    found = subprocess.run([*command, "-f", source], capture_output=True, check=True)
    assert found.stdout == b'{"b":1}\n'
    assert b"1 dead letters (read 1)" in found.stderr
    if not ending:
        assert subprocess.run(command, input=data, capture_output=True, check=True).stdout == found.stdout


def test_small_pieces_of_a_compressed_file_are_gathered(tmp_path: Path) -> None:
    with pa.output_stream(str(tmp_path / "in.json.zst"), compression="zstd") as file:
        file.write(b'{"a":1}\n' * (RANGE_BYTES // 4))
    parts = list(InputFile(tmp_path / "in.json.zst").parts(lambda _: None))
    assert sum(len(each.data) for each in parts) == RANGE_BYTES * 2
    assert len(parts) == 2


def test_the_padding_of_a_tape_ends_a_compressed_file(tmp_path: Path) -> None:
    (tmp_path / "in.json.gz").write_bytes(gzip.compress(b'{"a":1}\n') + bytes(5 << 20))
    (part,) = InputFile(tmp_path / "in.json.gz").parts(lambda _: None)
    assert (part.data, part.error) == (b'{"a":1}\n', "")


def test_a_value_without_form_in_json_has_its_field() -> None:
    failing = code("return {1}").replace('"b"', '"x.y"')
    transform = BatchTransform(loads(f"{COPY}---\n{failing}"))
    (letter,) = transform([b'{"a":1}']).letters
    assert (letter.step, letter.field, letter.at) == ("write", "x.y", "configuration.yaml:4")


def test_documents_read_the_input_though_code_changes_its_record() -> None:
    changing = code("record['z'] = 1\nsource_field.append(record.pop('c', 0))")
    documents = ["source_field: $\ntarget_field: t", changing, COPY.replace("b", "u"), changing.replace('"b"', '"v"')]
    transform = BatchTransform(loads("\n---\n".join(documents)))
    result = transform([b'{"a":[1],"c":2}'])
    assert json.loads(result.data) == {"t": {"a": [1], "c": 2}, "b": [1, 2], "u": [1], "v": [1, 2]}


@pytest.mark.parametrize(
    "step", ["{name: default, value: {n: []}}", "{name: map_values, values: {}, default: {n: []}}"]
)
def test_constants_are_not_changed_by_code(step: str) -> None:
    append = json.dumps({"name": "custom_code", "code": "source_field['n'].append(1)\nreturn source_field"})
    transform = BatchTransform(loads(f"{COPY}transformations: [{step}, {append}]"))
    assert transform([b"{}"] * 2).data == b'{"b":{"n":[1]}}\n' * 2


def test_values_that_only_the_faster_encoder_knows() -> None:
    text = code("import uuid\nreturn [uuid.UUID(int=5), source_field]")
    result = BatchTransform(loads(text))([b'{"a":1}', b'{"a":1' + b"0" * 30 + b"}"])
    uuid = b'"00000000-0000-0000-0000-000000000005"'
    assert result.data == b'{"b":[%b,1]}\n{"b":[%b,1%b]}\n' % (uuid, uuid, b"0" * 30)


@pytest.mark.parametrize(
    "step", ["{name: regex_extract, pattern: '(a+)+$'}", "{name: replace, pattern: '(a+)+$', by: x, regex: true}"]
)
def test_a_regular_expression_without_end_has_limits(step: str) -> None:
    config = loads(f"{COPY}transformations: [{step}]")
    assert isinstance(getattr(runner(config.text, config.file), "__self__", None), TransformWorkers)
    with TransformWorkers(config, 1, FunctionLimits(row_seconds=5.0, batch_seconds=0.5)) as workers:
        (done,) = workers.results([Lines("in", b'{"a":"%b!"}\n{"a":"c"}\n' % (b"a" * 60))])
    assert done.records == 2
    assert [(each.row, each.step) for each in done.letters] == [(0, yaml.safe_load(step)["name"])]


def test_limits_are_those_of_the_environment_in_a_source_too(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = FunctionLimits(row_seconds=2.0, batch_seconds=3.0, memory=512.0)
    for name in ("row_seconds", "batch_seconds", "memory"):
        monkeypatch.setenv(f"UMBEL_FUNCTION_{name.upper()}", str(getattr(limits, name)))
    config = loads(f"{COPY}transformations: [{{name: regex_extract, pattern: 'limits of the environment'}}]")
    workers = getattr(runner(config.text, config.file), "__self__", None)
    assert isinstance(workers, TransformWorkers)
    assert workers.limits == limits
    memory = list[int]()

    def call(*_: object, **options: int) -> Done:
        memory.append(options["memory"])
        return Done("in", b"", [])

    monkeypatch.setattr(IsolatedProcess, "call", call)
    workers.result(Lines("in", b"x" * 1000))
    workers.result(Lines("in", path="in", begin=1000, end=3000))
    assert memory == [limits.bytes(1000), limits.bytes(2000)]


def test_a_plan_that_ends_its_process_costs_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError

    config = loads(f"{COPY}transformations: [{{name: lower}}]")
    monkeypatch.setattr(_PlanRunner, "run", broken)
    line = Lines("in", b'{"a":"X"}', is_apart=True)
    assert transformed(BatchTransform(config), line).data == b'{"b":"x"}\n'
    assert [each.is_apart for each in _apart(config)] == [False, True, True]


def _apart(config: Configuration) -> list[Lines]:
    calls = list[Lines]()

    def call(_: object, __: str, ___: object, part: Lines, **____: object) -> Done:
        calls.append(part)
        if len(calls) == 1:
            raise CallFailed("it ended")
        return Done("in", part.data, [], lines=1)

    workers = TransformWorkers(config, 1)
    with patch("umbel.isolation.process.IsolatedProcess.call", call):
        assert workers.result(Lines("in", b"1\n2\n")).data == b"12"
    return calls


@pytest.mark.parametrize("ending", [".JSON", ".json.GZ", ".Ndjson.Gz"])
def test_endings_in_upper_case(tmp_path: Path, ending: str) -> None:
    lines = b'{"a":1}\n{"a":2}\n'
    made = tmp_path / "in" / f"x{ending}"
    made.parent.mkdir()
    made.write_bytes(gzip.compress(lines) if ending.upper().endswith("GZ") else lines)
    (tmp_path / "in" / "notes.txt").write_text("x")
    for unfinished in ("_temporary/0", ".hidden"):
        (made.parent / unfinished).mkdir(parents=True)
        (made.parent / unfinished / "y.json").write_bytes(b"half")
    ran(tmp_path)
    for source in (made, made.parent):
        found = ran(tmp_path, "-c", tmp_path / "c.yaml", "-f", source, "-o", tmp_path / "out.JSON.GZ")
        assert "2 records read, 2 written" in found.stderr
        assert gzip.decompress((tmp_path / "out.JSON.GZ").read_bytes()) == b'{"b":1}\n{"b":2}\n'


def test_a_pattern_reads_the_folders_that_it_matches(tmp_path: Path) -> None:
    for name in ("a.json", "b.json/part-0.json", "b.json/_SUCCESS", "c/d/e.ndjson.gz", "c/x.txt", "_temporary/f.json"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def found(pattern: str) -> list[str]:
        return [str(each.path.relative_to(tmp_path / "in")) for each in inputs([str(tmp_path / "in" / pattern)])]

    assert found("*.json") == ["a.json", "b.json/part-0.json"]
    assert found("*") == ["a.json", "b.json/part-0.json", "c/d/e.ndjson.gz"]
    assert found("[bc]*") == ["b.json/part-0.json", "c/d/e.ndjson.gz"]
    assert found("**/*.json").count("b.json/part-0.json") == 1


@pytest.mark.parametrize("name", ["x.parquet.gz", "x.PARQUET.zst"])
def test_parquet_that_is_compressed_once_more_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in.json").write_text('{"a":1}\n')
    (tmp_path / "in" / name).write_bytes(gzip.compress(b"PAR1"))
    ran(tmp_path)
    for source in (tmp_path / "in", tmp_path / "in" / name):
        found = ran(tmp_path, "-c", tmp_path / "c.yaml", "-f", source)
        assert (found.returncode, f"{name}: Parquet that is compressed" in found.stderr) == (2, True)
    found = ran(tmp_path, "-c", tmp_path / "c.yaml", "-f", tmp_path / "in.json", "-o", tmp_path / name)
    assert (found.returncode, f"{name}: Parquet that is compressed" in found.stderr) == (2, True)
    assert not (tmp_path / name).exists()


def test_a_list_as_long_as_a_record_says(tmp_path: Path) -> None:
    config = loads(f"{COPY}transformations: [{{name: expr, expr: \"repeat(lit('x'), col('value'))\"}}]")
    assert config.needs_limits
    with TransformWorkers(config, 1, FunctionLimits(memory=200.0)) as workers:
        (done,) = workers.results([Lines("in", b'{"a":1}\n{"a":100000000}\n{"a":2}\n')])
    assert (done.data, [each.row for each in done.letters]) == (b'{"b":["x"]}\n{"b":["x","x"]}\n', [1])


def test_bytes_in_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "s": [[{"x": b"\xff"}]]}), tmp_path / "in.parquet")
    ran(tmp_path)
    found = ran(tmp_path, "-c", tmp_path / "c.yaml", "-f", tmp_path / "in.parquet")
    assert (found.returncode, "in.parquet: column 's' has values of type binary" in found.stderr) == (2, True)


def test_a_far_instant_in_parquet_costs_its_row(tmp_path: Path) -> None:
    days = pa.array([0, 253_402_300_800, 1], pa.timestamp("s"))
    pq.write_table(pa.table({"a": days}), tmp_path / "in.parquet")
    found = ran(tmp_path, "-c", tmp_path / "c.yaml", "-f", tmp_path / "in.parquet")
    assert found.stdout == '{"b":"1970-01-01T00:00:00Z"}\n{"b":"1970-01-01T00:00:01Z"}\n'
    assert "in.parquet:2: read: Damaged: column 'a': 253402300800000 as timestamp[ms]" in found.stderr


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
    assert process.wait(300) == 130
    assert b"Traceback" not in process.stderr.read()
    assert [each.name for each in tmp_path.iterdir()] == ["c.yaml"]
