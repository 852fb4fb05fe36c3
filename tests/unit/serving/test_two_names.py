"""While a version is backfilled its dataset has two names in the graph: reports and replays are of both, and add up none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from httpx import Client
from typer.testing import CliRunner

from tests.deployed import Deployed
from tests.unit.serving.asgi import serving_admin
from umbel.api.commit import check_commit
from umbel.cli.main import app
from umbel.connectors import Webhook, source
from umbel.datasets import dataset
from umbel.lib import expect_column_values_to_be_between, expectations
from umbel.runtime.batch import drain
from umbel.runtime.branches import init
from umbel.runtime.commit import commit
from umbel.runtime.switching import branch_status

__owner__ = "tests@example.com"
AT = "2026-03-01T00:00:00Z"
ROWS = 30


def event(version: int, limit: int = 9) -> Any:
    @source(Webhook(name="web").endpoint("events"), disorder="3650d", cdc="append")
    @dataset(version=version)
    class Event:
        user: float if version > 1 else int  # type: ignore[valid-type]
        at: datetime

        @expectations
        def small(cls):
            return [expect_column_values_to_be_between(column="user", max_value=limit)]

    return Event


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Deployed]:
    found = Deployed(tmp_path / "umbel", budget=1)
    yield found
    found.close()


def log(made: Deployed, *users: Any) -> None:
    for user in users:
        made.log("events", [{"user": user, "at": AT}])


def is_backfilling(made: Deployed) -> bool:
    return branch_status(made.deployment, "main")["state"] == "backfilling"


def judged(http: Client, **options: str) -> tuple[int, int]:
    headers = {"X-Umbel-Branch": options["branch"]} if options else {}
    (report,) = http.get("/api/v1/dataset/Event/expectations", headers=headers).json()
    return report["rows"], report["failed"]


def test_each_version_counts_its_own_rows(made: Deployed) -> None:
    """The rows of the versions before, and those of the backfill, were added up."""
    made.commit([event(1)])
    log(made, *range(ROWS))
    drain(made.deployment)
    with serving_admin(made.deployment) as transport, Client(transport=transport, base_url="http://umbel") as http:
        assert judged(http) == (ROWS, ROWS - 10)
        made.commit([event(2)])
        assert is_backfilling(made)
        log(made, ROWS)
        seen = set()
        while is_backfilling(made):
            seen.add(judged(http))
            drain(made.deployment, 1)
        assert seen <= {(ROWS, ROWS - 10), (ROWS + 1, ROWS - 9)}, "what serves is what it was"
        drain(made.deployment)
        http.get("/api/v1/branch/status")  # reads the catalog again
        assert judged(http) == (ROWS + 1, ROWS - 9)
    shown = CliRunner().invoke(app, ["expectations", "--dir", str(made.deployment.directory)]).output
    assert shown.splitlines()[1].split()[3:5] == [str(ROWS + 1), str(ROWS - 9)]


def test_metrics_have_the_expectations_of_all_branches(made: Deployed) -> None:
    made.commit([event(1)])
    init(made.deployment, "dev")
    commit(made.deployment, check_commit([event(2, limit=19)], ()), branch="dev")
    log(made, *range(ROWS))
    drain(made.deployment)
    with serving_admin(made.deployment) as transport, Client(transport=transport, base_url="http://umbel") as http:
        lines = http.get("/api/v1/metrics").text.splitlines()
    failed = [each for each in lines if each.startswith("umbel_expectation_rows{") and 'outcome="failed"' in each]
    found = {each.partition('branch="')[2].partition('"')[0]: float(each.split()[-1]) for each in failed}
    assert found == {"main": ROWS - 10, "dev": ROWS - 20}


def test_a_replay_is_of_the_letters_of_both_names(made: Deployed) -> None:
    """Those of the version to come were left out until it served."""
    made.commit([event(1)])
    log(made, *("x" * 5), *range(ROWS))
    drain(made.deployment)
    made.commit([event(2)])
    log(made, "y")
    drain(made.deployment, 1)
    assert is_backfilling(made)
    dead = made.deployment.catalog.count_dead()
    assert sorted(dead.values()) == [1, 6], "of the version that serves, and of the one to come"
    with serving_admin(made.deployment) as transport, Client(transport=transport, base_url="http://umbel") as http:
        path, whole = "/api/v1/dataset/Event/dead_letters/replay", {"count": 7, "left_out": {}}
        assert http.post(path, json={"dry_run": True}).json() == {"replay": None, **whole}
        assert http.post(path, json={"dry_run": False}).json() == {"replay": 1, **whole}
    drain(made.deployment)
    counts = made.deployment.catalog.counts()
    assert {name: count for (name, of), count in counts.items() if of == "replayed"} == dict(dead)
