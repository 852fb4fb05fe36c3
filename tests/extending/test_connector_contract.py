"""The contract suites of connectors, run on an example of another package and on umbel's own; and the example at work."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Optional

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pytest

from tests.connectors.shop_datasets import letters, until
from tests.deployed import Deployed
from tests.extending.install import PACKAGE
from tests.extending.shelves import Shelves, serving
from umbel.catalog.purges import Mentions
from umbel.connectors import HTTP, Files, Webhook, source
from umbel.connectors.custom import Page, PagedConnector, PagedSource
from umbel.connectors.polling import stop_polling
from umbel.connectors.sinks import SinkWriter, WriteOptions
from umbel.datasets import dataset, field
from umbel.definitions.arguments import DataSource
from umbel.errors import InvalidType, Transient
from umbel.log.ingest import IngestLogs
from umbel.query.erasure import ErasedKeys
from umbel.runtime.redactions import redact_staged
from umbel.runtime.sources import open_sources
from umbel.testing.connectors import SinkContract, SourceContract, read_options
from umbel.types.dtypes import Int, Str
from umbel.types.schema import Schema

__owner__ = "shop@example.com"
sys.path.append(str(PACKAGE))
from umbel_extras.shelf import Shelf


@pytest.fixture(autouse=True)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelves]:
    """Return a server; tests of suites find it as `self.shelves`, and its threads end with them."""
    with serving() as shelves:
        if request.instance is not None:
            request.instance.shelves = shelves
        yield shelves
        stop_polling(tmp_path)


class Poller:
    """A poller that never stops."""

    is_stopping, consumed, planned, lag, unread, may_retry = False, 0, 0, None, None, True

    def progressed(self, _: Any) -> None:
        return

    def requests(self, _: str) -> None:
        return


class TestShelf(SourceContract):
    shelves: Shelves

    def connector(self, folder: Path) -> Any:
        return Shelf(name="shelf", url=self.shelves.url).items("a", "b")

    def put(self, numbers: Sequence[int]) -> None:
        for n in numbers:
            self.shelves.put("ab"[n % 2], {"n": n})


@dataclass(frozen=True, kw_only=True)
class Lines(DataSource):
    """A file of numbers, read into Arrow."""


@dataclass(frozen=True, kw_only=True)
class LinesConnector(PagedConnector):
    path: str

    def pages(self) -> Any:
        return self

    def partitions(self) -> Sequence[str]:
        return ["only"]

    def read(self, partition: str, offset: Any) -> Iterator[Page]:
        assert partition == "only"
        numbers = [int(line) for line in Path(self.path).read_text().split()]
        for begin in range(offset or 0, len(numbers), 4):
            page = numbers[begin : begin + 4]
            yield Page(pa.table({"n": page, "other": ["x"] * len(page)}), begin + len(page))


class TestArrow(SourceContract):
    def connector(self, folder: Path) -> Any:
        self.file = folder / "numbers"
        self.file.touch()
        return LinesConnector(source=Lines(name="lines"), path=str(self.file))

    def put(self, numbers: Sequence[int]) -> None:
        with self.file.open("a") as file:
            file.writelines(f"{n}\n" for n in numbers)


class TestFiles(SourceContract):
    def connector(self, folder: Path) -> Any:
        self.folder = folder
        return Files(name="files", folder=str(folder)).path("*.ndjson")

    def put(self, numbers: Sequence[int]) -> None:
        name = f"{len(list(self.folder.iterdir())):04d}.ndjson"
        (self.folder / f".{name}").write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
        (self.folder / f".{name}").rename(self.folder / name)


class TestWebhook(SourceContract):
    def connector(self, folder: Path) -> Any:
        self.logs = IngestLogs(folder.parent)
        return Webhook(name="web").endpoint("rows")

    def put(self, numbers: Sequence[int]) -> None:
        payload = orjson.dumps([{"n": n} for n in numbers])
        self.logs.log("web", "rows").append_blocking(payload, len(numbers))


class TestShelfSink(SinkContract):
    shelves: Shelves

    def writer(self, folder: Path) -> SinkWriter:
        return Shelf(name="shelf", url=self.shelves.url).items("out").writer("contract", "Contract")

    def delivered(self) -> dict[int, int]:
        return self.shelves.rows

    def count(self) -> int | None:
        return self.shelves.changes


class TestHTTPSink(TestShelfSink):
    def writer(self, folder: Path) -> SinkWriter:
        schema = Schema((("k", Int()),), (("n", Int()),), "t")
        options = WriteOptions(id="contract", dataset="Contract", schema=schema, renames={})
        return HTTP(name="h", host=self.shelves.url, healthz="").path("/out").writer_of(options)


def test_items_come_into_a_dataset(
    site: Path, server: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, whatever the server answers in between; a bad item is a dead letter."""
    monkeypatch.syspath_prepend(str(site))
    for n in range(300):
        server.put("ab"[n % 2], {"n": n, "t": "2024-01-01"})
    server.put("a", {"n": "x", "t": "2024-01-01"})

    @source(Shelf(name="shelf", url=server.url).items("a", "b"), disorder="30d", cdc="append", every="1s")
    @dataset
    class Seen:
        n: int
        t: datetime

    made = Deployed(tmp_path / "umbel")
    try:
        made.commit([Seen])
        until(made, lambda: made.taken().get("Seen") == 301)
        server.failures = 3
        stop_polling(tmp_path)
        server.put("b", {"n": 300, "t": "2024-01-01"})
        until(made, lambda: made.taken().get("Seen") == 302)
        assert sorted(made.changes("Seen")["n"]) == list(range(301))
        (letter,) = letters(made)
        assert letter.field == "n"
        assert json.loads(letter.raw)["n"] == "x"
        assert "Shelf 'shelf': a, row" in letter.position
    finally:
        stop_polling(tmp_path)
        made.close()


def test_an_interrupted_read_goes_on_behind_its_last_page(
    server: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the beginning; and the error is told."""
    from umbel_extras.shelf import ShelfReader

    read, seen = ShelfReader.read, list[Any]()

    def failing(self: Any, partition: str, offset: Any) -> Iterator[Page]:
        seen.append(offset)
        for number, page in enumerate(read(self, partition, offset)):
            if number == 2:
                raise OSError("torn off")
            yield page

    monkeypatch.setattr(ShelfReader, "read", failing)
    server.put("a", *({"n": n} for n in range(50)))
    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))

    for _ in range(3):
        with pytest.raises(Transient, match="torn off"):
            reading.read_on(Poller())  # type: ignore[arg-type]
    assert seen == [None, 14, 28]


def test_an_offset_that_is_no_plain_data_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Shelves
) -> None:
    from umbel_extras.shelf import ShelfReader

    monkeypatch.setattr(ShelfReader, "read", lambda *_: iter([Page([{"n": 1}], {1, 2})]))
    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))
    with pytest.raises(InvalidType, match="is no plain JSON"):
        reading.read_on(Poller())  # type: ignore[arg-type]
    assert reading.stage.numbers() == []


def test_an_offset_may_have_numbers_of_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Shelves) -> None:
    """The last id of a frame is one."""
    from umbel_extras.shelf import ShelfReader

    offset = {"id": np.int64(7), "parts": [np.float32(0.5), np.int8(1)]}
    monkeypatch.setattr(ShelfReader, "read", lambda _, __, at: iter([] if at else [Page([{"n": 1}], offset)]))
    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))
    reading.read_on(Poller())  # type: ignore[arg-type]
    assert reading.stage.part(1).facts["offset"] == {"id": 7, "parts": [0.5, 1]}


def test_a_partition_that_is_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Shelves
) -> None:
    """Its offset is stored under a text, and was not found again: its rows were taken once per poll."""
    from umbel_extras.shelf import ShelfReader

    monkeypatch.setattr(ShelfReader, "partitions", lambda _: [1, 2])
    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))
    for read in (reading.examine, lambda: reading.read_on(Poller())):  # type: ignore[arg-type]
        with pytest.raises(InvalidType, match="the partition 1 is no text"):
            read()
    assert reading.stage.numbers() == []


def test_a_partition_that_fails_holds_up_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Shelves
) -> None:
    from umbel_extras.shelf import ShelfReader

    for n in range(3):
        server.put("b", {"n": n})
    read, broken = ShelfReader.read, ["a"]

    def failing(reader: Any, partition: str, offset: Any) -> Iterator[Page]:
        if partition in broken:
            raise OSError(f"shelf {partition} is locked")
        yield from read(reader, partition, offset)

    monkeypatch.setattr(ShelfReader, "read", failing)
    reading = Shelf(name="shelf", url=server.url).items("a", "b", "c").reader_of(read_options(tmp_path))
    for _ in range(2):
        with pytest.raises(Transient, match="shelf a is locked"):
            reading.read_on(Poller())  # type: ignore[arg-type]
        assert [reading.stage.part(each).facts["partition"] for each in reading.stage.numbers()] == ["b"]
    server.put("a", {"n": 3})
    broken.clear()
    reading.read_on(Poller())  # type: ignore[arg-type]
    assert [reading.stage.part(each).facts["partition"] for each in reading.stage.numbers()] == ["b", "a"]


def test_a_reader_that_exits_is_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Shelves) -> None:
    from umbel_extras.shelf import ShelfReader

    monkeypatch.setattr(ShelfReader, "read", lambda *_: sys.exit(3))
    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))
    with pytest.raises(Transient, match="SystemExit: 3"):
        reading.read_on(Poller())  # type: ignore[arg-type]


def test_rows_of_any_value_are_read_or_are_dead_letters(
    site: Path, server: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An integer beyond 64 bits stopped the source; NaN was null, and bytes were the text of their Python form."""
    from umbel_extras.shelf import ShelfReader

    monkeypatch.syspath_prepend(str(site))
    at = datetime(2024, 1, 1, tzinfo=UTC)
    good = [{"n": 1, "x": 1.5}, {"n": np.int64(2), "x": np.float64(2.5)}, {"n": 3, "x": None}]
    bad = [{"n": 2**70, "x": 1.0}, {"n": 4, "x": math.nan}, {"n": 5, "x": b"1"}, {"n": 6, "x": "\ud800"}, [7], None]
    rows = [*({**row, "t": at} for row in good), *({**row, "t": at} if isinstance(row, dict) else row for row in bad)]
    pages = [Page(rows, 1)]
    monkeypatch.setattr(ShelfReader, "read", lambda _, __, offset: iter([] if offset else pages))

    @source(Shelf(name="shelf", url=server.url).items("a"), disorder="30d", cdc="append", every="1s")
    @dataset
    class Seen:
        n: int
        x: Optional[float]
        t: datetime

    made = Deployed(tmp_path / "umbel")
    try:
        made.commit([Seen])
        until(made, lambda: made.taken().get("Seen") == len(rows))
        assert made.changes("Seen").sort("n").select("n", "x").rows() == [(1, 1.5), (2, 2.5), (3, None)]
        found = sorted(each.reason for each in letters(made))
        assert len(found) == len(bad)
        for part in ("64 bits", "nan has no form", "type bytes", "not valid UTF-8", "list", "NoneType"):
            assert any(part in reason for reason in found), (part, found)
    finally:
        stop_polling(tmp_path)
        made.close()


def test_erased_rows_are_erased_from_staged_pages(
    site: Path, server: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also rows that were rejected, if they have the key; a batch reads the page again without them."""
    monkeypatch.syspath_prepend(str(site))
    people = ["gone@example.com", "stays@example.com"]
    server.put("a", *({"email": each, "n": n, "t": "2024-01-01"} for n, each in enumerate(people)))
    server.put("a", {"email": people[0], "n": "x", "t": "2024-01-01"})

    @source(Shelf(name="shelf", url=server.url).items("a"), disorder="30d", cdc="upsert", every="1s")
    @dataset
    class People:
        email: str = field(key=True, erase_key=True)
        n: int
        t: datetime

    made = Deployed(tmp_path / "umbel")
    try:
        made.commit([People])
        until(made, lambda: made.taken().get("People") == 3)
        stop_polling(tmp_path)
        place = made.deployment
        graph = place.graph(place.catalog.revision())
        erased = {"People": ErasedKeys.of(pl.DataFrame({"email": people[:1]}))}
        mentions = Mentions([(people[0],)])
        assert [redact_staged(place, graph, erased, mentions) for _ in range(2)] == [2, 0]
        left = [path.name for path in tmp_path.rglob("staged/*/*") if people[0].encode() in path.read_bytes()]
        assert left == []
        (opened,) = open_sources(place.directory, graph)
        splits, _ = opened.plan(None, 1 << 40)
        batches = [batch for split, _ in splits for batch in opened.open_all([split], {"email": Str(), "n": Int()})]
        frames = [batch.raw.frame for batch in batches if batch.raw.frame.width]
        assert [each for frame in frames for each in frame["email"].drop_nulls()] == people[1:]
        assert sum(batch.raw.rejects.height for batch in batches) == 2
    finally:
        stop_polling(tmp_path)
        made.close()


def test_the_page_shows_the_example() -> None:
    page = Path(__file__).parents[2] / "docs" / "howto" / "custom-connectors.md"
    assert (PACKAGE / "umbel_extras" / "shelf.py").read_text(encoding="utf-8") in page.read_text(encoding="utf-8")


def test_the_suites_find_errors(server: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination that applies a batch twice, and offsets that are not kept."""
    sink, source = TestShelfSink(), TestArrow()
    sink.shelves, server.forgets = server, True
    with pytest.raises(AssertionError):
        sink.test_changes_arrive_once(tmp_path)
    monkeypatch.setattr(PagedSource, "_offsets", lambda *_: {})
    with pytest.raises(AssertionError):
        source.test_rows_are_read_once(tmp_path)
