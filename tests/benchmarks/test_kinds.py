"""The benchmark of fields of many kinds: each is taken in whole."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmarks import kinds
from umbel.api.commit import check_commit
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

ROWS = 300
FIELDS = {kind: {name: dtype} for kind, (name, dtype, _) in kinds.KINDS.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("payments")
    kinds.write(place / "payments.ndjson", ROWS)
    return place


@pytest.mark.parametrize("case", [*FIELDS, *kinds.FUNCTIONS])
def test_all_rows_of_a_kind_are_taken_in(folder: Path, case: str) -> None:
    found = kinds.definitions(str(folder), FIELDS.get(case, {}), kinds.FUNCTIONS.get(case, {}))
    with tempfile.TemporaryDirectory() as place:
        deployment = Deployment.at(Path(place), shards=1)
        commit(deployment, check_commit(found, []))
        drain(deployment)
        graph = deployment.graph(deployment.catalog.revision())
        assert deployment.changes.read(graph.outputs["Payment"]).height == ROWS
        deployment.store.close()
        deployment.catalog.close()
