from __future__ import annotations

import pytest

from umbel.errors import InvalidValue, Terminal
from umbel.state.port import MAX_TABLE, Fenced, StaleBatch, Stamp, check_name, check_shard


def test_stamps_sort_by_epoch_batch_and_step() -> None:
    stamps = [Stamp(2, 0), Stamp(1, 2), Stamp(1, 1, 1), Stamp(1, 1)]
    assert sorted(stamps) == stamps[::-1]
    assert Stamp(1, 1) == Stamp(1, 1, 0)


def test_refusals_are_terminal() -> None:
    assert issubclass(Fenced, Terminal)
    assert issubclass(StaleBatch, Terminal)


@pytest.mark.parametrize("name", ["", "x" * (MAX_TABLE + 1), "a\0", "a\n", "é"])
def test_bad_names_are_reported_by_name(name: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        check_name("the table name", name, MAX_TABLE)
    assert f"the table name {name!r}" in str(caught.value)


def test_good_names_pass() -> None:
    check_name("the table name", "x" * MAX_TABLE, MAX_TABLE)
    check_name("the operator id", "0123456789abcdef", 64)


def test_shards_are_numbered_from_zero() -> None:
    check_shard(0, 1)
    for shard in (-1, 1):
        with pytest.raises(InvalidValue, match=f"shard {shard} does not exist; the store has 1 "):
            check_shard(shard, 1)
