"""Earlier commits are read once for all datasets of a commit."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed
from umbel.api.commit import check_commit
from umbel.catalog.catalog import Catalog
from umbel.connectors import Webhook, source
from umbel.datasets import dataset
from umbel.featuresets import featureset
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.loaded import OTHERS

__owner__ = "tests@example.com"

DATASETS, COMMITS = 4, 2 * OTHERS
webhook = Webhook(name="web")


def rows_of(name: str, *endpoints: str) -> Any:
    made: Any = dataset(type(name, (), {"__annotations__": {"n": int, "t": datetime}, "__module__": __name__}))
    for each in endpoints:
        made = source(webhook.endpoint(each), disorder="1d", cdc="append")(made)
    return made


def features(number: int) -> Any:
    return featureset(type(f"F{number}", (), {"__annotations__": {"a": int}, "__module__": __name__}))


def test_each_is_read_once_for_all_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed, read = Deployed(tmp_path / "umbel"), Counter[int]()
    for number in range(COMMITS):
        rows = [rows_of(f"D{each}", f"e{each}") for each in range(DATASETS)]
        commit(deployed.deployment, check_commit(rows, [features(number)]))
    for each in range(DATASETS):
        deployed.log(f"e{each}", [{"n": 1, "t": "2024-01-01T00:00:00Z"}])
    drain(deployed.deployment)
    whole = Catalog.definitions
    monkeypatch.setattr(Catalog, "definitions", lambda self, revision: read.update([revision]) or whole(self, revision))
    rows = [rows_of(f"D{each}", f"e{each}", f"more{each}") for each in range(DATASETS)]
    commit(deployed.deployment, check_commit(rows, []))
    assert read.total() > COMMITS - OTHERS - 2
    assert max(read.values()) <= 2
    deployed.close()
