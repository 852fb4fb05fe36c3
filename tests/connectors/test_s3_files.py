"""Objects of a bucket as a source: what is listed and read, and what becomes of changed, damaged and refused ones."""

from __future__ import annotations

import gzip
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pytest

from tests.connectors.s3_shop import HOUR, Place, clicks, deployed, lines, options, place
from tests.unit.connectors.reading import Read, read
from umbel.connectors import CSV, S3
from umbel.connectors.file_source import FileSource
from umbel.connectors.known_files import MOST_FILES
from umbel.connectors.objects import Objects
from umbel.errors import UmbelError
from umbel.runtime.batch import drain
from umbel.types.dtypes import Datetime, Int

__all__ = ["place"]
__owner__ = "tests@example.com"
SCHEMA = {"user": Int(), "at": Datetime()}


def reader(place: Place, folder: Path, disorder: int = HOUR, **where: Any) -> FileSource:
    connector = S3(name="lake").bucket(place.name, **{"path": "raw/**/*.json", "format": "json", **where})
    made = connector.reader_of(options(folder, disorder))
    assert isinstance(made, FileSource)
    return made


def users(found: Read) -> list[int]:
    return [value[0] for value in found.values()]


def listings(source: FileSource, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return where each listing of a source begins."""
    starts, pages = list[str](), Objects._pages

    def counted(objects: Objects, start: str) -> Any:
        starts.append(start)
        return pages(objects, start)

    monkeypatch.setattr(Objects, "_pages", counted)
    return starts


# ---- what is read


def test_new_objects_are_read_once_in_the_order_of_their_names(place: Place, tmp_path: Path) -> None:
    for name, user in (("raw/b/1.json", 2), ("raw/a.json", 1), ("raw/c.json", 3)):
        place.put(name, lines([user]))
    for name in ("raw/_x/d.json", "raw/.e.json", "raw/f.csv", "rawer/g.json", "other.json"):
        place.put(name, lines([0]))
    source = reader(place, tmp_path)
    found = read(source, SCHEMA)
    assert users(found) == [1, 2, 3]
    place.put("raw/aa.json", lines([4]))
    read(source, SCHEMA, into=found)
    assert users(found) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"path": None, "prefix": "raw/cl"}, ["raw/cl", "raw/clicks/1.json", "raw/cluster.json"]),
        ({"path": None, "prefix": "raw/clicks/"}, ["raw/clicks/1.json"]),
        (
            {"path": None, "prefix": ""},
            ["raw/ck.json", "raw/cl", "raw/clicks/1.json", "raw/cluster.json", "raw/cm.json"],
        ),
        ({"path": "raw/*"}, ["raw/ck.json", "raw/cl", "raw/cluster.json", "raw/cm.json"]),
        ({"path": "raw/cl"}, ["raw/cl"]),
        ({"path": "nothing/*"}, []),
    ],
)
def test_a_prefix_or_a_path_says_which(place: Place, tmp_path: Path, where: Any, expected: list[str]) -> None:
    for name in ("raw/ck.json", "raw/clicks/1.json", "raw/cluster.json", "raw/cm.json"):
        place.put(name, lines([1]))
    if "cl" in str(where) or "raw/*" in str(where) or where.get("prefix") == "":
        place.put("raw/cl", lines([1])) if where != {"path": None, "prefix": "raw/clicks/"} else None
    splits, _ = reader(place, tmp_path, **where).plan(None, 1 << 30)
    assert [split["file"] for split, _ in splits] == expected


def encoded(form: str, rows: pl.DataFrame) -> tuple[str, bytes, Any]:
    """Return the ending, the content and the declared format of a file."""
    text = rows.write_csv().encode()
    if form == "parquet":
        target = io.BytesIO()
        rows.write_parquet(target, row_group_size=100)
        return "x.parquet", target.getvalue(), "parquet"
    if form == "avro":
        names = {"user": "long", "at": "string"}
        schema = {"type": "record", "name": "Click", "fields": [{"name": k, "type": v} for k, v in names.items()]}
        target = io.BytesIO()
        fastavro.writer(target, schema, rows.to_dicts(), codec="deflate")
        return "x.avro", target.getvalue(), "avro"
    if form == "csv":
        return "x.csv", text, CSV()
    ndjson = rows.write_ndjson().encode()
    packed = {"json": ndjson, "json.gz": gzip.compress(ndjson), "json.zst": pa.compress(ndjson, "zstd", asbytes=True)}
    return f"x.{form}", packed[form], "json"


@pytest.mark.parametrize("form", ["json", "json.gz", "json.zst", "csv", "parquet", "avro"])
@pytest.mark.parametrize("rows", [0, 1000])
def test_formats_give_the_rows_of_the_file(place: Place, tmp_path: Path, form: str, rows: int) -> None:
    ats = [f"2026-03-01T00:{n // 60 % 60:02}:{n % 60:02}Z" for n in range(rows)]
    name, content, declared = encoded(form, pl.DataFrame({"user": pl.Series(range(rows), dtype=pl.Int64), "at": ats}))
    place.put(f"raw/{name}", content)
    place.put(f"raw/empty-{name}", b"")
    source = reader(place, tmp_path, path="raw/*", format=declared)
    found = read(source, SCHEMA)
    assert found.dead == {}
    assert users(found) == list(range(rows))


@pytest.mark.parametrize("form", ["json.gz", "json.zst", "parquet", "avro"])
def test_a_damaged_object_is_reported_and_the_others_go_on(place: Place, tmp_path: Path, form: str) -> None:
    name, content, declared = encoded(form, pl.DataFrame({"user": range(1000), "at": ["2026-03-01T00:00:00Z"] * 1000}))
    place.put(f"raw/1{name}", content[: len(content) * 2 // 3])
    place.put(f"raw/2{name}", b"\x00\x01 nonsense")
    place.put(f"raw/3{name}", content)
    found = read(reader(place, tmp_path, path="raw/*", format=declared), SCHEMA)
    assert len(found.dead) == 2
    assert {where.partition(":")[0] for where, _, _ in found.dead.values()} == {f"raw/1{name}", f"raw/2{name}"}
    assert users(found)[-1000:] == list(range(1000))


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_large_object_is_split_and_read_in_ranges(
    place: Place, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umbel.connectors import objects

    monkeypatch.setattr(objects, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(objects, "BLOCK", 4096)
    rows = pl.DataFrame({"user": range(5000), "at": ["2026-03-01T00:00:00Z"] * 5000})
    name, content, declared = encoded(form, rows)
    place.put(f"raw/{name}", content)
    source = replace(reader(place, tmp_path, path="raw/*", format=declared), split_bytes=20_000)
    splits, _ = source.plan(None, 1 << 30)
    assert len(splits) > 2
    found = read(replace(source), SCHEMA, budget=30_000)
    assert found.dead == {}
    assert users(found) == list(range(5000))


# ---- what is listed


def test_dated_paths_with_a_spread_are_listed_from_the_last_dates_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reader(place, tmp_path, path="raw/%Y/%m/%d/*.json", spread="1d")
    starts = listings(source, monkeypatch)
    for day in range(1, 28):
        place.put(f"raw/2026/03/{day:02}/a.json", lines([day]))
    found = read(source, SCHEMA)
    assert users(found) == list(range(1, 28))
    assert starts[0] == ""
    assert set(starts[1:]) == {"raw/2026/03/23"}  # 27, less twice the spread, the disorder of an hour, and a day
    assert len(found.position["done"]) < 200
    place.put("raw/2026/03/24/late.json", lines([100]))
    place.put("raw/2026/04/01/a.json", lines([101]))
    place.put("raw/2026/03/27/a.json", lines([1, 2]))
    read(source, SCHEMA, into=found)
    assert users(found)[27:] == [100, 101]
    assert ["rewritten" in why or "appended" in why for why in found.reasons()] == [True]


def test_presorted_names_are_listed_from_the_last_one_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reader(place, tmp_path, path=None, prefix="raw/", presorted=True)
    starts = listings(source, monkeypatch)
    for number in range(5):
        place.put(f"raw/{number}.json", lines([number]))
    found = read(source, SCHEMA)
    place.put("raw/5.json", lines([5]))
    fresh = reader(place, tmp_path, path=None, prefix="raw/", presorted=True)  # another process
    read(fresh, SCHEMA, into=found)
    assert users(found) == [0, 1, 2, 3, 4, 5]
    assert starts[0] == ""
    assert set(starts[1:]) == {"raw/4.json", "raw/5.json"}


def test_a_listing_has_a_bound_and_the_next_goes_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reader(place, tmp_path, path="raw/*.json")
    assert isinstance(source.store, Objects)
    source = replace(source, store=replace(source.store, most=3))
    monkeypatch.setattr("umbel.connectors.objects.PAGE", 3)
    for number in range(8):
        place.put(f"raw/{number}.json", lines([number]))
    starts, position, found = listings(source, monkeypatch), None, list[str]()
    for _ in range(4):
        splits, position = source.plan(position, 1 << 30)
        found += [split["file"] for split, _ in splits]
    assert starts == ["", "raw/2.json", "raw/5.json", ""]
    assert found == [f"raw/{number}.json" for number in range(8)]


def test_a_plan_with_a_small_budget_does_not_list_again(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reader(place, tmp_path, path="raw/*.json")
    for number in range(8):
        place.put(f"raw/{number}.json", lines([number]))
    starts, position = listings(source, monkeypatch), None
    for _ in range(8):
        splits, position = source.plan(position, 1)
        assert len(splits) == 1
    assert len(starts) == 1


def test_more_files_than_there_are_numbers_for_are_refused(place: Place, tmp_path: Path) -> None:
    place.put("raw/a.json", lines([1]))
    source = reader(place, tmp_path)
    _, position = source.plan(None, 1)
    place.put("raw/b.json", lines([1]))
    with pytest.raises(UmbelError, match="reads 1048575 files at most"):
        source.plan({**position, "count": MOST_FILES - 1}, 1)


# ---- what changes under way


def test_deleted_objects_are_reported(place: Place, tmp_path: Path) -> None:
    place.put("raw/a.json", lines(range(1000)))
    place.put("raw/b.json", lines([2000]))
    source = replace(reader(place, tmp_path), split_bytes=5000)
    splits, position = source.plan(None, 6000)
    assert position["begun"][0] == "raw/a.json"
    place.delete("raw/a.json")
    found = Read(position=position)
    read(replace(source), SCHEMA, into=found)
    assert set(found.reasons()) == {"the file was deleted before it was read"}  # each part; one dead letter
    assert users(found) == [2000]
    assert [each.raw.rejects["reason"].to_list() for each in source.open(splits[0][0], SCHEMA, exact=True)] == [
        ["the file was deleted before it was read"]
    ]


# ---- what is refused


def refused(place: Place, folder: Path, s3: S3, **where: Any) -> str:
    with deployed(folder) as made, pytest.raises(UmbelError) as caught:
        made.commit([clicks(place, s3=s3, **where)])
    return str(caught.value)


def test_what_cannot_be_read_is_refused_at_commit(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = S3(name="lake", aws_access_key_id="tests", aws_secret_access_key="wrong-planted-secret")
    unknown = S3(name="lake", aws_access_key_id="planted-id", aws_secret_access_key="wrong-planted-secret")
    half = S3(name="lake", aws_access_key_id="tests")
    found = [refused(place, tmp_path, each) for each in (wrong, unknown, half)]
    assert [
        next(sign for sign in ("the secret key does not fit", "access key is not known", "go together") if sign in text)
        for text in found
    ] == ["the secret key does not fit", "access key is not known", "go together"]
    assert not any("planted" in text for text in found)
    place.name = "nowhere"
    assert "there is no such bucket" in refused(place, tmp_path, S3(name="lake"))
    place.name = "127.0.0.1"
    assert "is no name of a bucket" in refused(place, tmp_path, S3(name="lake"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    place.name = "away"
    monkeypatch.setattr("umbel.connectors.objects.RETRIES", {"max_retries": 0})
    monkeypatch.setattr("umbel.connectors.object_stores.RETRIES", {"max_retries": 0})
    assert "it does not answer" in refused(place, tmp_path, S3(name="lake"))
    assert "a table has one path" in refused(place, tmp_path, S3(name="lake"), format="hudi")


def test_a_login_can_be_a_secret_of_the_deployment(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.s3server import KEY, SECRET
    from umbel.integrations.aws import Secret

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    place.put("raw/a.json", lines([1]))
    login = Secret(arn="lake")
    with deployed(tmp_path) as made:
        made.deployment.vault.add("lake", f'{{"id": "{KEY}", "key": "{SECRET}"}}')
        made.commit(
            [clicks(place, s3=S3(name="lake", aws_access_key_id=login["id"], aws_secret_access_key=login["key"]))]
        )
        drain(made.deployment)
        assert made.changes("Clicks")["user"].to_list() == [1]


def test_a_bucket_that_is_gone_delays_nothing_else(place: Place, tmp_path: Path) -> None:
    other = Place(place.server)
    place.put("raw/a.json", lines([1]))
    with deployed(tmp_path, clicks(place), clicks(other, name="Others")) as made:
        (place.server.folder / other.name).rmdir()
        drain(made.deployment)
        assert made.changes("Clicks")["user"].to_list() == [1]


def test_folders_in_place_of_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    (tmp_path / "lake" / "shop" / "raw").mkdir(parents=True)
    (tmp_path / "lake" / "shop" / "raw" / "a.json").write_bytes(lines([1, 2]))
    monkeypatch.setenv("UMBEL_BUCKETS", f"file://{tmp_path / 'lake'}")
    place.name = "shop"
    assert users(read(reader(place, tmp_path), SCHEMA)) == [1, 2]


def test_a_folder_in_place_of_a_bucket_is_listed_whole_for_any_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    monkeypatch.setenv("UMBEL_BUCKETS", f"file://{tmp_path / 'lake'}")
    place.name = "shop"
    names = [f"raw/{each}/{n}.json" for n, each in enumerate(["cz", "cl", "cl.x", "cl-1/y", "ca", "clicks", "zz"] * 3)]
    for user, name in enumerate(names):
        path = tmp_path / "lake" / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines([user]))
    found = read(reader(place, tmp_path, path=None, prefix="raw/cl"), SCHEMA)
    assert [names[user] for user in users(found)] == sorted(name for name in names if name.startswith("raw/cl"))


def test_an_ending_in_capitals_is_that_of_a_compressed_object(place: Place, tmp_path: Path) -> None:
    place.put("raw/a.csv.GZ", gzip.compress(b"user,at\n1,2026-03-01\n2,2026-03-01\n"))
    found = read(reader(place, tmp_path, path="raw/*.GZ", format=CSV()), SCHEMA)
    assert (users(found), found.reasons()) == ([1, 2], [])


@pytest.mark.parametrize("name", ["a\tb.json", "a\x7f.json"])
def test_an_object_that_the_client_cannot_name_is_named_with_a_remedy(place: Place, tmp_path: Path, name: str) -> None:
    place.put("raw/good.json", lines([1]))
    (place.server.folder / place.name / "raw" / name).write_bytes(lines([2]))
    with deployed(tmp_path) as made, pytest.raises(UmbelError, match="cannot be listed past an object") as caught:
        made.commit([clicks(place)])
    assert repr(f"raw/{name}") in str(caught.value)
    assert "rename or delete it" in str(caught.value.hint)
