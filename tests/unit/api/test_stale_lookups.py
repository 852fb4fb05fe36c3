"""A dataset is not changed under the featuresets that look it up."""

from datetime import datetime
from typing import Any, Optional

import pytest

from tests.unit.refusals import check_refused
from umbel.api.commit import check_commit
from umbel.api.dataset import Dataset, dataset
from umbel.api.feature import feature as F
from umbel.api.featureset import Featureset, featureset
from umbel.api.field import field
from umbel.api.metadata import meta

OWNER = meta(owner="a@b.c")


def spending(version: int = 1, fields: Any = (), key: str = "uid", indexed: bool = True) -> Dataset:
    annotations = {key: int, **dict(fields or {"spent": float, "seen": Optional[int]}), "t": datetime}
    members = {"__annotations__": annotations, "__module__": __name__, key: field(key=True)}
    return OWNER(dataset(version=version, index=indexed)(type("Spending", (), members)))


def buyer(found: Dataset) -> Featureset:
    @OWNER
    @featureset
    class Buyer:
        uid: int
        spent: float = F(found.spent, default=0.0)
        seen: Optional[int] = F(found.seen)

    return Buyer


STALE = {
    "field": ({"fields": {"seen": Optional[int]}}, ["'Spending.spent'", "no such field", "version 2"]),
    "key": ({"key": "user"}, ["by 'uid'", "'user'"]),
    "index": ({"indexed": False}, ["no index"]),
    "type": ({"fields": {"spent": int, "seen": Optional[int]}}, ["type float", "type int"]),
    "null": ({"fields": {"spent": float, "seen": Optional[str]}}, ["'Spending.seen'", "Optional[str]"]),
}


@pytest.mark.parametrize("change", STALE)
def test_a_dataset_is_not_changed_under_a_lookup(change: str) -> None:
    first = spending()
    before = check_commit([first], [buyer(first)])
    options, texts = STALE[change]
    second = spending(2, **options)
    check_refused(lambda: check_commit([second], [], before=before), ValueError, ("commit 'Buyer' as well", *texts))


def test_a_dataset_may_change_as_its_lookups_allow() -> None:
    first = spending()
    before = check_commit([first], [buyer(first)])
    second = spending(2, fields={"seen": int, "more": str, "spent": Optional[float]})
    assert set(check_commit([second], [], before=before).featuresets) == {"Buyer"}
