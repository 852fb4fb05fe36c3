"""Rows of a Hudi table whose timestamps are ahead of their commits, and what replaces them."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest

from tests.connectors.shop_datasets import deployed, letters
from tests.seeds import seeds
from tests.unit.connectors.hudi_lake import START, A, B, Lake
from tests.unit.connectors.lakes import is_forgotten, keyed, until
from tests.unit.connectors.test_hudi_source import lake, taken
from umbel.connectors.polling import stop_polling

__all__ = ["lake"]


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_any_changes_with_timestamps_of_any_clock(lake: Lake, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lake.commit({A: {0: "first"}, B: {10: "first"}})
    with deployed(tmp_path, keyed(lake)) as made:
        for step in range(24):
            group, row = chance.choice([(A, 0), (A, 1), (B, 10), (B, 11)])
            rows = dict(lake.groups[group])
            if row in rows and chance.random() < 0.5:
                del rows[row]
            else:
                lake.times[row] = START + timedelta(days=chance.choice([0, 0, 1, 20, 30]), seconds=step)
                rows[row] = f"n{step}"
            lake.commit({group: rows})
            if step % 6 == 5:
                until(made, lambda: taken(made) == lake.rows())
                stop_polling(tmp_path)
        assert letters(made) == []


def test_a_row_with_an_old_timestamp_comes_back_after_a_restart(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The staged deletion is not there any more."""
    monkeypatch.setattr("umbel.connectors.staging.RETAINED_FOR", 0.0)
    lake.commit({A: {0: "first"}})
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        lake.commit({A: {}})
        until(made, lambda: taken(made) == [])
        lake.commit({B: {10: "another"}})
        until(made, lambda: taken(made) == lake.rows() and is_forgotten(made, 2))
        stop_polling(tmp_path)
        lake.commit({A: {0: "again"}})
        until(made, lambda: taken(made) == lake.rows())
        assert letters(made) == []
