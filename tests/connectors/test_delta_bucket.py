"""Delta tables in buckets of an S3 server: read with the credentials of the worker or of the source; errors show neither."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.connectors.s3_shop import Place, place
from tests.connectors.shop_datasets import deployed, letters, orders, rows_of, until
from tests.s3server import KEY, SECRET
from umbel.connectors import GCS, S3
from umbel.connectors.delta_sink import DeltaWriter
from umbel.connectors.delta_tables import DeltaPlace, options_of
from umbel.connectors.sinks import WriteOptions
from umbel.errors import InvalidValue, NotSupported, UmbelError
from umbel.types.dtypes import Int, Str
from umbel.types.schema import Schema

__all__ = ["place"]
NOW = datetime.now(UTC).replace(microsecond=0)
FEED = {"delta.enableChangeDataFeed": "true"}


class Lake:
    """The tables of a bucket."""

    def __init__(self, source: Any, place: Place, **options: Any) -> None:
        self._source, self._place, self._options = source, place, options

    def table(self, name: str, _: Any = None) -> Any:
        where = self._options or {"prefix": f"tables/{name}"}
        return self._source.bucket(self._place.name, format="delta", **where)


def definition(source: Any, place: Place, **options: Any) -> Any:
    return orders(Lake(source, place, **options), cdc="native", every="1s", disorder="30d")


@pytest.fixture
def table(place: Place) -> Any:
    """Return the address of a table with a change data feed, and the options of its storage."""
    address = f"s3://{place.name}/tables/orders"
    options = {**options_of(place.server.environment), **place.server.environment}
    rows = pa.table({"id": [1, 2, 3], "note": ["a", "b", "c"], "updated_at": [NOW] * 3})
    write_deltalake(address, rows, storage_options=options, configuration=FEED)
    return address, options


@pytest.mark.parametrize("has_keys", [False, True])
def test_a_table_in_a_bucket_is_followed(
    place: Place, table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_keys: bool
) -> None:
    address, options = table
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET} if has_keys else {}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if has_keys else ():
        monkeypatch.delenv(name)
    with deployed(tmp_path, definition(S3(name="lake", **keys), place)) as made:
        until(made, lambda: len(rows_of(made, "Orders", ["id"])) == 3, 60)
        DeltaTable(address, storage_options=options).delete("id = 1")
        DeltaTable(address, storage_options=options).update(predicate="id = 2", updates={"note": "'changed'"})
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(2, "changed"), (3, "c")], 60)
        assert letters(made) == []


def test_a_wrong_key_is_refused_and_not_shown(
    place: Place, table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    wrong = S3(name="lake", aws_access_key_id="planted-id", aws_secret_access_key="planted-value")
    with deployed(tmp_path) as made, pytest.raises(UmbelError) as caught:
        made.commit([definition(wrong, place)])
    assert "planted" not in str(caught.value)


def test_other_places_are_refused(place: Place, tmp_path: Path) -> None:
    with deployed(tmp_path) as made:
        with pytest.raises(InvalidValue, match="there is no Delta table at s3://"):
            made.commit([definition(S3(name="lake"), place, prefix="tables/none")])
        with pytest.raises(InvalidValue, match="one path"):
            made.commit([definition(S3(name="lake"), place, path="tables/%Y/*")])
        with pytest.raises(NotSupported, match="cannot be read yet"):
            made.commit([definition(GCS(name="google"), place, prefix="tables/orders")])
        with pytest.raises(InvalidValue, match="go together"):
            made.commit([definition(S3(name="lake", aws_access_key_id="a"), place)])


@pytest.mark.parametrize("path", ["tables/orders#2", "tables/orders?v=2", "tables/order%73"])
def test_a_path_that_an_address_would_cut_or_decode_is_refused(
    place: Place, table: Any, tmp_path: Path, path: str
) -> None:
    """It was the table `tables/orders`, of readers and of sinks."""
    lake = S3(name="lake").bucket(place.name, prefix=path, format="delta")
    with deployed(tmp_path) as made, pytest.raises(InvalidValue, match=r"it cannot have \['[#?%]'\]"):
        made.commit([definition(S3(name="lake"), place, prefix=path)])
    with pytest.raises(InvalidValue, match=r"it cannot have \['[#?%]'\]"):
        lake.examine_writer(WriteOptions(id="x", dataset="T", schema=Schema((), (("id", Int()),), "at"), renames={}))


def test_other_threads_run_while_a_storage_does_not_answer(place: Place, table: Any) -> None:
    """The worker gave no sign of life meanwhile, and the server answered nobody during a commit."""
    address, options = table
    made = DeltaPlace("table", lambda: (address, options))
    (file,) = made.snapshot(0)
    out = S3(name="lake").bucket(place.name, prefix="tables/none", format="delta")
    schema = Schema((("id", Int()),), (("note", Str()),), "at")
    sink = DeltaWriter(out, WriteOptions(id="x", dataset="T", schema=schema, renames={}))
    assert place.server._process is not None
    process = place.server._process.pid
    for action in (lambda: made.commit(0), lambda: next(made.rows(file, {"id": "long"})), sink.examine):
        pause = f"kill -STOP {process}; sleep 2; kill -CONT {process}"  # by another process, which needs no lock of this one
        with subprocess.Popen(["/bin/sh", "-c", pause]) as paused, ThreadPoolExecutor() as pool:
            time.sleep(0.5)
            answer, ticks = pool.submit(action), 0
            while paused.poll() is None:
                time.sleep(0.01)
                ticks += 1
            answer.result()
        assert ticks > 10
