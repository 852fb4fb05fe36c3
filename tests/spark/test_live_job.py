"""The live job over real files and a real ingest log, run by Spark tasks and by the driver: one state, one history."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed, live, wait_until
from tests.sales import (
    USERS,
    Row,
    at,
    base,
    check,
    check_all,
    extended,
    latest,
    lines,
    priced,
    put,
    put_everywhere,
    tier_total,
)
from umbel.runtime.deployment import JOB
from umbel.runtime.journal_ends import noted_ends
from umbel.state.port import Lasting
from umbel.state.runs.journal import HEADER_BYTES
from umbel.state.urls import open_store

DRIVER, TASKS = 1 << 40, 0

GOOD = {"user": 1, "amount": 2.5, "kind": "a", "t": at(600)}
BAD = [
    b'{"user": 1, "amount": 2.0, "kind": "x", "t": ',
    b'{"user": "one", "amount": 2.0, "kind": "x", "t": "2024-01-01T00:00:00Z"}',
    b'{"user": 1, "amount": NaN, "kind": "x", "t": "2024-01-01T00:00:00Z"}',
    b'{"user": 99999999999999999999999999, "amount": 2.0, "kind": "x", "t": "2024-01-01T00:00:00Z"}',
    b'{"user": 1, "amount": 2.0, "kind": "\xff\xfe", "t": "2024-01-01T00:00:00Z"}',
    b'{"user": 1, "amount": 2.0, "t": "2024-01-01T00:00:00Z"}',
    b"[]",
]


def put_bad(folder: Path, deployed: Deployed) -> tuple[list[Row], int]:
    """Feed bad input between good; return the good rows and how many dead letters are due."""
    good = [{**GOOD, "t": at(600 + n)} for n in range(6)]
    put(folder / "a/bad.ndjson", lines(good[:2]) + b"\n".join(BAD) + b"\n" + lines(good[2:3]))
    whole = gzip.compress(lines(good[3:4]))
    put(folder / "d/bad.ndjson.gz", whole + gzip.compress(b"x" * 5000)[:-12])
    put(folder / "a/empty.ndjson", b"")
    put(folder / "b/empty.csv", b"")
    put(folder / "c/broken.parquet", b"PAR1 this is none")
    deployed.log("sales", good[4:5])
    deployed.log_bytes("sales", b'[{"user": 1, "amount": "much", "kind": "x", "t": "2024-01-01T00:00:00Z"}]', 1)
    deployed.log_bytes("sales", b"[{]", 1)
    deployed.log("sales", good[5:])
    return good, len(BAD) + 1 + 1 + 2  # the lines; the gzip; the Parquet file; those of the webhook


# ---- one run in each form --------------------------------------------------------------------------------------------


class Run:
    """Everything that happens, in one form of execution; the tests get what was there."""

    def __init__(self, folder: Path, spark: Any, small: int) -> None:
        self.deployed, self._files = Deployed(folder / "umbel"), folder / "files"
        self.rows: list[Row] = []
        self.users: list[Row] = []
        deployed = self.deployed
        deployed.commit(base(self._files))
        self._wave(0)
        with live(deployed, spark, small) as caught_up:
            caught_up({"Sales": 100, "Users": 2})
            self._wave(1)
            caught_up({"Sales": 200, "Users": 4})
        good, self.dead = put_bad(self._files, deployed)
        self.rows += good
        deployed.commit(extended(self._files))
        with live(deployed, spark, small) as caught_up:
            caught_up({"Sales": 200 + len(good) + self.dead})
            self._wave(2)
            caught_up({"Sales": 300 + len(good) + self.dead, "Users": 6})

    def _wave(self, wave: int) -> None:
        self.users += USERS[wave]
        self.deployed.log("users", USERS[wave])
        self.rows += put_everywhere(self._files, self.deployed, wave)


@pytest.fixture(scope="module")
def runs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Run]]:
    """Return what there is after everything happened, in each form of execution."""
    found = {small: Run(tmp_path_factory.mktemp("live"), spark, small) for small in (DRIVER, TASKS)}
    yield found
    for run in found.values():
        run.deployed.close()


@pytest.mark.parametrize("small", [DRIVER, TASKS], ids=["driver", "tasks"])
class TestEachForm:
    def test_aggregates_and_latest(self, runs: dict[int, Run], small: int) -> None:
        check_all(runs[small].deployed, runs[small].rows, runs[small].users)

    def test_a_new_pipeline_has_history_and_what_is_new(self, runs: dict[int, Run], small: int) -> None:
        run = runs[small]
        made = priced(run.rows, run.users)
        tiers = [{"tier": tier} for tier in ("gold", "tin", "iron", "lead")]
        check(run.deployed, "Tiers", tiers, lambda now, key: tier_total(made, now, key["tier"]))

    def test_a_new_pipeline_on_an_operator_that_already_ran(self, runs: dict[int, Run], small: int) -> None:
        run = runs[small]
        made = priced(run.rows, run.users)
        names = ("kind", "user", "amount", "t")
        check(
            run.deployed,
            "Largest",
            [{"kind": k} for k in "abcx"],
            lambda now, key: latest(made, now, key["kind"], names),
        )

    def test_bad_input_is_buried_once(self, runs: dict[int, Run], small: int) -> None:
        run = runs[small]
        letters = run.deployed.deployment.catalog.dead_letters("Sales")
        places = [letter.position for letter in letters]
        assert len(set(places)) == len(places) == run.dead, places
        assert all(letter.reason for letter in letters)

    def test_the_catalog_knows_how_far_the_state_was_written(self, runs: dict[int, Run], small: int) -> None:
        place = runs[small].deployed.deployment
        store, noted = open_store(place.store_url, place.shards), noted_ends(place.catalog, JOB)
        assert isinstance(store, Lasting)
        there = [(store.state_ids(shard), store.end(shard)[:2])[1] for shard in range(place.shards)]
        assert all((1, HEADER_BYTES) < end[:2] <= real for end, real in zip(noted, there, strict=True)), (noted, there)
        assert any(end[:2] == real for end, real in zip(noted, there, strict=True)), (noted, there)

    def test_nothing_is_lost(self, runs: dict[int, Run], small: int) -> None:
        run = runs[small]
        names = ["user", "amount", "kind", "t"]
        logged = run.deployed.changes("Sales").select(names).sort("t").rows()
        assert logged == sorted((tuple(row[name] for name in names) for row in run.rows), key=lambda row: row[-1])


@pytest.mark.parametrize("name", ["Sales", "Users", "Priced", "Last"])
def test_both_forms_have_one_history(runs: dict[int, Run], name: str) -> None:
    assert runs[DRIVER].deployed.changes(name).equals(runs[TASKS].deployed.changes(name))


def test_a_job_may_begin_before_anything_is_committed(tmp_path: Path, spark: Any) -> None:
    deployed = Deployed(tmp_path / "umbel")
    with live(deployed, spark, DRIVER) as caught_up:
        wait_until(lambda: (tmp_path / "umbel/checkpoint/live/offsets/0").exists(), lambda: "the first batch")
        deployed.commit(base(tmp_path / "files"))
        deployed.log("sales", [{**GOOD, "t": at(600 + n)} for n in range(3)])
        caught_up({"Sales": 3})
    assert deployed.changes("Sales").height == 3
    deployed.close()


def test_a_worker_that_was_killed_in_its_first_batch_begins_again(tmp_path: Path, spark: Any) -> None:
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit(base(tmp_path / "files"))
    for name in ("offsets", "commits"):
        (folder := tmp_path / "umbel/checkpoint/live" / name).mkdir(parents=True)
    (folder.parent / "offsets" / ".0.88d863b2-5650-441c-8fcd-68938aad2a51.tmp").touch()
    with live(deployed, spark, DRIVER) as caught_up:
        deployed.log("sales", [{**GOOD, "t": at(600 + n)} for n in range(3)])
        caught_up({"Sales": 3})
    assert deployed.changes("Sales").height == 3
    deployed.close()
