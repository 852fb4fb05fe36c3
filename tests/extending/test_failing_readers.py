"""Readers of other packages that fail, or return what is no plan: other sources go on, and no row is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import until
from tests.deployed import Deployed, wait_until
from tests.extending.install import PACKAGE
from umbel.connectors import Webhook, source
from umbel.datasets import dataset
from umbel.errors import Transient
from umbel.runtime import plans, sources
from umbel.runtime.batch import drain
from umbel.runtime.source_lags import source_lags

__owner__ = "shop@example.com"
ROW = b'{"n": 1, "t": "2024-01-01"}\n'


@source(Webhook(name="web").endpoint("sent"), disorder="1h", cdc="append")
@dataset
class Sent:
    n: int
    t: datetime


@pytest.fixture
def reading(site: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the class that reads journals."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.syspath_prepend(str(PACKAGE))
    from umbel_extras.connectors import JournalSource

    return JournalSource


@pytest.fixture
def datasets(reading: Any, tmp_path: Path) -> list[Any]:
    """Return a dataset that is read from a journal, and one from a webhook; each has a row."""
    from umbel_extras.connectors import Journal

    (tmp_path / "rows").write_bytes(ROW)

    @source(Journal(name="meter", folder=str(tmp_path)).file("rows"), disorder="1h", cdc="append", every="1s")
    @dataset
    class Measured:
        n: int
        t: datetime

    return [Measured, Sent]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    """Return a deployment in which a source that failed is tried again at once."""
    monkeypatch.setattr(sources, "LONGEST_WAIT", 0.01)
    monkeypatch.setattr(plans, "LONGEST_REST", 0.01)
    place = Deployed(tmp_path / "umbel")
    place.log("sent", [{"n": 1, "t": "2024-01-01T00:00:00Z"}])
    yield place
    place.close()


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


def returning(planned: Any) -> Callable[..., Any]:
    return lambda *_, **__: planned


@pytest.mark.parametrize(
    ("misdeed", "expected"),
    [
        (raising(OSError("gone")), "OSError: gone"),
        (raising(KeyError("id")), "KeyError: 'id'"),
        (raising(SystemExit(3)), "SystemExit: 3"),
        (returning(None), "plan() returned None, not a sequence of splits"),
        (returning([({"begin": 0}, 1)]), "not a sequence of splits and a position"),
        (lambda *_: ((each for each in [({"begin": 0}, 1)]), 1), "not a sequence of splits and a position"),
        (returning(([{"begin": 0}], 1)), "not pairs of a split"),
        (returning(([("begin", 1)], 1)), "not pairs of a split"),
        (returning(([({"begin": 0}, None)], 1)), "not pairs of a split"),
        (returning(([({"begin": print}, 1)], 1)), "which is no plain data: Object of type builtin_function"),
        (returning(([({"begin": 0}, 1)], {1})), "which is no plain data: Object of type set"),
    ],
)
def test_a_plan_that_fails_holds_up_no_other_source(
    place: Deployed,
    datasets: list[Any],
    reading: Any,
    monkeypatch: pytest.MonkeyPatch,
    misdeed: Callable[..., Any],
    expected: str,
) -> None:
    """It ended the worker, at each attempt; the rows of an iterator of splits were lost, and a commit was a traceback."""
    with monkeypatch.context() as patch:
        patch.setattr(reading, "plan", misdeed)
        place.commit(datasets)
        until(place, lambda: place.taken() == {"Sent": 1})
        wait_until(lambda: expected in troubles(place), lambda: troubles(place))
    until(place, lambda: place.taken() == {"Sent": 1, "Measured": 1})


def troubles(place: Deployed) -> str:
    drain(place.deployment)
    return "".join(each.trouble for each in source_lags(place.deployment.directory))


def half(reader: Any, splits: Any, requested: Any, *, exact: bool) -> Iterator[Any]:
    yield from reader.open(splits[0], requested, exact=exact)
    raise KeyError("later")


@pytest.mark.parametrize(
    ("misdeed", "expected"),
    [
        (raising(OSError("gone")), "OSError: gone"),
        (returning(None), "TypeError: 'NoneType' object is not iterable"),
        (lambda *_, **__: iter([None]), "TypeError: open() yielded NoneType, not a RawBatch"),
        (half, "KeyError: 'later'"),
    ],
)
def test_a_split_that_cannot_be_opened_holds_up_no_other_source(
    place: Deployed,
    datasets: list[Any],
    reading: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    misdeed: Callable[..., Any],
    expected: str,
) -> None:
    """It ended the worker, at each attempt, with an error that named neither the source nor the dataset."""
    place.commit(datasets)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(reading, "open_all", misdeed)
        until(place, lambda: place.taken() == {"Sent": 1})
    assert f"Journal 'meter': a split cannot be read: {expected}" in caplog.text
    assert "(source 0 of dataset 'Measured')" in caplog.text
    until(place, lambda: place.taken() == {"Sent": 1, "Measured": 1})


def test_an_examination_that_fails_is_an_error_of_the_commit(
    place: Deployed, datasets: list[Any], reading: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "examine", raising(KeyError("password")))
    with pytest.raises(Transient, match="Journal 'meter': cannot be read: KeyError: 'password'"):
        place.commit(datasets)
