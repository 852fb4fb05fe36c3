"""Objects of Google Cloud Storage as a source, against a fake of its protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.connectors.s3_shop import lines, options
from tests.servers.gcs import GcsServer, started_or_missing
from tests.unit.connectors.reading import read
from umbel.connectors import GCS
from umbel.connectors.file_source import FileSource
from umbel.definitions.arguments import Delivery
from umbel.errors import InvalidValue, Transient
from umbel.types.dtypes import Datetime, Int

SCHEMA = {"user": Int(), "at": Datetime()}


@pytest.fixture
def gcs_server(tmp_path: Path) -> Iterator[GcsServer]:
    yield from started_or_missing(tmp_path)


@pytest.mark.nightly
def test_objects_are_read_once_and_overwritten_ones_reported(gcs_server: GcsServer, tmp_path: Path) -> None:
    gcs_server.bucket("lake")
    lake = GCS(name="lake", service_account_key=gcs_server.key)
    connector = lake.bucket("lake", path="raw/%Y/%m/%d/*.json", format="json", spread="1d")
    source = connector.reader_of(options(tmp_path))
    assert isinstance(source, FileSource)
    source.examine()
    for day in range(1, 10):
        gcs_server.put("lake", f"raw/2026/03/{day:02}/a.json", lines(range(day * 10, day * 10 + 10)))
    found = read(source, SCHEMA)
    assert [value[0] for value in found.values()] == list(range(10, 100))
    gcs_server.put("lake", "raw/2026/03/10/a.json", lines(range(100, 110)))
    gcs_server.put("lake", "raw/2026/03/09/a.json", lines([1]))
    fresh = replace(source)
    read(fresh, SCHEMA, into=found)
    assert [value[0] for value in found.values()] == list(range(10, 110))
    assert ["it is not read again" in why for why in found.reasons()] == [True]
    gcs_server.put("lake", "raw/2026/03/11/a.json", lines([110]))
    ((split, _),), _ = fresh.plan(found.position, 1 << 30)
    gcs_server.put("lake", "raw/2026/03/11/a.json", lines([111]))
    (batch,) = fresh.open(split, SCHEMA, exact=True)
    assert batch.raw.rejects["reason"].to_list() == ["the object was overwritten before it was read"]


@pytest.mark.nightly
def test_an_object_that_the_storage_decompresses_holds_up_no_other(gcs_server: GcsServer, tmp_path: Path) -> None:
    gcs_server.bucket("lake")
    lake = GCS(name="lake", service_account_key=gcs_server.key)
    source = lake.bucket("lake", prefix="raw/", format="json").reader_of(options(tmp_path))
    gcs_server.put("lake", "raw/a.json", lines(range(10)))
    gcs_server.put_compressed("lake", "raw/b.json", lines(range(10, 20)))
    gcs_server.put("lake", "raw/c.json", lines(range(20, 30)))
    found = read(source, SCHEMA)
    assert [value[0] for value in found.values()] == [*range(10), *range(20, 30)]
    ((_, reason, _),) = found.dead.values()
    assert "Content-Encoding: gzip" in reason
    assert "without that header" in reason


@pytest.mark.parametrize("key", ["", "{}", '"AKIAPLANTED"', '["AKIAPLANTED"]', "AKIAPLANTED"])
def test_a_key_that_is_none_is_refused_and_holds_up_its_source_alone(tmp_path: Path, key: str) -> None:
    connector = GCS(name="lake", service_account_key=key).bucket("lake", prefix="raw/", format="json")
    source = connector.reader_of(options(tmp_path))
    with pytest.raises(InvalidValue, match="its service_account_key is no key of a service account") as caught:
        source.examine()
    assert "AKIAPLANTED" not in caught.value.described()
    with pytest.raises(Transient, match="its service_account_key is no key of a service account"):
        source.plan(None, 1 << 30)


def test_a_key_is_never_shown_and_a_bucket_is_no_sink() -> None:
    connector = GCS(name="lake", service_account_key="planted").bucket("b", prefix="p", format="json")
    assert "planted" not in repr(connector)
    nothing = Delivery(cdc=None, every=None, how=None, renames={}, since=None, until=None)
    with pytest.raises(InvalidValue, match="cannot be a sink"):
        connector.check_sink(nothing)
