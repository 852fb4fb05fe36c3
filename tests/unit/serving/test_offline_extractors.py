"""Offline queries that run as jobs, with extractors that do not return."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd
import pytest

from tests.unit.serving.conftest import NOON, Served
from tests.unit.serving.flights import DATASETS, FEATURESETS
from tests.unit.serving.jobs import ask, errors_of, lines, place, rows_of, worked
from umbel.api.commit import check_commit
from umbel.featuresets import extractor, featureset
from umbel.lib import inputs, outputs
from umbel.offline import answering
from umbel.offline.runner import OfflineRunner
from umbel.runtime.commit import commit

__owner__ = "tests@example.com"
QUERY = {"inputs": ["Patience.n"], "outputs": ["Patience.twice"]}


@featureset
class Patience:
    n: int
    twice: int

    @extractor
    @inputs("n")
    @outputs("twice")
    def waiting(cls, ts: pd.Series, n: pd.Series):
        if (n < 0).any():
            time.sleep(1000)
        return (2 * n).rename("twice")


@pytest.fixture
def patient(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """Return a server that takes up no jobs; extractors have little time."""
    monkeypatch.setattr(OfflineRunner, "_is_needed", lambda _: False)
    monkeypatch.setattr(answering, "BATCH_SECONDS", 2.0)
    monkeypatch.setattr(answering, "PROBED", 3)
    monkeypatch.setenv("UMBEL_EXTRACTOR_SECONDS", "0.5")
    commit(fresh.deployment, check_commit(DATASETS, [*FEATURESETS, Patience]))
    return fresh


def test_an_extractor_that_never_returns_fails_the_query_at_the_first_attempt(patient: Served, buckets: Path) -> None:
    lines(buckets / "data/in/never/a.json", [{"Patience.n": -1, "at": NOON}] * 50)
    report = worked(patient, ask(patient, QUERY | {"input": place("in/never"), "output": place("out/never")}))
    assert report["status"] == "FAILED", report
    assert "has no result" in report["reason"]


def test_a_row_for_which_an_extractor_never_returns_is_rejected(patient: Served, buckets: Path) -> None:
    rows = [{"Patience.n": -1 if n == 40 else n, "at": NOON} for n in range(50)]
    lines(buckets / "data/in/once/a.json", rows)
    begun = time.monotonic()
    report = worked(patient, ask(patient, QUERY | {"input": place("in/once"), "output": place("out/once")}))
    assert (report["status"], report["failure_rate"]) == ("COMPLETED", 1 / 50), report
    assert [row["Patience.twice"] for row in rows_of(buckets, report)] == [2 * n for n in range(50) if n != 40]
    assert "has no result" in errors_of(buckets, report)[0]["reason"]
    assert time.monotonic() - begun < 30.0, "calls for few rows have less time than those for many"
