"""A first request to a server, made of what is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umbel.errors import UmbelError

if TYPE_CHECKING:
    from umbel.plan.definitions import Definitions, FeaturesetDefinition
    from umbel.types.dtype import DType

CANDIDATES: tuple[Any, ...] = ("JFK", 1, 1.5, True, "2024-01-01T00:00:00Z", "2024-01-01", {}, [])


def query_example(definitions: Definitions) -> tuple[str, dict[str, Any]] | None:
    """Return the path and the body of a query for a featureset, else of a lookup; None where there is nothing to ask."""
    from umbel.query.arrange import Arranger
    from umbel.query.resolve import Catalogue
    from umbel.query.session import Mode

    arranger = Arranger(Catalogue(definitions.featuresets), definitions.datasets, Mode.ONLINE)
    for featureset in reversed(list(definitions.featuresets.values())):
        given = _given(featureset)
        try:
            arranger.plan(given, [featureset.name])
        except UmbelError:
            continue
        data = {fqn: [some(featureset.feature(fqn.partition(".")[2]).dtype)] for fqn in given}
        return "/api/v1/query", {"inputs": given, "outputs": [featureset.name], "data": data}
    for dataset in definitions.datasets.values():
        if dataset.online and dataset.schema.is_keyed:
            keys = {name: [some(dtype)] for name, dtype in dataset.schema.keys}
            return f"/api/v1/dataset/{dataset.name}/lookup", {"keys": keys}
    return None


def _given(featureset: FeaturesetDefinition) -> list[str]:
    """Return the features nothing computes."""
    computed = {fqn for each in featureset.extractors for fqn in each.outputs}
    return [each.fqn for each in featureset.features if each.fqn not in computed]


def some(dtype: DType) -> Any:
    """Return some value of a type, as JSON; null where none of the usual ones will do."""
    from umbel.query.encode import column_to_json

    for value in CANDIDATES:
        checked = dtype.ingest([value])
        if not checked.faults:
            return column_to_json(checked.values, dtype)[0]
    return None
