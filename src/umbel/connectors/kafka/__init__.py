"""Kafka: topics of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from umbel.definitions.arguments import (
    SAME_PLACE,
    DataConnector,
    DataSource,
    Delivery,
    refuse_options,
    require_incremental,
)
from umbel.definitions.secret import Credential
from umbel.errors import InvalidValue
from umbel.formats.declarations import Avro, Protobuf, check_format, letters_of

if TYPE_CHECKING:
    from umbel.connectors.kafka.sink import TopicWriter
    from umbel.connectors.kafka.source import TopicSource
    from umbel.connectors.sinks import WriteOptions


RESERVED = frozenset(
    {
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "auto.offset.reset",
        "isolation.level",
        "transactional.id",
        "enable.idempotence",
        "acks",
    }
)
"""Settings of librdkafka that cannot be among the options."""


@dataclass(frozen=True, kw_only=True)
class KafkaConnector(DataConnector):
    """One topic."""

    topic: str
    format: str | Avro | Protobuf = "json"

    is_stream: ClassVar[bool] = True
    placed_by: ClassVar[tuple[str, ...]] = ("topic",)

    @property
    def cluster(self) -> Kafka:
        """The cluster of the topic."""
        return cast("Kafka", self.source)

    @property
    def title(self) -> str:
        return f"{super().title}, topic '{self.topic}'"

    @property
    def letter_format(self) -> Any:
        return letters_of(self.format)

    def reader(self, directory: Path) -> TopicSource:
        from umbel.connectors.kafka.source import TopicSource

        self.check_writer()
        return TopicSource(self)

    def check_writer(self) -> None:
        """Refuse a topic where the client library is missing, or a credential cannot be read."""
        from umbel.connectors.kafka.clients import check_credentials, check_installed

        check_installed(self)
        check_credentials(self.cluster)

    def examine_writer(self, options: WriteOptions) -> None:
        from umbel.connectors.kafka.examining import examine_sink

        examine_sink(self)

    def writer(self, id: str, dataset: str) -> TopicWriter:
        from umbel.connectors.kafka.sink import TopicWriter

        return TopicWriter(self, id, dataset)

    @property
    def nests(self) -> bool:
        return True

    def check_sink(self, delivery: Delivery) -> None:
        owner = f"sink to {self.title}"
        if delivery.cdc != "debezium":
            raise InvalidValue(f"{owner}: cdc must be 'debezium', found {delivery.cdc!r}", hint='cdc="debezium"')
        if self.format != "json":
            raise InvalidValue(
                f"{owner}: format must be 'json', found {self.format!r}", hint='.topic("name", format="json")'
            )
        require_incremental(owner, delivery.how, optional=True)
        refuse_options(
            owner, every=delivery.every, renames=delivery.renames, since=delivery.since, until=delivery.until
        )


@dataclass(frozen=True, kw_only=True)
class Kafka(DataSource):
    """A Kafka cluster.

    Args:
        bootstrap_servers: `host:port`, several separated by commas.
        security_protocol: Kafka's security protocol.
        sasl_mechanism: Kafka's authentication mechanism.
        sasl_plain_username: the user.
        sasl_plain_password: the user's password.
        options: further settings of librdkafka, such as `{"ssl.ca.location": "/etc/ssl/kafka.pem"}`.
    """

    bootstrap_servers: str
    security_protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"] = field(metadata=SAME_PLACE)
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"] = field(metadata=SAME_PLACE)
    sasl_plain_username: Credential | None = None
    sasl_plain_password: Credential | None = field(default=None, repr=False)
    options: Mapping[str, Credential] | None = field(default=None, repr=False, metadata={"identity": False})

    needs: ClassVar[str] = "a topic: .topic(...)"

    def __post_init__(self) -> None:
        if reserved := sorted({*(self.options or {})} & RESERVED):
            raise InvalidValue(
                f"Kafka '{self.name}': options cannot have {', '.join(map(repr, reserved))}: umbel sets them",
                hint="leave them out",
            )

    def topic(self, topic: str, format: Any = "json") -> KafkaConnector:
        """Return the connector for one topic.

        Args:
            topic: its name.
            format: "json", Avro(...) or Protobuf(...).
        """
        check_format(f"Kafka '{self.name}', topic '{topic}'", format, ("json",), Avro, Protobuf)
        return KafkaConnector(source=self, topic=topic, format=format)
