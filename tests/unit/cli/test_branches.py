"""Commands about a folder show the datasets of a branch, under the names they have in the graph."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.deployed import Deployed
from tests.unit.cli.conftest import Umbel
from umbel import Webhook, dataset, expectations, source
from umbel.api.commit import check_commit
from umbel.lib.expectations import expect_column_values_to_be_between
from umbel.runtime.batch import drain
from umbel.runtime.branches import init
from umbel.runtime.commit import commit

__owner__ = "tests@example.com"
sales = Webhook(name="web").endpoint("sales")


def _sale(limit: int, version: int):
    @source(sales, disorder="1d", cdc="append")
    @dataset(version=version)
    class Sale:
        amount: float
        at: datetime

        @expectations
        def plausible(cls):
            return [expect_column_values_to_be_between(column="amount", max_value=limit)]

    return Sale


def test_each_branch_has_its_own_numbers(umbel: Umbel, tmp_path: Path) -> None:
    """They were those of main, and a dataset that another branch alone has was unknown."""
    deployed = Deployed(tmp_path)
    deployed.commit([_sale(100, 1)])
    init(deployed.deployment, "dev")
    commit(deployed.deployment, check_commit([_sale(10, 2)], ()), branch="dev")
    deployed.log("sales", [{"amount": each, "at": "2026-03-01T00:00:00Z"} for each in (5, 50, 60, "many")])
    drain(deployed.deployment)
    place = ["--dir", str(tmp_path)]

    def failed(*options: str) -> str:
        return umbel("expectations", "Sale", *options, *place).output.splitlines()[1].split()[4]

    assert (failed(), failed("--branch", "dev")) == ("0", "2")
    assert "branch 'nope' does not exist" in str(umbel("expectations", "--branch", "nope", *place).exception)
    assert umbel("dead-letters", "Sale", "--branch", "dev", *place).output.splitlines()[-1] == "1 in all"
    assert umbel("dead-letters", "replay", "Sale", "--branch", "dev", *place).output.startswith("replay 1: 1 are")
    drain(deployed.deployment)
    replayed = {name: count for (name, what), count in deployed.deployment.catalog.counts().items() if what == "dead"}
    assert sorted(replayed.values()) == [1, 2]
    assert replayed["Sale"] == 1
