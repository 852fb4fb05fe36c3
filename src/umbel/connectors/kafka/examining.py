"""Examination of a topic at commit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from umbel.connectors.kafka.clients import Cluster, Topic, settings, unreachable
from umbel.connectors.kafka.encryption import certificate_problem, has_encryption
from umbel.connectors.kafka.fetching import CONSUMER
from umbel.connectors.kafka.transactions import TransactionalTopic
from umbel.errors import InvalidValue, Transient, UmbelError, did_you_mean

if TYPE_CHECKING:
    from umbel.connectors.kafka import KafkaConnector

PATIENCE = 10.0
"""Seconds for the broker to answer a request for records."""
_OF_GROUP = "GROUP_AUTHORIZATION_FAILED"
"""The error of a consumer whose user may not use its group, which reading needs no permission for."""
_LASTING: Mapping[str, str] = {
    "authentication failed": "correct sasl_mechanism=, sasl_plain_username= and sasl_plain_password= of the source",
    "authentication error": "correct sasl_mechanism=, sasl_plain_username= and sasl_plain_password= of the source",
    "request not valid in current sasl state": 'the listener has no logins: give the source security_protocol="PLAINTEXT"',
    "unsupported sasl mechanism": "give the source a sasl_mechanism= that the broker has enabled",
    "authorization failed": "kafka-acls --add --allow-principal User:NAME --topic {topic} --operation Describe --operation Read",
}
"""Texts of errors that another attempt does not mend, with their remedies."""
_EXAMINATION = "umbel-examination"
"""A transactional id, and a group, with the prefix of those of sinks."""
_GRANT = "kafka-acls --add --allow-principal User:NAME --{kind} {name} --operation Describe{more}"
_PREFIXED = " --resource-pattern-type prefixed"
_LASTING_OF_SINKS: Mapping[str, str] = {
    "transactional id authorization failed": _GRANT.format(
        kind="transactional-id", name="umbel-", more=f" --operation Write{_PREFIXED}"
    ),
    "group authorization failed": _GRANT.format(kind="group", name="umbel-", more=f" --operation Read{_PREFIXED}"),
}
"""Texts of errors of transactions, with their remedies."""
_ENCRYPTED = 'give the source security_protocol="SASL_SSL", or the address of a listener without encryption'


def examine(connector: KafkaConnector) -> None:
    """Check that a topic can be read.

    Raises:
        InvalidValue: there is no such topic, the login is wrong, or the user may not read the topic.
        Transient: the cluster does not answer.
    """
    try:
        _examine(connector)
    except Transient as error:
        raise _lasting(connector, error) from None


def examine_sink(connector: KafkaConnector) -> None:
    """Check that a topic can be written to, in transactions that commit offsets.

    Raises:
        InvalidValue: there is no such topic, the login is wrong, or a permission is missing.
        Transient: the cluster does not answer.
    """
    try:
        cluster, _ = _found(connector)
        if missing := sorted({"READ", "WRITE"} - cluster.permitted(connector.topic)):
            raise InvalidValue(
                f"{connector.title}: the user may not {' and not '.join(missing)} the topic",
                hint=_GRANT.format(kind="topic", name=connector.topic, more=" --operation Read --operation Write"),
            )
        topic = TransactionalTopic(
            settings(connector.cluster), connector.topic, _EXAMINATION, f"sink to {connector.title}"
        )
        with closing(topic):
            topic.examine()
    except Transient as error:
        for part, remedy in _LASTING_OF_SINKS.items():
            if part in error.message.lower():
                raise InvalidValue(f"{connector.title}: {error.message}", hint=remedy) from None
        raise _lasting(connector, error) from None


def _found(connector: KafkaConnector) -> tuple[Cluster, Topic]:
    """Return a topic and its cluster.

    Raises:
        InvalidValue: there is no such topic.
    """
    cluster = Cluster.of(connector.cluster)
    topic = cluster.topic(connector.topic, age=0.0)
    if topic is None:
        raise InvalidValue(
            f"{connector.title}: there is no such topic{did_you_mean(connector.topic, cluster.topics())}",
            hint=f"create it: kafka-topics --create --topic {connector.topic}, or correct .topic(...)",
        )
    return cluster, topic


def _examine(connector: KafkaConnector) -> None:
    cluster, topic = _found(connector)
    ends = cluster.offsets(connector.topic, topic.partitions)
    _fetch(connector, min(ends), ends[min(ends)][0])


def _fetch(connector: KafkaConnector, partition: int, offset: int) -> None:
    """Request records of a partition, which needs the permission to read."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    options: dict[str, Any] = {**settings(connector.cluster), **CONSUMER, "queued.min.messages": 1}
    deadline = time.monotonic() + PATIENCE
    try:
        with closing(Consumer({**options, "max.partition.fetch.bytes": 64 << 10})) as consumer:
            consumer.assign([TopicPartition(connector.topic, partition, offset)])
            while time.monotonic() < deadline:
                message = consumer.poll(0.1)
                error = None if message is None else message.error()
                if message is not None and (error is None or error.name() in {"_PARTITION_EOF", "_AUTO_OFFSET_RESET"}):
                    return
                if error is not None and error.name() != _OF_GROUP and not error.retriable():
                    raise unreachable(connector.cluster.bootstrap_servers, KafkaException(error))
    except KafkaException as error:
        raise unreachable(connector.cluster.bootstrap_servers, error) from None
    raise unreachable(connector.cluster.bootstrap_servers, f"no records within {PATIENCE:.0f} s")


def _lasting(connector: KafkaConnector, error: Transient) -> UmbelError:
    """Return an error that names its remedy if another attempt cannot succeed."""
    text, options = error.message.lower(), settings(connector.cluster)
    if "certificate verify failed" in text:
        problem, remedy = certificate_problem(options)
        return InvalidValue(f"{connector.title}: {problem}", hint=remedy)
    if "SSL" not in options["security.protocol"] and has_encryption(options):
        return InvalidValue(f"{connector.title}: the listener of the broker is encrypted", hint=_ENCRYPTED)
    for part, remedy in _LASTING.items():
        if part in text:
            return InvalidValue(f"{connector.title}: {error.message}", hint=remedy.replace("{topic}", connector.topic))
    return error
