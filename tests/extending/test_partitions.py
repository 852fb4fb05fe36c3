"""Partitions of a source of another package: they take turns, lose no rows to one another, and one that misbehaves is named."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from tests.connectors.shop_datasets import letters, until
from tests.deployed import Deployed, wait_until
from tests.extending.pages import START, Read, put, raising, seen
from tests.extending.shelves import PAGE, Shelves
from tests.extending.test_connector_contract import Poller
from umbel import Count, Dataset, Tumbling, pipeline
from umbel.connectors import polling
from umbel.connectors.custom import Page
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset, field
from umbel.errors import InvalidType, Transient
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.runtime.source_lags import source_lags
from umbel.testing.connectors import read_options
from umbel.types.dtypes import Bytes

__owner__ = "shop@example.com"


def hourly(events: Any) -> Any:
    @dataset(index=True)
    class Hourly:
        n: int = field(key=True)
        rows: int
        t: datetime

        @pipeline
        @inputs(events)
        def count(cls, rows: Dataset):
            return rows.groupby("n").aggregate(rows=Count(window=Tumbling("1h")), emit="final")

    return Hourly


def test_a_partition_with_more_pages_than_another_is_not_late(
    server: Shelves, read: Callable[[Read], Read], tmp_path: Path
) -> None:
    """After a pause one has ten pages and the other one a row, of the newest time."""
    b_may_go_on = threading.Event()
    b_may_go_on.set()

    def slowly(reader: Any, partition: str, offset: Any) -> Iterator[Page]:
        for page in original(reader, partition, offset):
            assert partition != "b" or b_may_go_on.wait(300)
            yield page

    original = read(slowly)
    put(server, "a", range(1))
    put(server, "b", range(1))
    place = Deployed(tmp_path / "umbel")
    try:
        place.commit([seen(server, "a", "b")])
        until(place, lambda: place.taken().get("Seen") == 2)
        b_may_go_on.clear()
        put(server, "a", range(1000, 1001))
        put(server, "b", range(1, 10 * PAGE))
        until(place, lambda: place.taken().get("Seen") == 3)
        b_may_go_on.set()
        until(place, lambda: sum(counts(place).values()) == 2 + 10 * PAGE)
        assert counts(place) == {"rows": 2 + 10 * PAGE, "late": 0}
        put(server, "b", range(1001, 1002))
        put(server, "a", range(900, 901))
        until(place, lambda: sum(counts(place).values()) == 4 + 10 * PAGE)
        put(server, "a", range(990, 991))
        until(place, lambda: sum(counts(place).values()) == 5 + 10 * PAGE)
        assert counts(place)["late"] >= 1
    finally:
        b_may_go_on.set()
        stop_polling(tmp_path)


def test_a_partition_may_have_an_empty_name(server: Shelves, read: Callable[[Read], Read], tmp_path: Path) -> None:
    """Its rows counted as those of the whole source: the unread ones of other partitions were late."""
    b_may_go_on = threading.Event()

    def slowly(reader: Any, partition: str, offset: Any) -> Iterator[Page]:
        for page in original(reader, partition, offset):
            assert not partition or b_may_go_on.wait(300)
            yield page

    original = read(slowly)
    put(server, "", range(1))
    place = Deployed(tmp_path / "umbel")
    try:
        place.commit([seen(server, "", "b")])
        until(place, lambda: place.taken().get("Seen") == 1)
        put(server, "", range(1000, 1001))
        put(server, "b", range(1, 2 * PAGE))
        until(place, lambda: place.taken().get("Seen") == 2)
        b_may_go_on.set()
        until(place, lambda: sum(counts(place).values()) == 1 + 2 * PAGE)
        assert counts(place) == {"rows": 1 + 2 * PAGE, "late": 0}
    finally:
        b_may_go_on.set()
        stop_polling(tmp_path)


def counts(place: Deployed) -> dict[str, int]:
    found = place.deployment.catalog.counts()
    return {name: found.get(("Seen", name), 0) for name in ("rows", "late")}


def test_no_partition_makes_the_history_of_another_one_late(
    server: Shelves, read: Callable[[Read], Read], tmp_path: Path
) -> None:
    """Each has a month, and one is read while batches have taken the other: most of its rows were late, and did not count."""
    b_may_go_on = threading.Event()

    def slowly(reader: Any, partition: str, offset: Any) -> Iterator[Page]:
        for number, page in enumerate(original(reader, partition, offset)):
            if partition == "b" and number:
                assert b_may_go_on.wait(300)
            yield page

    original = read(slowly)
    hours = range(24 * 30)
    for shelf in "ab":
        put(server, shelf, hours)
    rows = seen(server, "a", "b")
    place = Deployed(tmp_path / "umbel")
    try:
        place.commit([rows, hourly(rows)])
        until(place, lambda: place.taken().get("Seen", 0) > 7)
        assert place.changes("Hourly").is_empty()  # final results wait: rows that were there before are still to come
        b_may_go_on.set()
        until(place, lambda: place.taken().get("Seen") == 2 * len(hours))
        assert place.deployment.catalog.counts()["Seen", "rows"] == 2 * len(hours)
        last = START + timedelta(hours=hours[-1] - 1)
        until(place, lambda: place.changes("Hourly")["t"].max() == last)  # without a row more
        made = place.changes("Hourly").filter(pl.col("_weight") > 0)
        assert made["rows"].to_list() == [2] * (len(hours) - 2)
        put(server, "a", range(hours[-1] - 2, hours[-1] - 1))  # from now on the disorder counts
        until(place, lambda: place.taken().get("Seen") == 2 * len(hours) + 1)
        assert place.deployment.catalog.counts()["Seen", "late"] == 1
    finally:
        b_may_go_on.set()
        stop_polling(tmp_path)
        place.close()


def test_partitions_take_turns(server: Shelves, tmp_path: Path) -> None:
    """A page of each: one that has much does not keep the others out."""
    from umbel_extras.shelf import Shelf

    for shelf, count in (("a", 5 * PAGE), ("b", 2 * PAGE), ("c", 1)):
        put(server, shelf, range(count))
    reading = Shelf(name="shelf", url=server.url).items("a", "b", "c").reader_of(read_options(tmp_path))
    assert reading.read_on(Poller())  # type: ignore[arg-type]
    order = [reading.stage.part(each).facts["partition"] for each in reading.stage.numbers()]
    assert "".join(order) == "abcabaaa"


NESTED = reduce(lambda inner, _: [inner], range(700), list[Any]())


class Own(BaseException):
    """An exception that is no `Exception`."""


@pytest.mark.parametrize(
    ("misdeed", "expected"),
    [
        (raising(Own("mine")), "partition 'a': Own: mine"),
        (raising(asyncio.CancelledError("late")), "partition 'a': CancelledError: late"),
        (raising(KeyboardInterrupt()), "partition 'a': KeyboardInterrupt"),
        (raising(KeyError("id")), "partition 'a': KeyError: 'id'"),
        (lambda _: None, "partition 'a': read() returned None, not pages"),
        (lambda _: "rows", "read() returned a value of type str"),
        (lambda _: [{"n": 1}], "read() yielded a value of type dict, not a Page"),
        (lambda _: [([{"n": 1}], 1)], "read() yielded a value of type tuple, not a Page"),
        (lambda _: [Page({"n": 1}, 1)], "the rows of a page are a value of type dict"),  # type: ignore[arg-type]
        (lambda _: [Page("rows", 1)], "the rows of a page are a value of type str"),  # type: ignore[arg-type]
        (lambda _: [Page(iter([{"n": 1}]), 1)], "the rows of a page are a value of type list_iterator"),  # type: ignore[arg-type]
        (lambda _: [Page([{"n": 1}], float("nan"))], "partition 'a': the offset nan is no plain JSON"),
        (lambda _: [Page([{"n": 1}], np.array([1, 2]))], "partition 'a': the offset array([1, 2]) is no plain JSON"),
        (lambda _: [Page([{"n": 1}], NESTED)], "partition 'a': the offset [[[[[["),
        (lambda _: [Page([{"n": 1}], 10**5000)], "partition 'a': the offset <a value of type int> is no plain JSON"),
        (
            lambda _: [Page(pa.table([[1], [2]], names=["n", "n"]), 1)],
            "partition 'a': a page has several columns of the name",
        ),
    ],
)
def test_a_partition_that_misbehaves_is_named_and_holds_up_no_other_one(
    server: Shelves, read: Callable[[Read], Read], tmp_path: Path, misdeed: Callable[[Any], Any], expected: str
) -> None:
    """Exceptions that are no `Exception` ended the thread, and the status said that all was up to date."""
    is_odd = [True]

    def odd(reader: Any, partition: str, offset: Any) -> Any:
        return misdeed(offset) if partition == "a" and is_odd else original(reader, partition, offset)

    original = read(odd)
    for shelf in "ab":
        put(server, shelf, range(20))
    place = Deployed(tmp_path / "umbel")

    def trouble() -> str:
        drain(place.deployment)
        return "".join(each.trouble for each in source_lags(place.deployment.directory))

    try:
        place.commit([seen(server, "a", "b")])
        until(place, lambda: place.deployment.catalog.counts().get(("Seen", "rows")) == 20)
        wait_until(lambda: expected in trouble(), trouble, within=300)
        is_odd.clear()
        until(place, lambda: place.deployment.catalog.counts()["Seen", "rows"] == 40)
        reported = [letter.reason for letter in letters(place)]
        assert all(expected in reason for reason in reported)
    finally:
        stop_polling(tmp_path)
        place.close()


def test_names_and_errors_may_have_halves_of_characters(
    server: Shelves, read: Callable[[Read], Read], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As names of files have that are not UTF-8: such a row, or such an error, stopped all sources with each batch."""
    from umbel_extras.shelf import ShelfReader

    def broken(_: Any, partition: str, offset: Any) -> Iterator[Page]:
        if partition == "b":
            raise InvalidType("caf\udce9")
        return iter([] if offset else [Page([{"n": 1, "t": START}, {"n": "x", "t": START}], 1)])

    read(broken)
    monkeypatch.setattr(ShelfReader, "partitions", lambda _: ["a\udce9", "b"])
    place = Deployed(tmp_path / "umbel")
    try:
        place.commit([seen(server, "a")])
        until(place, lambda: place.deployment.catalog.counts().get(("Seen", "dead")) == 2)
        assert place.deployment.catalog.counts()["Seen", "rows"] == 1
        assert {each.position for each in letters(place)} == {
            "Shelf 'shelf': a\\udce9, row 1",
            "Shelf 'shelf', report 2",
        }
        assert "caf\\udce9" in {each.reason for each in letters(place)}
    finally:
        stop_polling(tmp_path)
        place.close()


def test_an_error_without_a_text_holds_up_no_other_partition(
    server: Shelves, read: Callable[[Read], Read], tmp_path: Path
) -> None:
    """An exception whose text cannot be made ended the read of all partitions."""
    from umbel_extras.shelf import Shelf

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise MemoryError

    def failing(reader: Any, partition: str, offset: Any) -> Any:
        if partition == "a":
            raise Unprintable
        return original(reader, partition, offset)

    original = read(failing)
    put(server, "b", range(1))
    reading = Shelf(name="shelf", url=server.url).items("a", "b").reader_of(read_options(tmp_path))
    with pytest.raises(Transient, match="partition 'a': Unprintable: its text cannot be made: MemoryError"):
        reading.read_on(Poller())  # type: ignore[arg-type]
    assert len(reading.stage.numbers()) == 1


@pytest.mark.parametrize(("names", "kind"), [("ab", "type str"), (None, "None")])
def test_names_of_partitions_come_in_a_list(
    server: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: Any, kind: str
) -> None:
    from umbel_extras.shelf import ShelfReader

    monkeypatch.setattr(ShelfReader, "partitions", lambda _: names)
    place = Deployed(tmp_path / "umbel")
    try:
        with pytest.raises(InvalidType, match=rf"partitions\(\) returned .*{kind}(?s:.*)return a list of names"):
            place.commit([seen(server, "a", "b")])
    finally:
        place.close()


def test_an_error_has_its_place_in_the_package(server: Shelves, tmp_path: Path) -> None:
    """Not that in httpx, which raises it."""
    from umbel_extras.shelf import Shelf

    server.failures = 1
    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))
    with pytest.raises(
        Transient, match=r"partition 'a': HTTPStatusError: .*503(?s:.*) \(at .*umbel_extras/shelf.py:\d+\)"
    ):
        reading.read_on(Poller())  # type: ignore[arg-type]


def test_a_name_that_comes_twice_is_one_partition(server: Shelves, tmp_path: Path) -> None:
    put(server, "a", range(40))
    place = Deployed(tmp_path / "umbel")
    try:
        place.commit([seen(server, "a", "a")])
        until(place, lambda: place.taken().get("Seen", 0) >= 40)
        drain(place.deployment)
        assert place.taken() == {"Seen": 40}
    finally:
        stop_polling(tmp_path)
        place.close()


def test_a_partition_that_does_not_answer_is_reported(
    server: Shelves, read: Callable[[Read], Read], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status said that the source was up to date, for ever."""
    monkeypatch.setattr(polling, "SILENT", 0.5)
    ends = threading.Event()

    def hanging(reader: Any, partition: str, offset: Any) -> Iterator[Page]:
        if partition == "b" and not ends.is_set():
            ends.wait(300)
        return original(reader, partition, offset)

    original = read(hanging)
    place = Deployed(tmp_path / "umbel")

    def lags() -> Any:
        drain(place.deployment)
        return source_lags(place.deployment.directory)

    try:
        place.commit([seen(server, "a", "b")])
        wait_until(lambda: any("partition 'b' has not answered for" in str(each) for each in lags()), lags)
        assert all(each.is_bad for each in lags())
        ends.set()
        wait_until(lambda: [each.trouble for each in lags()] == [""], lags)
        assert json.dumps(place.taken()) == "{}"
    finally:
        ends.set()
        stop_polling(tmp_path)
        place.close()


def test_a_column_of_bytes_is_no_row_of_json(server: Shelves, read: Callable[[Read], Read], tmp_path: Path) -> None:
    """A page with the column alone, of the name that rows of JSON have when they are staged, was parsed."""
    from umbel_extras.shelf import Shelf

    values = [b'{"_row": 5}', b"bytes", None]
    pages = {"a": pa.table({"_row": values}), "b": [{"_row": "text"}]}
    read(lambda _, partition, offset: iter([] if offset else [Page(pages[partition], 1)]))
    reading = Shelf(name="shelf", url=server.url).items("a", "b").reader_of(read_options(tmp_path))
    reading.read_on(Poller())
    splits, _ = reading.plan(None, 1 << 20)
    batches = [batch for split, _ in splits for batch in reading.open(split, {"_row": Bytes()}, exact=False)]
    assert batches[0].raw.frame.to_dict(as_series=False) == {"_row": values}
    assert json.loads(batches[0].text(0)).keys() == {"_row"}
    assert batches[1].text(0) == b'{"_row":"text"}'
    assert [batch.raw.rejects.height for batch in batches] == [0, 0]
    assert reading.stage.redact(lambda rows: pl.Series([each == b"bytes" for each in rows["_row"]])) == 1
    (again,) = reading.open(splits[0][0], {"_row": Bytes()}, exact=True)
    assert again.raw.frame["_row"].to_list() == [values[0], None, None]
