"""`umbel query-offline`: begins a job, follows it, cancels it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.cli.conftest import Umbel
from tests.unit.serving.conftest import NOON, Served
from umbel.connectors.buckets import LOCATION
from umbel.offline.runner import OfflineRunner

QUERY = ("query-offline", "Origin.departures", "-i", "Origin.origin=who", "--timestamp", "when")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a bucket with some rows."""
    folder = tmp_path_factory.mktemp("buckets") / "data"
    folder.mkdir()
    (folder / "asked.csv").write_text(f"who,when\nJFK,{NOON}\nLGA,{NOON}\n,never\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCATION, folder.parent.as_uri())
        yield folder


def test_a_query_is_followed_to_its_end(umbel: Umbel, server: Served, data: Path) -> None:
    shown = umbel(*QUERY, "--from", "s3://data/asked.csv", "--to", "s3://data/out", "--to-format", "json")
    assert shown.exit_code == 0, shown.output
    request, report = shown.stdout.splitlines()
    assert report.startswith("COMPLETED: 100% done, 33.33% of the rows without an answer; parts are in data/out/")
    assert (data / "out" / request / "_SUCCESS").exists()
    assert (data / "out" / request / "part-00000.json").read_text().count("Origin.departures") == 2
    again = umbel("query-offline", "--track", request)
    assert again.stdout.splitlines() == [report]
    assert umbel("query-offline", "--cancel", request).stdout.splitlines() == [report]


@pytest.mark.parametrize(("ending", "compression"), [("csv.gz", "gzip"), ("csv.zst", "zstd")])
def test_the_format_of_compressed_files(
    umbel: Umbel, server: Served, data: Path, ending: str, compression: str
) -> None:
    with pa.CompressedOutputStream(str(data / f"packed.{ending}"), compression) as packed:
        packed.write(f"who,when\nJFK,{NOON}\n".encode())
    shown = umbel(*QUERY, "--from", f"s3://data/packed.{ending}")
    assert (shown.exit_code, "COMPLETED: 100% done; parts" in shown.stdout) == (0, True), shown.output


def test_a_query_need_not_be_followed(umbel: Umbel, server: Served, data: Path) -> None:
    begun = umbel(*QUERY, "--from", "s3://data/*.csv", "--no-wait").stdout.splitlines()
    stopped = umbel("query-offline", "--cancel", begun[0])
    assert stopped.stdout.split(":")[0] in {"CANCELLED", "COMPLETED"}


def test_the_exit_code_of_a_query_that_another_has_cancelled(
    umbel: Umbel, server: Served, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OfflineRunner, "_is_needed", lambda _: False)  # it stays open
    (request,) = umbel(*QUERY, "--from", "s3://data/*.csv", "--no-wait").stdout.splitlines()[:1]
    stopped = umbel("query-offline", "--cancel", request)
    assert (stopped.exit_code, stopped.stdout.split(":")[0]) == (0, "CANCELLED")
    followed = umbel("query-offline", "--track", request)
    assert (followed.exit_code, followed.stdout) == (1, stopped.stdout)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--track or --cancel"),
        (("--from", "data/asked.csv"), "is not s3://bucket/path"),
        (("--from", "s3://data/asked.csv", "--format", "orc"), "none of parquet, json and csv"),
        (("--from", "s3://data/asked.csv", "--to-format", "json"), "--to-format is the format of files at --to"),
    ],
)
def test_what_cannot_be_meant(umbel: Umbel, server: Served, options: tuple[str, ...], words: str) -> None:
    shown = umbel(*QUERY, *options)
    assert (shown.exit_code, words in shown.output) == (2, True)
