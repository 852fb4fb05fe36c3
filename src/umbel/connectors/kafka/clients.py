"""Clients of librdkafka: their settings, and the errors of brokers in umbel's terms."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from umbel.connectors.credentials import check_credential, resolved
from umbel.errors import InvalidValue, NotSupported, Transient, UmbelError
from umbel.formats.declarations import Avro

if TYPE_CHECKING:
    from umbel.connectors.kafka import Kafka, KafkaConnector

INSTALL = "pip install 'umbel[kafka]'"
ADMIN_TIMEOUT = 3.0
"""Seconds that a request of the planner may take."""
TOPIC_AGE = 1.0
"""Seconds for which the partitions of a topic are cached."""
UNKNOWN_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})


def check_installed(connector: KafkaConnector) -> None:
    """Refuse a connector where a library that it needs is missing.

    Raises:
        NotSupported: confluent-kafka is not installed, or fastavro for Avro.
    """
    try:
        import confluent_kafka  # noqa: F401

        if isinstance(connector.format, Avro):
            import fastavro  # noqa: F401
    except ImportError as error:
        report = f"{connector.title} needs a library that is not installed: {error}"
        raise NotSupported(report, hint=INSTALL) from None


def check_credentials(kafka: Kafka) -> None:
    """Refuse a cluster whose address or credentials cannot be found.

    Raises:
        NotSupported: it is registered elsewhere, or a secret is.
    """
    subject = f"Kafka '{kafka.name}'"
    if kafka.is_reference:
        raise NotSupported(
            f"{subject} is registered elsewhere, and this version has no register of sources",
            hint="Kafka(name=..., ...)",
        )
    for credential in (kafka.sasl_plain_username, kafka.sasl_plain_password, *(kafka.options or {}).values()):
        check_credential(credential, subject)


def settings(kafka: Kafka) -> dict[str, Any]:
    """Return the settings of librdkafka by which a cluster is reached, secrets resolved."""
    found: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "client.id": "umbel",
        "log_level": 2,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 30_000,
    }
    if kafka.security_protocol.startswith("SASL"):
        found["sasl.mechanism"] = kafka.sasl_mechanism
        names = {"sasl.username": kafka.sasl_plain_username, "sasl.password": kafka.sasl_plain_password}
        found |= {name: resolved(value) for name, value in names.items() if value is not None}
    return found | {name: resolved(value) for name, value in (kafka.options or {}).items()}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it.

    Args:
        id: unique among all topics there ever were.
        partitions: their numbers, sorted.
    """

    id: str
    partitions: tuple[int, ...]


@dataclass
class Cluster:
    """The administrative requests of one cluster, by one client per process."""

    address: str
    _client: Any
    _reasons: list[str]
    _topics: dict[str, tuple[float, Topic | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, kafka: Kafka) -> Cluster:
        """Return the cluster of a source; secrets are resolved at each call."""
        return _cluster(json.dumps(settings(kafka), sort_keys=True))

    def topic(self, name: str, age: float = TOPIC_AGE) -> Topic | None:
        """Return a topic, None if there is none.

        Args:
            name: of the topic.
            age: seconds for which an earlier answer may be used.

        Raises:
            Transient: the cluster does not answer.
        """
        from confluent_kafka import KafkaException, TopicCollection

        known = self._topics.get(name)
        if known is not None and time.monotonic() - known[0] < age:
            return known[1]
        try:
            (future,) = self._client.describe_topics(TopicCollection([name]), request_timeout=ADMIN_TIMEOUT).values()
            described = future.result(2 * ADMIN_TIMEOUT)
            found = Topic(str(described.topic_id), tuple(sorted(part.id for part in described.partitions)))
        except (KafkaException, TimeoutError) as error:
            if code_of(error) not in UNKNOWN_TOPIC:
                raise self._unreachable(error) from error
            found = None
        self._topics[name] = (time.monotonic(), found)
        return found

    def permitted(self, name: str) -> frozenset[str]:
        """Return the permitted operations on a topic, such as READ and WRITE.

        Raises:
            Transient: the cluster does not answer.
        """
        from confluent_kafka import KafkaException, TopicCollection

        try:
            (future,) = self._client.describe_topics(
                TopicCollection([name]), include_authorized_operations=True, request_timeout=ADMIN_TIMEOUT
            ).values()
            return frozenset(each.name for each in future.result(2 * ADMIN_TIMEOUT).authorized_operations or ())
        except (KafkaException, TimeoutError) as error:
            raise self._unreachable(error) from error

    def topics(self) -> list[str]:
        """Return the names of the topics that the user may see.

        Raises:
            Transient: the cluster does not answer.
        """
        from confluent_kafka import KafkaException

        try:
            return sorted(self._client.list_topics(timeout=ADMIN_TIMEOUT).topics)
        except KafkaException as error:
            raise self._unreachable(error) from error

    def offsets(self, name: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return the first offset of each partition, and that behind the last committed record.

        Raises:
            Transient: the cluster does not answer.
        """
        from confluent_kafka.admin import OffsetSpec

        first, last = (self._requested(name, partitions, each()) for each in (OffsetSpec.earliest, OffsetSpec.latest))
        low, high = self._answered(first), self._answered(last)
        return {part: (begin, high[part]) for part, begin in low.items()}

    def written(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the offset behind the last record of each partition, also of open transactions.

        Raises:
            Transient: the cluster does not answer.
        """
        from confluent_kafka.admin import OffsetSpec

        return self._answered(self._requested(name, partitions, OffsetSpec.latest(), is_committed=False))

    def _requested(self, name: str, partitions: Iterable[int], spec: Any, *, is_committed: bool = True) -> Any:
        """Begin to request an offset of each partition."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        requested = {TopicPartition(name, part): spec for part in partitions}
        try:
            return self._client.list_offsets(requested, isolation_level=level, request_timeout=ADMIN_TIMEOUT)
        except KafkaException as error:
            raise self._unreachable(error) from error

    def _answered(self, requested: Mapping[Any, Any]) -> dict[int, int]:
        """Wait for requested offsets."""
        from confluent_kafka import KafkaException

        try:
            return {each.partition: future.result(2 * ADMIN_TIMEOUT).offset for each, future in requested.items()}
        except (KafkaException, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> UmbelError:
        """Return the error of a failed request.

        The reason, such as a wrong password, comes by another way than the answer.
        """
        self._client.poll(0)
        return unreachable(
            self.address, self._reasons[-1] if self._reasons and code_of(error) == "_TIMED_OUT" else error
        )


def code_of(error: Exception) -> str:
    """Return the name of a client's error code, empty for other errors."""
    details = error.args[0] if error.args else None
    return "" if details is None or not hasattr(details, "name") else str(details.name())


def unreachable(address: str, error: object) -> UmbelError:
    """Return the error of a cluster that does not answer."""
    details = error.args[0] if isinstance(error, Exception) and error.args else error
    text = details.str() if hasattr(details, "str") else str(details) or type(error).__name__
    return Transient(
        f"Kafka at {address} does not answer: {text}",
        hint="check that it runs, the address, security_protocol=, the user and its permissions",
    )


@lru_cache(maxsize=16)
def _cluster(options: str) -> Cluster:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    found, reasons = json.loads(options), list[str]()

    def note(error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # follows the reason
            reasons[:] = [error.str()]

    try:
        client = AdminClient({**found, "error_cb": note})
    except KafkaException as error:
        text = error.args[0].str()
        raise InvalidValue(
            f"Kafka at {found['bootstrap.servers']}: the settings are refused: {text}",
            hint="correct the options= of the source; they are settings of librdkafka",
        ) from None
    return Cluster(found["bootstrap.servers"], client, reasons)
