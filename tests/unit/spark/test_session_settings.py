"""The settings Spark is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.errors import InvalidValue
from umbel.spark.session import Settings, configuration


def test_the_settings_that_results_depend_on(tmp_path: Path) -> None:
    options = configuration(Settings(tmp_path, slots=3))
    assert options["spark.master"] == "local[3,4]"
    assert options["spark.sql.shuffle.partitions"] == "3"
    assert options["spark.sql.adaptive.enabled"] == "false"
    assert options["spark.sql.session.timeZone"] == "UTC"
    assert options["spark.executorEnv.POLARS_MAX_THREADS"] == "1"


def test_nothing_listens_beyond_the_loopback(tmp_path: Path) -> None:
    options = configuration(Settings(tmp_path))
    assert options["spark.driver.host"] == options["spark.driver.bindAddress"] == "127.0.0.1"
    assert options["spark.ui.enabled"] == "false"


def test_all_files_are_inside_the_folder(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    places = [settings.logs, settings.scratch, Path(configuration(settings)["spark.local.dir"])]
    assert all(place.is_relative_to(tmp_path) for place in places)


def test_the_users_options_win(tmp_path: Path) -> None:
    options = configuration(Settings(tmp_path, options={"spark.sql.shuffle.partitions": "9"}))
    assert options["spark.sql.shuffle.partitions"] == "9"


def test_there_is_at_least_one_slot(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="at least one"):
        Settings(tmp_path, slots=0)
