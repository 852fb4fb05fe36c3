"""Definitions are read from the catalog once, however many branches there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.catalog.catalog import Catalog
from umbel.definitions.records import Definitions, FeatureDefinition, FeaturesetDefinition, Metadata
from umbel.runtime.branches import init
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.runtime.loaded import OTHERS
from umbel.types.dtypes import Int

BRANCHES = 3 * OTHERS


def defined(name: str) -> Definitions:
    feature = FeatureDefinition(name="a", featureset=name, dtype=Int())
    made = FeaturesetDefinition(name=name, features=(feature,), meta=Metadata(owner="a@b.c"))
    return Definitions({}, {name: made})


def test_a_commit_reads_no_other_branch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, read = Deployment.at(tmp_path, shards=1), list[int]()
    for number in range(BRANCHES):
        init(deployment, f"b{number}")
        commit(deployment, defined(f"F{number}"), branch=f"b{number}")
    whole = Catalog.definitions
    monkeypatch.setattr(Catalog, "definitions", lambda self, revision: read.append(revision) or whole(self, revision))
    for number in range(BRANCHES):
        commit(deployment, defined(f"G{number}"), branch=f"b{number}")
    assert len(read) <= 2 * BRANCHES
    assert len(read) == len(set(read))


def test_another_revision_is_not_retained_for_long(tmp_path: Path) -> None:
    deployment = Deployment.at(tmp_path, shards=1)
    revisions = [commit(deployment, defined(f"F{number}"))["revision"] for number in range(BRANCHES)]
    found = [deployment.definitions(each) for each in revisions]
    assert [list(each.featuresets) for each in found] == [[f"F{number}"] for number in range(BRANCHES)]
    assert deployment.definitions(revisions[0]) is not found[0]
    deployment.graph(deployment.catalog.latest())
    head = deployment.branch("main")
    for each in revisions:
        deployment.definitions(each)
    assert deployment.branch("main") is head
