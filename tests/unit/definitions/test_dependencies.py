"""The checks across definitions take time in proportion to their size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from umbel.definitions.dependencies import dependency_errors
from umbel.definitions.records import Definitions, ExpressionExtractor, FeatureDefinition, FeaturesetDefinition
from umbel.expr import col
from umbel.types.dtypes import Int

FEATURES = 100


class Counted(tuple[Any, ...]):
    """Features that count how often all of them are read."""

    __slots__ = ()
    reads = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).reads += 1
        return super().__iter__()


def test_features_are_not_read_for_each_extractor() -> None:
    names = [f"a{number}" for number in range(FEATURES)]
    extractors = tuple(
        ExpressionExtractor(
            name=f"of_{after}", featureset="F", inputs=(f"F.{name}",), outputs=(f"F.{after}",), expression=col(name)
        )
        for name, after in itertools.pairwise(names)
    )
    features = Counted(FeatureDefinition(name=name, featureset="F", dtype=Int()) for name in names)
    made = FeaturesetDefinition(name="F", features=features, extractors=extractors)
    assert not list(dependency_errors(Definitions({}, {"F": made})))
    assert Counted.reads < 5
