"""From a featureset as declared to its definition in one environment."""

from __future__ import annotations

from collections.abc import Sequence

from umbel.api.commit_datasets import owned
from umbel.api.featureset import FeaturesetRecord
from umbel.errors import InvalidType
from umbel.plan.definitions import ExtractorDefinition, FeatureDefinition, FeaturesetDefinition


def featureset_definition(record: FeaturesetRecord, env: str | None) -> FeaturesetDefinition:
    """Return the definition of a featureset: what an environment selects of it, checked.

    Raises:
        UmbelError: the featureset does not hold; the message names it.
    """
    meta = owned(record.meta, record.module_owner, f"featureset '{record.name}'", record.place)
    deleted = {each.fqn() for each in record.features if each.meta.deleted}
    extractors = tuple(
        each.definition
        for each in record.extractors
        if each.env.selects(env)
        and not each.definition.meta.deleted
        and not deleted.issuperset(each.definition.outputs)
    )
    _check_once(record.name, extractors)
    features = tuple(
        FeatureDefinition(name=each.name, featureset=record.name, dtype=each.type, meta=each.meta, place=record.place)
        for each in record.features
    )
    return FeaturesetDefinition(
        name=record.name, features=features, extractors=extractors, meta=meta, place=record.place
    )


def _check_once(featureset: str, extractors: Sequence[ExtractorDefinition]) -> None:
    makers: dict[str, str] = {}
    for each in extractors:
        for feature in each.outputs:
            if feature in makers:
                raise InvalidType(
                    f"feature '{feature}' of featureset '{featureset}' is extracted by more than one extractor: "
                    f"'{makers[feature]}' and '{each.name}'",
                    where=each.place,
                    hint="drop one of them, or give each an env of its own",
                )
            makers[feature] = each.name
