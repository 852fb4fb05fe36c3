"""Buckets: on a real S3 server, and folders that stand for them, behave alike."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.s3server import KEY, SECRET, S3Server
from tests.scenarios.server import HOST
from umbel.connectors import S3
from umbel.connectors.buckets import LOCATION, Bucket, Stored, bucket_of, chosen
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, NotSupported, Transient

numbers = itertools.count()


@dataclass
class Place:
    """Somewhere with a bucket."""

    environment: dict[str, str]
    folder: Path
    name: str

    def connector(self, prefix: str = "", source: S3 | None = None, **options: Any) -> Any:
        options = options or {"prefix": prefix}
        return (source or S3(name="tests")).bucket(self.name, **options)

    def bucket(self, source: S3 | None = None) -> Bucket:
        return bucket_of(self.connector(source=source), lambda credential: f"{credential}", self.environment)


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    name = f"bucket-{next(numbers)}"
    if request.param == "folder":
        (tmp_path / name).mkdir()
        return Place({LOCATION: tmp_path.as_uri()}, tmp_path / name, name)
    return on_s3(request.getfixturevalue("s3"), name)


def on_s3(server: S3Server, name: str) -> Place:
    keys = {"AWS_ENDPOINT_URL": server.url}
    return Place(keys, server.bucket(name), name)


@pytest.fixture(autouse=True)
def keys_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def put(bucket: Bucket, scratch: Path, path: str, content: bytes) -> None:
    (scratch / "content").write_bytes(content)
    bucket.put(scratch / "content", path)


def test_objects_are_put_listed_and_fetched(place: Place, tmp_path: Path) -> None:
    bucket, content = place.bucket(), bytes(range(256)) * 40_000
    put(bucket, tmp_path, "a/b/x.bin", content)
    put(bucket, tmp_path, "a/y.bin", b"")
    put(bucket, tmp_path, "ab.bin", b"12")
    assert bucket.listed("") == [Stored("a/b/x.bin", len(content)), Stored("a/y.bin", 0), Stored("ab.bin", 2)]
    assert [each.path for each in bucket.listed("a/")] == ["a/b/x.bin", "a/y.bin"]
    assert [each.path for each in bucket.listed("a/b/x")] == ["a/b/x.bin"]
    assert bucket.listed("none/here") == []
    assert bucket.read("a/b/x.bin") == content
    bucket.fetch_head("a/b/x.bin", tmp_path / "head", 300)
    assert (tmp_path / "head").read_bytes() == content[:300]


def test_an_object_is_replaced_as_a_whole(place: Place, tmp_path: Path) -> None:
    bucket = place.bucket()
    put(bucket, tmp_path, "x", b"first and long")
    put(bucket, tmp_path, "x", b"second")
    assert bucket.read("x") == b"second"
    assert [each.path for each in bucket.listed("")] == ["x"]


def test_an_object_in_a_folder_is_on_disk_before_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "file").write_bytes(b"x" * 100)
    bucket = Place({LOCATION: tmp_path.as_uri()}, tmp_path / "b", "b").bucket()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("umbel.connectors.buckets.os.fsync", full)
        with pytest.raises(Transient, match="No space") as failed:
            bucket.put(tmp_path / "file", "deep/object")
    assert failed.value.hint == "free some disk space"
    assert [path for path in (tmp_path / "b").rglob("*") if path.is_file()] == []
    bucket.put(tmp_path / "file", "deep/object")
    assert [path.name for path in (tmp_path / "b").rglob("*") if path.is_file()] == ["object"]


def test_what_cannot_be_put_whole_is_not_there(s3: S3Server, tmp_path: Path) -> None:
    place = on_s3(s3, "breaks-off")
    with breaking(s3.url, after=24 << 20) as url:
        far = bucket_of(place.connector(), str, {"AWS_ENDPOINT_URL": url})
        with pytest.raises(Transient, match="breaks-off"):
            put(far, tmp_path, "out/part.bin", bytes(64 << 20))
    assert place.bucket().listed("") == []


@contextmanager
def breaking(url: str, after: int) -> Iterator[str]:
    """Stand before a server, and vanish once so many bytes have been sent to it."""
    port = int(url.rpartition(":")[2])
    sent, lock, open_ones = 0, threading.Lock(), list[socket.socket]()
    listening = socket.create_server((HOST, 0))

    def vanish() -> None:
        for each in (listening, *open_ones):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def carry(source: socket.socket, target: socket.socket, counts: bool) -> None:
        nonlocal sent
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with lock:
                    sent += len(data) if counts else 0
                    if sent > after:
                        vanish()
                        return
                target.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, far = listening.accept()[0], socket.create_connection((HOST, port))
                open_ones.extend((near, far))
                for pair in ((near, far, True), (far, near, False)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://{HOST}:{listening.getsockname()[1]}"
    finally:
        vanish()


def test_any_part_of_an_object_can_be_read(place: Place, tmp_path: Path) -> None:
    bucket = place.bucket()
    pq.write_table(pa.table({"n": list(range(1000))}), tmp_path / "content")
    bucket.put(tmp_path / "content", "t.parquet")
    with bucket.opened("t.parquet") as source:
        assert pq.ParquetFile(source).metadata.num_rows == 1000


def test_a_bucket_that_is_not_there(place: Place, tmp_path: Path) -> None:
    missing = bucket_of(S3(name="tests").bucket("no-such-bucket", prefix="x"), str, place.environment)
    place.bucket().check("x")
    for attempt in (lambda: missing.check("x"), lambda: missing.listed("")):
        with pytest.raises(InvalidValue, match="no-such-bucket"):
            attempt()
    with pytest.raises(InvalidValue, match=r"x\.bin"):
        place.bucket().read("x.bin")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a/..", "x\0y"])
def test_paths_lead_nowhere_else(place: Place, path: str, tmp_path: Path) -> None:
    bucket = place.bucket()
    for attempt in (
        lambda: bucket.read(path),
        lambda: put(bucket, tmp_path, path, b"x"),
        lambda: bucket.listed(f"{path}/"),
        lambda: bucket.check(path),
    ):
        with pytest.raises(InvalidValue, match="no path in a bucket"):
            attempt()


@pytest.mark.parametrize("name", ["", "..", "a/b", ".", "../x"])
def test_names_that_are_no_bucket(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue):
        bucket_of(S3(name="tests").bucket(name, prefix="x"), str, {LOCATION: tmp_path.as_uri()})


def test_keys_of_the_connector_go_before_those_of_the_environment(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = on_s3(s3, "with-keys")
    wrong = S3(name="tests", aws_access_key_id=KEY, aws_secret_access_key="wrong")
    with pytest.raises(InvalidValue, match="the keys do not fit"):
        place.bucket(wrong).check("x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    secret = Secret(arn="kept")
    right = S3(name="tests", aws_access_key_id=KEY, aws_secret_access_key=secret)
    assert (
        bucket_of(place.connector(source=right), {KEY: KEY, secret: SECRET}.__getitem__, place.environment).listed("")
        == []
    )
    with pytest.raises(InvalidValue, match="go together"):
        place.bucket(S3(name="tests", aws_access_key_id=KEY))


def test_a_replaced_key_is_used_from_then_on(s3: S3Server) -> None:
    place, secret = on_s3(s3, "replaced-key"), Secret(arn="kept")
    stored = {KEY: KEY, secret: SECRET}
    own = place.connector(source=S3(name="tests", aws_access_key_id=KEY, aws_secret_access_key=secret))
    bucket = bucket_of(own, stored.__getitem__, place.environment)
    bucket.put_bytes(b"1", "a")
    stored[secret] = "revoked"
    with pytest.raises(InvalidValue, match="check bucket and credentials"):
        bucket.read("a")
    stored[secret] = SECRET
    assert bucket.read("a") == b"1"


def test_storage_that_cannot_be_reached_may_come_back() -> None:
    place = Place({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, Path(), "b")
    with pytest.raises(Transient, match="S3 'tests', bucket 'b'"):
        place.bucket().check("x")


@pytest.mark.parametrize("url", ["s3://x", "folder", "file://relative", "http://127.0.0.1"])
def test_places_that_are_no_folder(url: str) -> None:
    with pytest.raises(NotSupported, match=LOCATION):
        bucket_of(S3(name="tests").bucket("b", prefix="x"), str, {LOCATION: url})


STORED = [
    *("raw/2024/01/a.json", "raw/2024/01/b.csv", "raw/2024/02/deep/c.json", "raw/x.json", "rawer/d.json"),
    *("raw/_SUCCESS", "raw/.hidden/e.json", "raw/2024/_errors/f.json"),
]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"prefix": "raw"},
            ["raw/2024/01/a.json", "raw/2024/01/b.csv", "raw/2024/02/deep/c.json", "raw/x.json", "rawer/d.json"],
        ),
        ({"prefix": "raw/2024/01/a"}, ["raw/2024/01/a.json"]),
        ({"path": "raw"}, ["raw/2024/01/a.json", "raw/2024/01/b.csv", "raw/2024/02/deep/c.json", "raw/x.json"]),
        ({"path": "raw/x.json"}, ["raw/x.json"]),
        ({"path": "raw/*"}, ["raw/x.json"]),
        ({"path": "raw/**/*.json"}, ["raw/2024/01/a.json", "raw/2024/02/deep/c.json", "raw/x.json"]),
        ({"path": "raw/%Y/%m/*.json"}, ["raw/2024/01/a.json"]),
        ({"path": "raw/%Y/**"}, ["raw/2024/01/a.json", "raw/2024/01/b.csv", "raw/2024/02/deep/c.json"]),
        ({"path": "raw/*/%m/*.csv"}, ["raw/2024/01/b.csv"]),
        ({"path": "none/*"}, []),
    ],
)
def test_which_objects_a_connector_means(options: dict[str, str], expected: list[str]) -> None:
    connector = S3(name="tests").bucket("b", **options)
    stored = [Stored(path, 1) for path in STORED if path.startswith(connector.prefix)]
    assert [each.path for each in chosen(connector, stored)] == expected
