"""What all tests share: one Spark session, and how they are spread over processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import profiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
SPARK = ("spark", "conformance", "scenarios")
"""The folders whose tests need a JVM; they run in one process, since a session costs seconds."""

profiles.load()
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # frames of tests are small, and several processes share the cores


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of Spark in one process and begin with them: they take longest."""
    for item in items:
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] in SPARK:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the Spark session that all tests of this process share."""
    from umbel.spark.session import Settings, running

    with running(Settings(tmp_path_factory.mktemp("spark"), slots=2)) as session:
        yield session
