"""Offline queries that run as jobs: what is answered is what the same rows in a body are answered."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import polars as pl
import pytest

from tests.deployed import wait_until
from tests.unit.serving.conftest import NOON, Served
from tests.unit.serving.flights import DATASETS, FEATURESETS
from tests.unit.serving.jobs import (
    OUTPUTS,
    PATH,
    ask,
    ended,
    errors_of,
    found,
    lines,
    many,
    place,
    queried_at_once,
    rows_of,
    worked,
)
from umbel.api.commit import check_commit
from umbel.client import Client
from umbel.connectors import S3
from umbel.errors import InvalidValue, UmbelError
from umbel.expr import now
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.runtime.commit import commit

__owner__ = "tests@example.com"


@featureset
class Hour:
    hour: int = F(now().dt.hour)


def test_files_are_answered_as_rows_in_the_body_are(offline: Served, buckets: Path) -> None:
    rows = many(500)
    lines(buckets / "data/in/one/a.json", rows[:200])
    lines(buckets / "data/in/one/b.json.gz", rows[200:])
    report = ask(offline, {"input": place("in/one"), "output": place("out/one")})
    assert {**report, "request_id": "", "output_prefix": ""} == {
        "request_id": "",
        "output_bucket": "data",
        "output_prefix": "",
        "completion_rate": 0.0,
        "failure_rate": 0.0,
        "status": "PENDING",
    }
    assert report["output_prefix"] == f"out/one/{report['request_id']}/"
    report = ended(offline, report)
    assert (report["status"], report["completion_rate"], report["failure_rate"]) == ("COMPLETED", 1.0, 0.0)
    assert rows_of(buckets, report) == queried_at_once(offline, rows)
    assert [str(path) for path in found(buckets, report)] == ["_SUCCESS", "part-00000.json"]
    left = offline.deployment.directory / "offline" / "work"
    wait_until(lambda: not list(left.iterdir()), lambda: list(left.iterdir()), within=120)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_delimited_files_with_columns_of_other_names(idle: Served, buckets: Path, ending: str) -> None:
    rows = many(50)
    text = "who;junk;when\n" + "".join(f"{row['Origin.origin']};x;{row['at']}\n" for row in rows)
    path = buckets / f"data/in/csv{ending}/a{ending}"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    report = ask(
        idle,
        {"input": place(f"in/csv{ending}/", {"delimiter": ";"}), "output": place("out/csv", {"delimiter": "|"})},
        feature_to_column_map={"Origin.origin": "who"},
        timestamp_column="when",
    )
    report = worked(idle, report)
    assert report["status"] == "COMPLETED", report
    (part,) = (buckets / "data" / report["output_prefix"]).glob("part-*.csv")
    header, *cells = part.read_text().splitlines()
    assert header == "|".join([*OUTPUTS, "when"])
    expected = queried_at_once(idle, rows)
    assert cells == [
        f"{row['Origin.origin']}|{row['Origin.departures']}|{row['Origin.average']}|{str(row['Origin.is_late']).lower()}|{row['at']}"
        for row in expected
    ]


def test_parquet_to_parquet(idle: Served, buckets: Path) -> None:
    rows = many(300)
    frame = pl.DataFrame(rows).with_columns(pl.col("at").str.to_datetime("%+", time_zone="UTC"))
    (buckets / "data/in/parquet").mkdir(parents=True)
    frame.write_parquet(buckets / "data/in/parquet/a.parquet", row_group_size=70)
    report = worked(idle, ask(idle, {"input": place("in/parquet", "parquet"), "output": place("out/p", "parquet")}))
    assert report["status"] == "COMPLETED", report
    answer = pl.read_parquet(buckets / "data" / report["output_prefix"] / "part-*.parquet")
    expected = pl.DataFrame(queried_at_once(idle, rows)).with_columns(
        pl.col("at").str.to_datetime("%+", time_zone="UTC")
    )
    assert answer.equals(expected)


def test_features_of_the_instant_alone(idle: Served, buckets: Path) -> None:
    commit(idle.deployment, check_commit(DATASETS, [*FEATURESETS, Hour]))
    rows = [{"at": NOON}, {"at": "2013-12-01T23:59:00Z"}]
    lines(buckets / "data/in/hours/a.json", rows)
    query: dict[str, Any] = {"inputs": [], "outputs": ["Hour.hour"]}
    expected = {"Hour.hour": [12, 23], "at": [row["at"] for row in rows]}
    assert ask(idle, query, data=rows) == expected
    for more in ({"input": place("in/hours")}, {"data": rows}):
        report = worked(idle, ask(idle, query, output=place("out/hours"), **more))
        assert report["status"] == "COMPLETED", report
        assert rows_of(buckets, report) == [
            dict(zip(expected, row, strict=True)) for row in zip(*expected.values(), strict=True)
        ]


def test_rows_in_the_body_and_an_output(idle: Served, buckets: Path) -> None:
    rows = many(40)
    report = worked(idle, ask(idle, {"data": rows, "output": place("out/body")}))
    assert report["status"] == "COMPLETED", report
    assert rows_of(buckets, report) == queried_at_once(idle, rows)


def test_rows_in_the_body_with_instants_named_like_an_input(idle: Served, buckets: Path) -> None:
    data = {"who": ["JFK", "LGA"], "Origin.origin": ["2013-12-01T15:10:00Z", "2013-12-01T16:00:00Z"]}
    named = {"timestamp_column": "Origin.origin", "feature_to_column_map": {"Origin.origin": "who"}}
    query = {"data": data, "outputs": ["Origin.departures"], **named}
    report = worked(idle, ask(idle, query | {"output": place("out/like")}))
    assert report["status"] == "COMPLETED", report
    expected = [[2, "2013-12-01T15:10:00Z"], [1, "2013-12-01T16:00:00Z"]]
    assert [[*row.values()] for row in rows_of(buckets, report)] == expected
    assert list(zip(*ask(idle, query).values(), strict=True)) == [tuple(row) for row in expected]


def test_rows_in_the_body_of_which_one_column_would_have_two_types(idle: Served, buckets: Path) -> None:
    body = {
        "inputs": ["Origin.origin"],
        "outputs": ["Origin.average"],
        "data": {"Origin.origin": ["2013-12-01T15:10:00Z"]},
    }
    answer = idle.post(PATH, body | {"timestamp_column": "Origin.origin", "output": place("out/two")})
    assert answer.status_code == 400
    assert "column 'Origin.origin' would be of type datetime" in answer.text


def test_without_an_output_answers_are_in_umbels_own_folder(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/own/a.json", many(10))
    report = worked(idle, ask(idle, {"input": place("in/own")}))
    assert report["status"] == "COMPLETED", report
    folder = Path(report["output_bucket"].removeprefix("file://"), report["output_prefix"])
    assert folder.is_relative_to(idle.deployment.directory)
    assert pl.read_parquet(folder / "part-*.parquet").height == 10


def test_an_output_that_is_a_file_is_refused_at_once(idle: Served, buckets: Path) -> None:
    (buckets / "data/taken").write_text("no folder")
    for prefix in ("taken", "taken/below"):
        query = {"inputs": ["Origin.origin"], "outputs": OUTPUTS, "timestamp_column": "at", "data": many(10)}
        answer = idle.post(PATH, query | {"output": place(prefix)})
        assert answer.status_code == 400
        assert "a file is where a folder must be" in answer.text
        assert "name another path" in answer.text
    assert (buckets / "data/taken").read_text() == "no folder"


def test_an_output_that_becomes_a_file_fails_the_job_at_its_first_attempt(idle: Served, buckets: Path) -> None:
    begun = ask(idle, {"data": many(10), "output": place("out/late/below")})
    (buckets / "data/out").mkdir(exist_ok=True)
    (buckets / "data/out/late").write_text("no folder")
    report = worked(idle, begun)
    assert report["status"] == "FAILED"
    assert report["reason"].startswith("S3 ")
    assert "a file is where a folder must be" in report["reason"]


def test_bad_rows_are_counted_and_stored_with_their_reasons(idle: Served, buckets: Path) -> None:
    good = many(30)
    bad = [
        b"{broken\n",
        {"Origin.origin": "JFK"},
        {"Origin.origin": None, "at": NOON},
        {"Origin.origin": "JFK", "at": "yesterday"},
        b"[1, 2]\n",
        b'{"Origin.origin": "\xff", "at": "2013-12-01T12:00:00Z"}\n',
    ]
    lines(buckets / "data/in/bad/a.json", [*good[:10], *bad, *good[10:]])
    report = worked(idle, ask(idle, {"input": place("in/bad"), "output": place("out/bad")}))
    assert (report["status"], report["failure_rate"]) == ("COMPLETED", len(bad) / (len(bad) + len(good)))
    assert rows_of(buckets, report) == queried_at_once(idle, good)
    errors = errors_of(buckets, report)
    assert [each["field"] for each in errors] == ["", "at", "Origin.origin", "at", "", ""]
    assert "in/bad/a.json: byte" in errors[0]["where"]
    nameless, null = '{"Origin.origin":"JFK"}', f'{{"Origin.origin":null,"at":"{NOON}"}}'
    assert [each.get("row") for each in errors[:3]] == ["{broken", nameless, null]
    assert all(each["reason"] for each in errors)


def test_rows_of_which_none_can_be_read(idle: Served, buckets: Path) -> None:
    bad = [{"Origin.origin": "JFK", "at": "yesterday"}] * 100
    lines(buckets / "data/in/unread/a.json", bad)
    report = worked(idle, ask(idle, {"input": place("in/unread"), "output": place("out/unread")}))
    assert (report["status"], report["failure_rate"]) == ("FAILED", 1.0)
    assert "none of the 100 rows has an answer" in report["reason"]
    assert [str(path) for path in found(buckets, report)] == ["_errors/part-00000.json"]
    assert {each["reason"] for each in errors_of(buckets, report)} == {"expected datetime, got 'yesterday' (str)"}


def test_a_damaged_file_among_others(idle: Served, buckets: Path) -> None:
    rows = many(20)
    lines(buckets / "data/in/damaged/a.json", rows)
    data = gzip.compress(orjson.dumps(rows[0]) + b"\n")
    (buckets / "data/in/damaged/b.json.gz").write_bytes(data[:-6])
    (buckets / "data/in/damaged/c.json.gz").write_bytes(b"no gzip at all")
    (buckets / "data/in/damaged/d.json").touch()
    report = worked(idle, ask(idle, {"input": place("in/damaged"), "output": place("out/damaged")}))
    assert report["status"] == "COMPLETED", report
    assert rows_of(buckets, report)[:20] == queried_at_once(idle, rows)
    assert {each["where"].partition(":")[0] for each in errors_of(buckets, report)} == {
        "in/damaged/b.json.gz",
        "in/damaged/c.json.gz",
    }


def test_rows_that_an_extractor_refuses(idle: Served, buckets: Path) -> None:
    idle.post("/api/v1/secret/mark", {"value": "!"})
    names = [f"n{n}" if n % 40 else "nobody" for n in range(1, 201)]
    lines(buckets / "data/in/names/a.json", [{"name": name, "at": NOON} for name in names])
    query = {
        "inputs": ["Greeting.name"],
        "outputs": ["Greeting.text"],
        "feature_to_column_map": {"Greeting.name": "name"},
    }
    report = worked(idle, ask(idle, query | {"input": place("in/names"), "output": place("out/names")}))
    assert (report["status"], report["failure_rate"]) == ("COMPLETED", 5 / 200)
    assert [row["Greeting.text"] for row in rows_of(buckets, report)] == [
        f"{name}!" for name in names if name != "nobody"
    ]
    assert all("nobody is not somebody" in each["reason"] for each in errors_of(buckets, report))
    assert [json.loads(each["row"])["name"] for each in errors_of(buckets, report)] == ["nobody"] * 5


def test_the_client_speaks_to_it(offline: Served, buckets: Path) -> None:
    from tests.unit.serving.flights import Origin

    client = Client("http://umbel", transport=offline.transport)
    rows = many(25)
    text = "who,at\n" + "".join(f"{row['Origin.origin']},{row['at']}\n" for row in rows)
    (buckets / "data/in/client").mkdir(parents=True)
    (buckets / "data/in/client/x.csv").write_text(text)
    s3 = S3(name="files", aws_access_key_id="key", aws_secret_access_key="kept")
    report = client.query_offline(
        [Origin.origin],
        [Origin],
        "at",
        input_s3=s3.bucket("data", path="in/client/*.csv"),
        output_s3=s3.bucket("data", prefix="out/client", format="json"),
        feature_to_column_map={Origin.origin: "who"},
    )
    assert isinstance(report, dict)
    while report["status"] in ("PENDING", "RUNNING"):
        report = client.track_offline_query(report["request_id"])
        time.sleep(0.05)
    assert report["status"] == "COMPLETED", report
    assert [row["Origin.departures"] for row in rows_of(buckets, report)] == [
        row["Origin.departures"] for row in queried_at_once(offline, rows)
    ]
    assert client.cancel_offline_query(report["request_id"]) == report
    place = s3.bucket("data", prefix="x")
    with pytest.raises(InvalidValue, match="not both"):
        client.query_offline([Origin.origin], [Origin], "at", pd.DataFrame({"at": [NOON]}), input_s3=place)
    with pytest.raises(InvalidValue, match=r"input_dataframe or input_s3"):
        client.query_offline([Origin.origin], [Origin], "at", output_s3=s3.bucket("data", prefix="x"))
    with pytest.raises(UmbelError, match=r"S3\(\.\.\.\)\.bucket"):
        client.query_offline([Origin.origin], [Origin], "at", input_s3="s3://data/x")
