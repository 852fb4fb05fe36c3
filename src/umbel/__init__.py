"""umbel: typed datasets and features, declared in Python, updated by Spark, served in milliseconds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umbel import client, connectors
    from umbel.aggregates import (
        AggregateType,
        Average,
        Count,
        Distinct,
        ExpDecaySum,
        FirstK,
        LastK,
        Max,
        Min,
        Quantile,
        Stddev,
        Sum,
    )
    from umbel.api.app import App
    from umbel.api.bucketize import bucketize
    from umbel.api.dataset import Dataset, dataset, index
    from umbel.api.expectations import expectations
    from umbel.api.extractor import Extractor, extractor
    from umbel.api.feature import Feature, feature
    from umbel.api.feature import feature as F  # noqa: N812  api.md's name
    from umbel.api.featureset import Featureset, featureset
    from umbel.api.field import Field, field
    from umbel.api.incoming import ref
    from umbel.api.inputs import includes, inputs, outputs
    from umbel.api.metadata import desc, meta
    from umbel.api.pipeline import Pipeline, pipeline
    from umbel.api.sink import sink
    from umbel.api.source import source
    from umbel.client import Client
    from umbel.connectors import (
        CSV,
        HTTP,
        S3,
        Avro,
        BigQuery,
        Files,
        Kafka,
        Kinesis,
        Mongo,
        MySQL,
        Postgres,
        Protobuf,
        PubSub,
        Redshift,
        Snowflake,
        Webhook,
    )
    from umbel.definitions.secret import Secret
    from umbel.errors import UmbelError
    from umbel.expr import col, lit, when
    from umbel.testing import MockClient, mock
    from umbel.types.annotations import Decimal, Embedding, between, oneof, regex
    from umbel.types.structs import struct
    from umbel.types.windows import Continuous, Hopping, Session, Tumbling, Window

__version__ = "0.1.0"

NAMES = {
    "umbel.aggregates": "AggregateType Average Count Distinct ExpDecaySum FirstK LastK Max Min Quantile Stddev Sum",
    "umbel.api.app": "App",
    "umbel.api.bucketize": "bucketize",
    "umbel.api.dataset": "Dataset dataset index",
    "umbel.api.expectations": "expectations",
    "umbel.api.extractor": "Extractor extractor",
    "umbel.api.feature": "Feature feature",
    "umbel.api.featureset": "Featureset featureset",
    "umbel.api.field": "Field field",
    "umbel.api.incoming": "ref",
    "umbel.api.inputs": "includes inputs outputs",
    "umbel.api.metadata": "desc meta",
    "umbel.api.pipeline": "Pipeline pipeline",
    "umbel.api.sink": "sink",
    "umbel.api.source": "source",
    "umbel.client": "Client",
    "umbel.connectors": "CSV HTTP S3 Avro BigQuery Files Kafka Kinesis Mongo MySQL Postgres Protobuf PubSub Redshift Snowflake "
    "Webhook",
    "umbel.definitions.secret": "Secret",
    "umbel.errors": "UmbelError",
    "umbel.expr": "col lit when",
    "umbel.testing": "MockClient mock",
    "umbel.types.annotations": "Decimal Embedding between oneof regex",
    "umbel.types.structs": "struct",
    "umbel.types.windows": "Continuous Hopping Session Tumbling Window",
}
"""The public names by the module that defines them; it is imported on first access, so that `import umbel` stays fast."""

HOMES = {
    **{name: module for module, names in NAMES.items() for name in names.split()},
    "F": "umbel.api.feature:feature",
    "client": "umbel.client:",
    "connectors": "umbel.connectors:",
}
"""The location of each name: its module; after a colon its name there, nothing for the module itself."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        from umbel.errors import did_you_mean

        known = "" if name.startswith("_") else did_you_mean(name, HOMES)
        raise AttributeError(f"module 'umbel' has no attribute '{name}'{known}")
    module, colon, attribute = HOMES[name].partition(":")
    home = import_module(module)
    return home if colon and not attribute else getattr(home, attribute or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})


__all__ = [
    "CSV",
    "HTTP",
    "S3",
    "AggregateType",
    "App",
    "Average",
    "Avro",
    "BigQuery",
    "Client",
    "Continuous",
    "Count",
    "Dataset",
    "Decimal",
    "Distinct",
    "Embedding",
    "ExpDecaySum",
    "Extractor",
    "F",
    "Feature",
    "Featureset",
    "Field",
    "Files",
    "FirstK",
    "Hopping",
    "Kafka",
    "Kinesis",
    "LastK",
    "Max",
    "Min",
    "MockClient",
    "Mongo",
    "MySQL",
    "Pipeline",
    "Postgres",
    "Protobuf",
    "PubSub",
    "Quantile",
    "Redshift",
    "Secret",
    "Session",
    "Snowflake",
    "Stddev",
    "Sum",
    "Tumbling",
    "UmbelError",
    "Webhook",
    "Window",
    "between",
    "bucketize",
    "client",
    "col",
    "connectors",
    "dataset",
    "desc",
    "expectations",
    "extractor",
    "feature",
    "featureset",
    "field",
    "includes",
    "index",
    "inputs",
    "lit",
    "meta",
    "mock",
    "oneof",
    "outputs",
    "pipeline",
    "ref",
    "regex",
    "sink",
    "source",
    "struct",
    "when",
]
