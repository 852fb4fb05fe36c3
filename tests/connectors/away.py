"""What tests of servers share that die while a batch is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.deployed import Deployed, wait_until
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset
from umbel.runtime.batch import drain
from umbel.runtime.plans import Plans

__owner__ = "tests@example.com"
NOW = datetime.now(UTC).replace(microsecond=0)


def note() -> Dataset:
    """Return a dataset of a webhook, which does not depend on the server."""

    @source(Webhook(name="web").endpoint("notes"), disorder="1d", cdc="append")
    @dataset
    class Note:
        n: int
        at: datetime

    return Note


def values(deployed: Deployed, name: str, column: str = "n") -> list[int]:
    """Return the values of a column of a dataset, sorted."""
    return deployed.changes(name)[column].sort().to_list()


def drain_after_death(deployed: Deployed, die: Callable[[], None]) -> None:
    """Process what there is; a server dies when the first batch has been planned."""
    planned, alive = Plans.next, [True]

    def planned_before_death(plans: Plans, start: int) -> int:
        number = planned(plans, start)
        if number > start and alive:
            alive.clear()
            die()
        return number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plans, "next", planned_before_death)
        drain(deployed.deployment)


def drain_until(deployed: Deployed, name: str, expected: list[int], column: str = "n") -> None:
    """Process what comes until a dataset has some values: a source that did not answer rests for a while."""

    def is_there() -> bool:
        drain(deployed.deployment)
        return values(deployed, name, column) == expected

    wait_until(is_there, lambda: values(deployed, name, column), 60)


def warnings(deployed: Deployed) -> list[str]:
    """Return the events of batches that went on without a source."""
    return [each.text for each in deployed.deployment.catalog.events() if "goes on without" in each.text]
