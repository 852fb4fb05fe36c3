"""An example request to a server, derived from the committed definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umbel.errors import UmbelError

if TYPE_CHECKING:
    from umbel.definitions.records import Definitions, FeaturesetDefinition
    from umbel.types.dtype import DType

CANDIDATES: tuple[Any, ...] = ("JFK", 1, 1.5, True, "2024-01-01T00:00:00Z", "2024-01-01", {}, [])


def query_example(definitions: Definitions) -> tuple[str, dict[str, Any]] | None:
    """Return the path and body of an example query or lookup.

    It queries a featureset if one can be computed from its inputs, else it looks up a keyed online dataset; None if there is
    neither.
    """
    from umbel.query.arrange import Arranger
    from umbel.query.resolve import Catalogue
    from umbel.query.session import QueryMode

    arranger = Arranger(Catalogue(definitions.featuresets), definitions.datasets, QueryMode.ONLINE)
    for featureset in reversed(list(definitions.featuresets.values())):
        provided = _provided(featureset)
        try:
            arranger.plan(provided, [featureset.name])
        except UmbelError:
            continue
        data = {fqn: [some(featureset.feature(fqn.partition(".")[2]).dtype)] for fqn in provided}
        return "/api/v1/query", {"inputs": provided, "outputs": [featureset.name], "data": data}
    for dataset in definitions.datasets.values():
        if dataset.online and dataset.schema.is_keyed:
            keys = {name: [some(dtype)] for name, dtype in dataset.schema.keys}
            return f"/api/v1/dataset/{dataset.name}/lookup", {"keys": keys}
    return None


def _provided(featureset: FeaturesetDefinition) -> list[str]:
    """Return the features of a featureset that no extractor computes: its inputs."""
    computed = {fqn for each in featureset.extractors for fqn in each.outputs}
    return [each.fqn for each in featureset.features if each.fqn not in computed]


def some(dtype: DType) -> Any:
    """Return an example value of a type, as JSON.

    Null if none of the candidate values is valid for it.
    """
    from umbel.query.encode import column_to_json

    for value in CANDIDATES:
        checked = dtype.ingest([value])
        if not checked.errors:
            return column_to_json(checked.values, dtype)[0]
    return None
