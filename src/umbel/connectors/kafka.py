"""Kafka: topics of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from umbel.definitions.arguments import DataConnector, DataSource, Delivery, refuse_options, require_incremental
from umbel.definitions.secret import Credential
from umbel.errors import InvalidValue
from umbel.formats.declarations import Avro, Protobuf, check_format


@dataclass(frozen=True, kw_only=True)
class KafkaConnector(DataConnector):
    """One topic."""

    topic: str
    format: str | Avro | Protobuf = "json"

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
    """

    bootstrap_servers: str
    security_protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"]
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"]
    sasl_plain_username: Credential | None = None
    sasl_plain_password: Credential | None = None

    needs: ClassVar[str] = "a topic: .topic(...)"

    def topic(self, topic: str, format: Any = "json") -> KafkaConnector:
        """Return the connector for one topic.

        Args:
            topic: its name.
            format: "json", Avro(...) or Protobuf(...).
        """
        check_format(f"Kafka '{self.name}', topic '{topic}'", format, ("json",), Avro, Protobuf)
        return KafkaConnector(source=self, topic=topic, format=format)
