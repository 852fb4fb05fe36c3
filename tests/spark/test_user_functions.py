"""User functions that misbehave in Spark tasks, as rows come and when they are computed from history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed, live, wait_until
from tests.misbehaving import KINDS, definitions, events, with_last

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

TASKS = 0
GOOD = [f"good {n}" for n in range(20)]


def test_their_rows_are_dead_letters(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ROW_SECONDS": "0.5", "BATCH_SECONDS": "2", "MEMORY": "512"}.items():
        monkeypatch.setenv(f"UMBEL_FUNCTION_{name}", value)
    deployed = Deployed(tmp_path)
    datasets = definitions("assign")
    deployed.commit(datasets)
    deployed.log("events", events(*GOOD[:10], *KINDS, *GOOD[10:]))
    catalog = deployed.deployment.catalog
    with live(deployed, spark, small=TASKS) as caught_up:
        caught_up({"Event": len(GOOD) + len(KINDS), "Acted": len(KINDS)})
        assert sorted(deployed.changes("Acted")["what"]) == sorted(GOOD)
        deployed.commit(with_last(datasets))
        caught_up({"Last": len(KINDS)})
        deployed.log("events", events("more", "spin", first=100))
        caught_up({"Event": len(GOOD) + len(KINDS) + 2, "Acted": len(KINDS) + 1})
        wait_until(lambda: catalog.counts().get(("Last", "dead"), 0) == len(KINDS) + 1, catalog.counts)
    for dataset in ("Acted", "Last"):
        assert sorted(deployed.changes(dataset)["what"]) == sorted([*GOOD, "more"])
        letters = catalog.dead_letters(dataset)
        assert len(letters) == len(KINDS) + 1
        assert {kind for kind in KINDS for each in letters if f'"{kind}"'.encode() in each.raw} == set(KINDS)
    deployed.close()
