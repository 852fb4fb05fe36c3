"""umbel: typed datasets and features, declared in Python, kept fresh by Spark, served in milliseconds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umbel import client, connectors
    from umbel.aggregates import AggregateType, Average, Count, Distinct, FirstK, LastK, Max, Min, Stddev, Sum
    from umbel.api.app import App
    from umbel.api.dataset import Dataset, dataset
    from umbel.api.extractor import extractor
    from umbel.api.feature import feature
    from umbel.api.feature import feature as F  # noqa: N812  api.md's name
    from umbel.api.featureset import featureset
    from umbel.api.field import field
    from umbel.api.metadata import meta
    from umbel.api.pipeline import pipeline

__version__ = "0.1.0"

HOMES = {
    **dict.fromkeys(
        ("AggregateType", "Average", "Count", "Distinct", "FirstK", "LastK", "Max", "Min", "Stddev", "Sum"),
        "umbel.aggregates",
    ),
    "App": "umbel.api.app",
    "Dataset": "umbel.api.dataset",
    "dataset": "umbel.api.dataset",
    "extractor": "umbel.api.extractor",
    "F": "umbel.api.feature:feature",
    "feature": "umbel.api.feature",
    "featureset": "umbel.api.featureset",
    "field": "umbel.api.field",
    "meta": "umbel.api.metadata",
    "pipeline": "umbel.api.pipeline",
    "client": "umbel.client:",
    "connectors": "umbel.connectors:",
}
"""Where each name is defined; it is imported when asked for, so that `import umbel` stays quick."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'umbel' has no attribute '{name}'")
    module, colon, attribute = HOMES[name].partition(":")
    home = import_module(module)
    return home if colon and not attribute else getattr(home, attribute or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})


__all__ = [
    "AggregateType",
    "App",
    "Average",
    "Count",
    "Dataset",
    "Distinct",
    "F",
    "FirstK",
    "LastK",
    "Max",
    "Min",
    "Stddev",
    "Sum",
    "client",
    "connectors",
    "dataset",
    "extractor",
    "feature",
    "featureset",
    "field",
    "meta",
    "pipeline",
]
