"""What all tests share: one Spark session, and how they are spread over processes."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import profiles, sharing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
SPARK = ("spark", "conformance")
"""The folders whose tests share a Spark session; they run in one process with others that use it: it costs seconds."""
SCENARIOS = "scenarios"
"""The folder whose tests start processes of their own; they run in one process, another one than those of Spark."""
CONNECTORS = "connectors"
"""The folder of tests against real servers; those against one server, named in their file, run in one process."""
CONTRACTS = "contracts"
"""The folder of contracts; those over a bucket run in one process, with one server."""
DEPLOY = "deploy"
"""The folder of tests of the chart; they run in one process, which compiles helm once."""
LONG = 7200
"""Seconds of a test of nightly, and of a law with as many examples."""
LONGEST_ID = 200
"""The most characters of an argument that are part of a test's name."""

profiles.load()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as where a shell runs the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children inherit what is ignored
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS.parent), os.environ.get("PYTHONPATH", "")]))
"""Processes that tests start import the tests."""
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # frames of tests are small, and several processes share the cores


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: their 600,000 objects would be traversed again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of Spark in one process and begin with them: they take longest."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if folder in (*SPARK, SCENARIOS) or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group(SCENARIOS if folder == SCENARIOS else "spark"))
        if item.get_closest_marker("nightly") or profiles.is_nightly():
            item.add_marker(pytest.mark.timeout(LONG))
        if folder == CONTRACTS and "s3" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("s3"))
        if folder == DEPLOY:
            item.add_marker(pytest.mark.xdist_group(DEPLOY))
        if folder == CONNECTORS:
            item.add_marker(pytest.mark.xdist_group(item.path.stem.split("_")[1]))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name long texts and binary data by their argument.

    All processes must have the same names, and compressed data may contain the time at which it was made.
    """
    is_short = not isinstance(val, bytes | str) or len(val) <= LONGEST_ID
    return None if is_short and (not isinstance(val, bytes) or val.isascii()) else argname


@pytest.fixture(scope="session", autouse=True)
def _shared() -> Iterator[None]:
    with sharing.shared():
        yield


@pytest.fixture(autouse=True)
def _current_folder_on_the_path() -> None:
    """Let processes of a test import from their folder: commands and Spark in this process keep later ones from it."""
    from umbel.processes.user_folder import SAFE

    os.environ.pop(SAFE, None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the Spark session that all tests of this process share."""
    from umbel.spark.session import Settings, running

    with running(Settings(tmp_path_factory.mktemp("spark"), slots=2)) as session:
        yield session
