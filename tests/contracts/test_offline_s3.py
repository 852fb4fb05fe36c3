"""Offline queries from a real S3 server to it: a server process that is killed in the middle, and its successor."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pyarrow.fs
import pytest

from tests.deployed import wait_until
from tests.s3server import KEY, SECRET, S3Server
from tests.scenarios.server import HOST, ServerProcess
from tests.unit.serving.conftest import DEPARTURES
from tests.unit.serving.flights import DATASETS, FEATURESETS
from umbel.api.commit import check_commit
from umbel.client import Client
from umbel.connectors import S3
from umbel.log.ingest import IngestLogs
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

ROWS = 500_000
OUTPUTS = ["Origin.origin", "Origin.departures", "Origin.average"]


def deployed(folder: Path) -> None:
    """Make a deployment with some departures."""
    place = Deployment.at(folder / "umbel", shards=2)
    commit(place, check_commit(DATASETS, FEATURESETS))
    logs = IngestLogs(place.directory)
    logs.log("events", "departures").append_blocking(orjson.dumps(DEPARTURES), len(DEPARTURES))
    logs.close()
    drain(place)


def requested() -> pl.DataFrame:
    """Return rows to ask about: some departures, at instants around them."""
    numbers = pl.int_range(ROWS, eager=True)
    begun = pl.lit("2013-12-01T10:00:00Z").str.to_datetime("%+", time_zone="UTC")
    origins = pl.Series(["JFK", "LGA", "EWR"])
    return pl.select(
        origins.gather(numbers % 3).alias("who"),
        (begun + pl.duration(seconds=numbers * 7 % 36_000)).alias("at"),
        (numbers % 5).alias("label"),
    )


def followed(client: Client, report: dict[str, Any], within: float = 600) -> dict[str, Any]:
    deadline = time.monotonic() + within
    while report["status"] in ("PENDING", "RUNNING"):
        assert time.monotonic() < deadline, report
        time.sleep(0.2)
        report = client.track_offline_query(report["request_id"])
    return report


def put_rows(server: S3Server, bucket: str, rows: pl.DataFrame) -> pyarrow.fs.S3FileSystem:
    """Make a bucket with rows in two files; return what it is in."""
    server.bucket(bucket)
    storage = pyarrow.fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=server.url, region="us-east-1"
    )
    for number, part in enumerate((rows[: ROWS // 3], rows[ROWS // 3 :])):
        data = io.BytesIO()
        part.write_parquet(data, row_group_size=100_000)
        with storage.open_output_stream(f"{bucket}/asked/{number}.parquet") as target:
            target.write(data.getvalue())
    return storage


@contextmanager
def serving(folder: Path) -> Iterator[tuple[ServerProcess, Client]]:
    server = ServerProcess(folder)
    try:
        server.wait_until_ready()
        with Client(f"http://{HOST}:{server.port}") as client:
            yield server, client
    finally:
        server.stop()


def begun(client: Client, bucket: str) -> dict[str, Any]:
    files = S3(name="files")
    report = client.query_offline(
        ["Origin.origin"],
        OUTPUTS,
        "at",
        input_s3=files.bucket(bucket, prefix="asked/", format="parquet"),
        output_s3=files.bucket(bucket, prefix="answers", format="parquet"),
        feature_to_column_map={"Origin.origin": "who"},
    )
    assert isinstance(report, dict)
    return report


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.nightly)])
def test_from_s3_to_s3_through_a_restart(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("UMBEL_BUCKETS", raising=False)
    rows = requested()
    storage = put_rows(s3, how, rows)
    deployed(tmp_path)
    with serving(tmp_path) as (server, client):
        report = begun(client, how)
        wait_until(lambda: client.track_offline_query(report["request_id"])["completion_rate"] > 0, lambda: report)
        for process in (server.process, *server.family()) if how == "killed" else ():
            process.kill()
    with serving(tmp_path) as (_, client):
        report = followed(client, report)
        assert (report["status"], report["completion_rate"], report["failure_rate"]) == ("COMPLETED", 1.0, 0.0), report
        head, renamed = rows.head(2000), {"Origin.origin": "who"}
        expected = client.query_offline(
            ["Origin.origin"], OUTPUTS, "at", head.to_pandas(), feature_to_column_map=renamed
        )
    folder = f"{how}/{report['output_prefix']}"
    found = storage.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True))
    names = sorted(each.path for each in found if each.is_file)
    assert [name.removeprefix(folder) for name in names] == [
        "_SUCCESS",
        *(f"part-{number:05d}.parquet" for number in range(len(names) - 1)),
    ]
    assert len(names) > ROWS // 131_072
    answer = pl.concat(pl.read_parquet(read(storage, name)) for name in names[1:])
    assert (answer.height, answer["at"].equals(rows["at"])) == (ROWS, True)
    assert answer.head(2000).rows() == pl.from_pandas(expected).rows()


def read(storage: pyarrow.fs.S3FileSystem, path: str) -> bytes:
    with storage.open_input_file(path) as source:
        return bytes(source.read())
