"""Connectors: sources and sinks of datasets, and the decorators that declare them."""

from typing import TYPE_CHECKING, Any

from umbel.connectors import kinesis
from umbel.connectors.bigquery import BigQuery
from umbel.connectors.collector import Collector, CollectorStream
from umbel.connectors.files import Files, FilesConnector
from umbel.connectors.gcs import GCS, GCSConnector
from umbel.connectors.http import HTTP, Certificate, HTTPConnector
from umbel.connectors.iceberg import Iceberg, IcebergConnector
from umbel.connectors.kafka import Kafka, KafkaConnector
from umbel.connectors.kinesis import Kinesis, KinesisConnector, at_timestamp
from umbel.connectors.mongo import Mongo
from umbel.connectors.mysql import MySQL
from umbel.connectors.postgres import Postgres
from umbel.connectors.pubsub import PubSub, PubSubConnector
from umbel.connectors.redshift import Redshift
from umbel.connectors.s3 import S3, S3Connector
from umbel.connectors.snowflake import Snowflake
from umbel.connectors.table import TableConnector
from umbel.connectors.webhook import Webhook, WebhookConnector
from umbel.definitions.arguments import CONNECTORS, DataConnector, DataSource
from umbel.formats.declarations import CSV, Avro, Protobuf

if TYPE_CHECKING:
    from umbel.api.incoming import Eval, Ref, Sample, eval, ref  # noqa: A004
    from umbel.api.sink import SnapshotData, sink
    from umbel.api.source import source

DECORATORS = frozenset(["Eval", "Ref", "Sample", "SnapshotData", "eval", "ref", "sink", "source"])
"""The names of the layer above that users import from here; they are imported on access."""


def __getattr__(name: str) -> Any:
    if name in DECORATORS:
        from umbel.api import incoming, sink, source

        return next(vars(module)[name] for module in (incoming, sink, source) if name in vars(module))
    return CONNECTORS.attribute(name)


__all__ = [
    "CSV",
    "GCS",
    "HTTP",
    "S3",
    "Avro",
    "BigQuery",
    "Certificate",
    "Collector",
    "CollectorStream",
    "DataConnector",
    "DataSource",
    "Eval",
    "Files",
    "FilesConnector",
    "GCSConnector",
    "HTTPConnector",
    "Iceberg",
    "IcebergConnector",
    "Kafka",
    "KafkaConnector",
    "Kinesis",
    "KinesisConnector",
    "Mongo",
    "MySQL",
    "Postgres",
    "Protobuf",
    "PubSub",
    "PubSubConnector",
    "Redshift",
    "Ref",
    "S3Connector",
    "Sample",
    "SnapshotData",
    "Snowflake",
    "TableConnector",
    "Webhook",
    "WebhookConnector",
    "at_timestamp",
    "eval",
    "kinesis",
    "ref",
    "sink",
    "source",
]
