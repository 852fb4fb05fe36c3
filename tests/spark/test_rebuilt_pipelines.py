"""Rebuilding a dataset whose pipeline has an operator with state before its aggregate."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tests.deployed import Deployed, live, wait_until
from tests.sales import at
from umbel import Continuous, Count, Dataset, Webhook, dataset, field, index, inputs, pipeline, source
from umbel.runtime.recovery.rebuild import rebuild, share

__owner__ = "spark@umbel.dev"


@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    user: int
    page: int
    at: datetime


@index
@dataset
class Visited:
    user: int = field(key=True)
    pages: int
    at: datetime

    @pipeline
    @inputs(Visit)
    def count(cls, visits: Dataset):
        return visits.dedup(by=["user", "page"]).groupby("user").aggregate(pages=Count(window=Continuous("forever")))


def log(deployed: Deployed, *pages: int) -> None:
    deployed.log("visits", [{"user": 1, "page": page, "at": at(page)} for page in pages])


def test_all_operators_of_a_pipeline_are_rebuilt(tmp_path: Path, spark: Any) -> None:
    """Only the last one was: with what was lost of the others, a repeated row counted again."""
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([Visit, Visited])
    place = deployed.deployment
    log(deployed, 1, 2, 3, 3)
    with live(deployed, spark, None) as caught_up:
        caught_up({"Visit": 4})
    (dedup,) = (each for each in place.graph(place.catalog.latest()).nodes if each.operator.kind == "dedup")
    place.store.drop(dedup.state_id)
    made = rebuild(place, ["Visited"])
    assert dedup.state_id in made.state_ids
    with live(deployed, spark, None):
        wait_until(lambda: share(place, made) == 1.0, lambda: place.catalog.events(3), 60)
    log(deployed, 1, 4)
    with live(deployed, spark, None) as caught_up:
        caught_up({"Visit": 6})
    (found,) = deployed.lookup("Visited", [{"user": 1}], [at(10**6)])
    assert found["pages"] == 4
    deployed.close()
