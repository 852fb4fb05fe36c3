"""Tags flow down the lineage (api §2.3)."""

from __future__ import annotations

from umbel.definitions.records import (
    AliasExtractor,
    DatasetDefinition,
    Definitions,
    ExpressionExtractor,
    FeatureDefinition,
    FeaturesetDefinition,
    LookupExtractor,
    Metadata,
)
from umbel.definitions.tags import all_tags
from umbel.expr import col
from umbel.operators.leaf import Leaf
from umbel.types.annotations import from_annotation
from umbel.types.schema import Schema

SCHEMA = Schema((("k", from_annotation(int)),), (("v", from_annotation(int)),), "t")


def dataset(name: str, tags: tuple[str, ...], reads: str = "") -> DatasetDefinition:
    output = Leaf(dataset=reads, version=1, columns=SCHEMA) if reads else None
    return DatasetDefinition(name=name, version=1, schema=SCHEMA, history=1, output=output, meta=Metadata(tags=tags))


def feature(name: str, tags: tuple[str, ...] = (), featureset: str = "F") -> FeatureDefinition:
    return FeatureDefinition(name=name, featureset=featureset, dtype=from_annotation(int), meta=Metadata(tags=tags))


def test_tags_flow_and_can_be_cancelled() -> None:
    datasets = [dataset("A", ("pii", "raw")), dataset("B", ("~raw", "gold"), "A"), dataset("C", ("~pii",), "B")]
    request = FeaturesetDefinition(name="R", features=(feature("k", ("user",), "R"),))
    common = {"featureset": "F"}
    features = FeaturesetDefinition(
        name="F",
        features=(feature("k"), feature("v", ("own",)), feature("w", ("~pii", "late")), feature("lone")),
        extractors=(
            AliasExtractor(name="a", inputs=("R.k",), outputs=("F.k",), **common),
            LookupExtractor(
                name="l", inputs=("F.k",), outputs=("F.v",), datasets=("B",), field="v", keys=("k",), **common
            ),
            ExpressionExtractor(name="e", inputs=("F.v",), outputs=("F.w",), expression=col("v") + 1, **common),
        ),
        meta=Metadata(tags=("fs",)),
    )
    found = all_tags(Definitions({each.name: each for each in datasets}, {"R": request, "F": features}))
    assert {name: sorted(tags) for name, tags in found.items()} == {
        "A": ["pii", "raw"],
        "B": ["gold", "pii"],
        "C": ["gold"],
        "R.k": ["user"],
        "F.k": ["fs", "user"],
        "F.v": ["fs", "gold", "own", "pii", "user"],
        "F.w": ["fs", "gold", "late", "own", "user"],
        "F.lone": ["fs"],
    }
