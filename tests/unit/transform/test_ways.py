"""One configuration, four ways: their results are equal byte for byte."""

from __future__ import annotations

import gzip
import json
import shlex
import subprocess
import sys
from codecs import BOM_UTF8
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from umbel.transform.inputs import PART_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
source_field: properties
target_field: config_value
transformations:
  - name: custom_code
    language: python
    code: |
      year = datetime.now().strftime("%Y")
      return source_field.get("config_name").lower()
---
source_field: properties.tags
target_field: tags.sorted
transformations:
  - name: custom_code
    code: return sorted(source_field)
---
source_field: sent_at
target_field: ts
transformations:
  - {name: parse_datetime, format: "%Y-%m-%dT%H:%M:%SZ", on_error: "null"}
  - {name: cast, type: epoch_ms}
---
source_field: amount
target_field: amount
"""
COMMAND = [sys.executable, "-m", "umbel", "transform"]


def record(number: int) -> bytes:
    if number % 97 == 5:
        return b'{"properties":{"config_name":null,"tags":[]}}'
    if number % 97 == 6:
        return b"broken"
    amount = [number, number / 7, str(number), None, 10**25, {"v": number}][number % 6 if number % 5 == 0 else 0]
    sent = "2024-01-01T00:00:00Z" if number % 11 else "yesterday"
    return json.dumps(
        {"properties": {"config_name": f"Näme {number}", "tags": ["b", "a"]}, "sent_at": sent, "amount": amount}
    ).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ways")
    (made / "c.yaml").write_text(CONFIG)
    (made / "in.json").write_bytes(b"\n".join(map(record, range(40_000))) + b"\n")
    assert (made / "in.json").stat().st_size > 2 * PART_BYTES
    subprocess.run([*COMMAND, "-c", made / "c.yaml", "-f", made / "in.json", "-o", made / "out.json"], check=True)
    return made


def test_the_reference_is_the_definition(folder: Path) -> None:
    from umbel.transform import load
    from umbel.transform.batches import BatchTransform

    lines = (folder / "in.json").read_bytes().splitlines()
    assert (folder / "out.json").read_bytes() == BatchTransform(load(folder / "c.yaml")).record_by_record(lines).data


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_files(folder: Path, ending: str) -> None:
    import pyarrow as pa

    source, target = folder / f"in.json{ending}", folder / f"out.json{ending}"
    if ending == ".gz":
        source.write_bytes(gzip.compress((folder / "in.json").read_bytes(), 1))
    else:
        with pa.output_stream(str(source), compression="zstd") as file:
            file.write((folder / "in.json").read_bytes())
    subprocess.run([*COMMAND, "-c", folder / "c.yaml", "-f", source, "-o", target, "--processes", "1"], check=True)
    with pa.input_stream(str(target)) as file:
        assert file.read() == (folder / "out.json").read_bytes()


def test_a_filter_with_dead_letters_and_a_summary(folder: Path) -> None:
    command = [*COMMAND, "--config", folder / "c.yaml", "--dead-letters", folder / "dead.json", "--strict"]
    found = subprocess.run(command, input=(folder / "in.json").read_bytes(), capture_output=True, check=False)
    assert found.stdout == (folder / "out.json").read_bytes()
    assert found.returncode == 3
    assert b"40,000 records read, 39,174 written, 826 dead letters (custom_code 413, read 413)" in found.stderr
    letters = [json.loads(line) for line in (folder / "dead.json").read_bytes().splitlines()]
    assert letters[0] == {
        "input": "standard input",
        "line": 6,
        "field": "config_value",
        "step": "custom_code",
        "at": f"{folder / 'c.yaml'}:9",
        "error": "AttributeError",
        "message": "'NoneType' object has no attribute 'lower'",
        "record": record(5).decode(),
    }
    assert [each["line"] for each in letters] == [number + 1 for number in range(40_000) if number % 97 in {5, 6}]


def test_parquet_in_and_out(folder: Path) -> None:
    rows = pl.DataFrame(
        {"properties": [{"config_name": "A", "tags": ["x"]}, {"config_name": "B", "tags": []}], "amount": [1, 2]}
    )
    rows.write_parquet(folder / "rows.parquet")
    subprocess.run(
        [*COMMAND, "-c", folder / "c.yaml", "-f", folder / "rows.parquet", "-o", folder / "new.parquet"], check=True
    )
    assert pl.read_parquet(folder / "new.parquet").to_dicts() == [
        {"config_value": "a", "tags": {"sorted": ["x"]}, "ts": None, "amount": 1},
        {"config_value": "b", "tags": {"sorted": []}, "ts": None, "amount": 2},
    ]


@pytest.mark.spark
def test_pipe_of_spark(spark: SparkSession, folder: Path) -> None:
    command = f"{shlex.join(COMMAND)} --quiet --config {folder / 'c.yaml'}"
    found = spark.sparkContext.textFile(str(folder / "in.json"), 3).pipe(command).collect()
    assert "\n".join([*found, ""]).encode() == (folder / "out.json").read_bytes()


@pytest.mark.spark
def test_a_data_frame_of_spark(spark: SparkSession, folder: Path) -> None:
    from umbel.transform.spark import dead_letters, transform

    lines = spark.read.text(str(folder / "in.json"))
    found = [row.value for row in transform(lines, folder / "c.yaml").collect()]
    assert "\n".join([*found, ""]).encode() == (folder / "out.json").read_bytes()
    assert dead_letters(lines, folder / "c.yaml").where("step = 'read'").count() == 413
    typed = spark.createDataFrame(
        [(1, ("A", ["b", "a"]))], "amount long, properties struct<config_name: string, tags: array<string>>"
    )
    (row,) = transform(
        typed, folder / "c.yaml", schema="config_value string, amount long, tags struct<sorted: array<string>>"
    ).collect()
    assert (row.config_value, row.amount, row.tags.sorted) == ("a", 1, ["a", "b"])


@pytest.mark.spark
def test_columns_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    from umbel.transform import loads
    from umbel.transform.spark import dead_letters, transform

    whole = loads("{source_field: $, target_field: r}")
    at = "timestamp'2024-01-01 00:00:00Z'"
    rows = spark.range(1).selectExpr(f"map('k', {at}) m", "map(1, float('NaN')) i", f"{at} at")
    (row,) = transform(rows, whole).collect()
    instant = '"2024-01-01T00:00:00Z"'
    assert row.value == f'{{"r":{{"m":{{"k":{instant}}},"i":{{"1":NaN}},"at":{instant}}}}}'
    far = spark.range(3).repartition(1).orderBy("id").selectExpr("id", f"{at} + make_interval(9000 * id) at")
    assert transform(far, whole).count() == 1
    assert [letter.line for letter in dead_letters(far, whole).collect()] == [2, 3]
    with pytest.raises(Exception, match="column 'b' has values of type binary: JSON has no bytes"):
        transform(spark.range(1).selectExpr("binary('x') b"), whole).collect()


@pytest.mark.spark
def test_columns_of_any_name_in_spark(spark: SparkSession) -> None:
    from umbel.transform import loads
    from umbel.transform.spark import transform

    copied = loads("{passthrough: true}\n---\n{source_field: a, target_field: b}")
    dotted = spark.range(1).selectExpr("'x' a", "1 `c.d`", "2 `e f`")
    assert [row.value for row in transform(dotted, copied).collect()] == ['{"a":"x","c.d":1,"e f":2,"b":"x"}']
    collated = spark.range(1).selectExpr("""'{"a":7}' collate UTF8_LCASE as value""")
    assert [row.value for row in transform(collated, copied).collect()] == ['{"a":7,"b":7}']
    line = spark.createDataFrame([('{"a":7,"c\\\\d":1}',)], "value string")
    (row,) = transform(line, copied, schema="b long, `c\\d` long comment 'its value'").collect()
    assert row.asDict() == {"b": 7, "c\\d": 1}
    with pytest.raises(Exception, match="there are two columns 'a'"):
        transform(spark.range(1).selectExpr("1 a", "2 a"), copied).collect()


HOSTILE_CONFIG = """
passthrough: true
---
source_field: $
target_field: whole
---
source_field: a
target_field: t.kind
transformations:
  - {name: custom_code, code: "return type(source_field).__name__"}
---
source_field: a
target_field: t.text
transformations: [{name: cast, type: str}, {name: lower}]
---
source_field: a[0].b
target_field: t.inner
transformations: [{name: custom_code, code: "return record.get('b', 'none')"}]
---
source_field: c
target_field: t.number
transformations: [{name: cast, type: int, on_error: drop}]
---
source_field: skip
transformations: [{name: filter, code: "return not source_field"}]
"""
HOSTILE = [
    b'{"a":1}',
    b'{"a":"X","b":"\xc2\x85\xe2\x80\xa8\x7f"}\r',
    b"",
    b"{}",
    b'{"a":null,"b":null}',
    b'{"a":1,"a":"Y"}',
    b'{"a":123456789012345678901234567890}',
    b'{"a":-0.0,"c":"12"}',
    b'{"a":1e16,"c":"x"}',
    b'{"a":[{"b":"q"}]}',
    b'{"a":{"":[]},"":1}',
    b'{"skip":true}',
    b'{"a":"\\u0000\\ud83d\\ude00 \xf0\x9f\x98\x80"}',
    b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"a":"' + b"x" * (1 << 20) + b'"}',
    b'{"z":' + b"9" * 5000 + b"}",
    b'{"a":1}{"a":2}',
    b'{"a":',
    b"[]",
    b"7",
    b" \t",
    b'{"a":"last"}',
]
NOT_STRICT = [b'{"a":NaN}', b'{"a":[Infinity]}', b'{"a":"\\ud800"}']
"""Lines that Python reads, and that are no JSON for a dataset."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    (made / "c.yaml").write_text(HOSTILE_CONFIG)
    (made / "in.json").write_bytes(BOM_UTF8 + b"\n".join([*HOSTILE, *NOT_STRICT, *HOSTILE]))
    subprocess.run([*COMMAND, "-c", made / "c.yaml", "-f", made / "in.json", "-o", made / "out.json"], check=True)
    return made


def test_hostile_records_by_the_definition_and_as_a_filter(hostile: Path) -> None:
    from umbel.transform import load
    from umbel.transform.batches import BatchTransform

    lines = [each for each in (*HOSTILE, *NOT_STRICT, *HOSTILE) if each.strip()]
    expected = BatchTransform(load(hostile / "c.yaml")).record_by_record(lines).data
    assert (hostile / "out.json").read_bytes() == expected
    assert expected.count(b"\n") == 2 * 13 + 3
    source = (hostile / "in.json").read_bytes()
    command = [*COMMAND, "-q", "-c", hostile / "c.yaml"]
    assert subprocess.run(command, input=source, stdout=subprocess.PIPE, check=True).stdout == expected


def test_hostile_records_in_front_of_a_dataset(hostile: Path) -> None:
    from umbel.formats.json_lines import JsonLines
    from umbel.transform import load
    from umbel.transform.incoming import TransformedRows

    expected = (hostile / "out.json").read_bytes().split(b"\n")[:-1]
    lines = [each for each in HOSTILE if each.strip()]
    for texts in (lines, [*lines, *NOT_STRICT, *lines]):
        (raw,) = JsonLines({}, exact=False).texts(texts)
        rejected = dict(raw.rejects.select("row", "reason").iter_rows())
        found = TransformedRows.of(load(hostile / "c.yaml"), "e").outputs(raw, rejected)
        strict = expected[:13] + (expected[16:] if len(texts) > len(lines) else [])
        assert [each for each in found if isinstance(each, bytes)] == strict


@pytest.mark.spark
def test_hostile_records_in_spark(spark: SparkSession, hostile: Path) -> None:
    from umbel.transform.spark import dead_letters, transform

    expected = (hostile / "out.json").read_bytes()
    command = f"{shlex.join(COMMAND)} --quiet --config {hostile / 'c.yaml'}"
    found = spark.sparkContext.textFile(str(hostile / "in.json"), 3).pipe(command).collect()
    assert "\n".join([*found, ""]).encode() == expected
    lines = spark.read.text(str(hostile / "in.json"))
    assert "\n".join([*(row.value for row in transform(lines, hostile / "c.yaml").collect()), ""]).encode() == expected
    (hostile / "bytes.json").write_bytes(b'{"a":"\xff"}\n{"a":1}\n')
    damaged = spark.read.text(str(hostile / "bytes.json"))
    assert transform(damaged, hostile / "c.yaml").count() + dead_letters(damaged, hostile / "c.yaml").count() == 2
    texts = ['{"a":\n"x"}', '{"a":"x\ny"}', None, ""] * 2
    several = spark.createDataFrame([(each,) for each in texts], "value string").coalesce(1)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 4)
    found = [(row.line, row.error, row.record) for row in dead_letters(several, hostile / "c.yaml").collect()]
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    broken = '{"a":"x\ry"}'
    assert found == [(line, "BadRecord", text) for line, text in ((2, broken), (3, "null"), (6, broken), (7, "null"))]


def test_subcommands(folder: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)

    assert run("lint", folder / "c.yaml").stdout == f"{folder / 'c.yaml'}: 4 documents, 4 steps, 0 cases\n"
    shown = run("explain", folder / "c.yaml", "-f", folder / "in.json").stdout.splitlines()
    assert [line.rpartition(": ")[2] for line in shown[:1]] == ["native"]
    assert "Python: `sorted(source_field)` is outside of the subset" in shown[1]
    assert run("explain", folder / "c.yaml").stdout.splitlines()[2].endswith("parse_datetime → cast: native for str")
    (folder / "bad.yaml").write_text("source_field: a\ntarget_fild: b")
    bad = run("lint", folder / "bad.yaml")
    assert bad.returncode == 2
    assert "did you mean 'target_field'" in bad.stderr
    assert json.loads(run("schema").stdout)["anyOf"]
    assert "config.yaml < events.json" in run("--help").stdout
    assert run("--config", folder / "c.yaml", "-f", folder / "nothing.json").returncode == 2


def test_cases(tmp_path: Path) -> None:
    cases = """
---
tests:
  - {input: {a: X}, output: {b: x, c: null}}
  - {name: numbers, input: {a: 1}, dead_letter: lower}
  - {name: wrong, input: {a: X}, output: {b: y, c: null}}
  - {name: order, input: {a: X, c: {e: 1, d: 1}}, output: {c: {e: 1, d: 1}, b: x}}
  - {name: inner, input: {a: X, c: {d: 1, e: 1}}, output: {b: x, c: {e: 1, d: 1}}}
  - {name: types, input: {a: X, c: 1}, output: {c: true, b: x}}
"""
    copied = "\n---\nsource_field: c\ntarget_field: c"
    lower = "source_field: a\ntarget_field: b\ntransformations: [{name: lower}]"
    (tmp_path / "c.yaml").write_text(lower + copied + cases)
    found = subprocess.run([*COMMAND, "test", tmp_path / "c.yaml"], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stdout == "6 cases, 4 failed\n"
    assert [each.removeprefix(f"{tmp_path / 'c.yaml'}:") for each in found.stderr.splitlines()] == [
        '11: wrong: expected {"b":"y","c":null}, found {"b":"x","c":null}',
        '12: order: expected {"c":{"e":1,"d":1},"b":"x"}, found {"b":"x","c":{"e":1,"d":1}}: they differ in their order',
        '13: inner: expected {"b":"x","c":{"e":1,"d":1}}, found {"b":"x","c":{"d":1,"e":1}}: they differ in their order',
        '14: types: expected {"c":true,"b":"x"}, found {"b":"x","c":1}',
    ]
