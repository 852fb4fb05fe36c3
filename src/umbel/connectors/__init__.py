"""Connectors: what a dataset reads from and writes to, and the decorators that say so."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from umbel.connectors import kinesis
from umbel.connectors.bigquery import BigQuery
from umbel.connectors.declared import DataConnector, DataSource
from umbel.connectors.formats import CSV, Avro, Protobuf
from umbel.connectors.http import HTTP, Certificate, HTTPConnector
from umbel.connectors.kafka import Kafka, KafkaConnector
from umbel.connectors.kinesis import Kinesis, KinesisConnector, at_timestamp
from umbel.connectors.localfiles import Files, FilesConnector
from umbel.connectors.mongo import Mongo
from umbel.connectors.mysql import MySQL
from umbel.connectors.postgres import Postgres
from umbel.connectors.pubsub import PubSub, PubSubConnector
from umbel.connectors.redshift import Redshift
from umbel.connectors.s3 import S3, S3Connector
from umbel.connectors.snowflake import Snowflake
from umbel.connectors.table import TableConnector
from umbel.connectors.webhook import Webhook, WebhookConnector

if TYPE_CHECKING:
    from umbel.api.incoming import Eval, Ref, Sample, eval, ref  # noqa: A004
    from umbel.api.sink import SnapshotData, sink
    from umbel.api.source import source

ABOVE = {
    **dict.fromkeys(("Eval", "Ref", "Sample", "eval", "ref"), "umbel.api.incoming"),
    **dict.fromkeys(("SnapshotData", "sink"), "umbel.api.sink"),
    "source": "umbel.api.source",
}
"""Names of layers above that users find here; they are imported when asked for."""


def __getattr__(name: str) -> Any:
    if name not in ABOVE:
        raise AttributeError(f"module 'umbel.connectors' has no attribute '{name}'")
    return getattr(import_module(ABOVE[name]), name)


__all__ = [
    "CSV",
    "HTTP",
    "S3",
    "Avro",
    "BigQuery",
    "Certificate",
    "DataConnector",
    "DataSource",
    "Eval",
    "Files",
    "FilesConnector",
    "HTTPConnector",
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
