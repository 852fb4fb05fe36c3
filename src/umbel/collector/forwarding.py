"""Forwarding of collected events to Kafka: each exactly once, for readers of committed records.

The log on disk is the buffer: events are accepted while Kafka is down. The position in the log is committed with the
records, in one transaction.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from umbel.collector.backlog import end_of_log
from umbel.collector.bodies import RejectedEvent, events_of
from umbel.collector.settings import CollectorSettings, KafkaTarget
from umbel.connectors.kafka.transactions import TransactionalTopic
from umbel.errors import Damaged, NotSupported, UmbelError
from umbel.log.collected import LETTERS, SYSTEM, streams_in
from umbel.log.ingest import IngestLog
from umbel.log.readers import note_position, positions
from umbel.log.reading import Damage, IngestReader
from umbel.log.segments import ORIGIN, LogPosition
from umbel.processes.stopping import StopRequest
from umbel.state import disk

READER = "kafka"
"""The id of this reader."""
BATCH_BYTES = 4 << 20
"""Bytes of one transaction, about."""
EVERY, NOTE_EVERY = 0.05, 1.0
"""Seconds between two looks for events, and between two notes of the position."""
LONGEST_WAIT = 10.0
"""Seconds between two attempts to reach Kafka at the most."""
ANSWER = 5.0
"""Seconds in which Kafka answers, while the collector stops."""
OVERHEAD = 1024
"""Bytes that a record may have besides its value."""
USUAL_LIMIT = 1_048_588
"""The largest record that a topic takes, if it does not tell."""

log = logging.getLogger("umbel.collect")


def check_installed() -> None:
    """Refuse to forward where the client library is missing.

    Raises:
        NotSupported: confluent-kafka is not installed.
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        report = f"--to kafka://… needs a library that is not installed: {error}"
        raise NotSupported(report, hint="pip install 'umbel[kafka]'") from None


def is_forwarded(log: Path) -> bool:
    """Return True if all events of a stream were forwarded.

    Other readers of it do not count.

    Args:
        log: the folder of the stream's log.
    """
    known = positions(log).get(READER)
    return end_of_log(log).row <= (ORIGIN if known is None else known.position).row


class Forwarder:
    """Forwards all streams of a collector, each in a thread.

    Args:
        settings: of the collector.
    """

    def __init__(self, settings: CollectorSettings) -> None:
        self._settings, self._id = settings, collector_id(settings.directory)
        self._forwarded: dict[str, StreamForwarding] = {}

    def run(self, stop: StopRequest) -> None:
        """Forward until stopped."""
        while not stop.wait(EVERY):
            for stream in streams_in(self._settings.directory):
                if stream not in self._forwarded:
                    forwarding = self._forwarded[stream] = StreamForwarding(self._settings, stream, self._id)
                    threading.Thread(target=forwarding.run, args=(stop,), name=f"forward {stream}", daemon=True).start()
        deadline = time.monotonic() + LONGEST_WAIT
        while any(each.is_connected for each in self._forwarded.values()) and time.monotonic() < deadline:
            time.sleep(EVERY)


class StreamForwarding:
    """Forwards one stream.

    Args:
        settings: of the collector.
        stream: its name.
        id: of the collector.
    """

    def __init__(self, settings: CollectorSettings, stream: str, id: str) -> None:
        assert settings.to is not None
        self._writer = f"umbel-collect-{id}-{stream}"
        self._directory, self._stream, self._target = settings.directory, stream, settings.to
        self._reader = IngestReader(settings.directory, SYSTEM, stream)
        self._title = f"Kafka at {self._target.servers}, topic '{self._target.topic_of(stream)}'"
        self._noted_at = 0.0
        self.is_connected = False
        """True while a transaction may be open: not while Kafka is looked for, which may take long."""

    def run(self, stop: StopRequest) -> None:
        """Forward until stopped; failures are tried again."""
        wait, reported = 0.5, ""
        while not stop.is_set():
            try:
                limit = record_limit(self._target, self._target.topic_of(self._stream))
                with closing(self._opened(limit)) as topic:
                    position = self._position(topic)
                    self.is_connected = True
                    while not stop.is_set():
                        position = self._forward(topic, position, limit, stop)
                        wait, reported = 0.5, ""
            except Exception as error:  # noqa: BLE001  the thread must not end: events would wait for ever
                message = error.message if isinstance(error, UmbelError) else f"{type(error).__name__}: {error}"
                if message != reported:
                    log.error("%s; it is tried again", message)
                reported = message
                stop.wait(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            finally:
                self.is_connected = False

    def _opened(self, limit: int) -> TransactionalTopic:
        topic, subject = self._target.topic_of(self._stream), f"forwarding to {self._title}"
        return TransactionalTopic(client_options(self._target), topic, self._writer, subject, batch_bytes=limit)

    def _position(self, topic: TransactionalTopic) -> LogPosition:
        """Return the position after the events that the topic has."""
        known = positions(self._reader.directory).get(READER)
        if known is None:  # from now on nothing is deleted before it is forwarded
            self._note(ORIGIN)
        offset, metadata = topic.position()
        if offset > 0:
            return LogPosition.from_json(json.loads(metadata))
        return max(self._reader.start(), ORIGIN if known is None else known.position)

    def _forward(self, topic: TransactionalTopic, position: LogPosition, limit: int, stop: StopRequest) -> LogPosition:
        """Forward the next events; return the position after them."""
        end = self._reader.advance(position, bytes=BATCH_BYTES)
        if end == position:
            stop.wait(EVERY)
        else:
            good, large = self._events(position, end, limit)
            self._keep(large)
            headers = {"umbel-stream": self._stream.encode()}

            def send() -> None:
                for each in good:
                    topic.send(None, each, headers)

            topic.write(send, end.row + 1, json.dumps(end.to_json()))
        if time.monotonic() - self._noted_at > NOTE_EVERY:
            self._note(end)
        return end

    def _note(self, position: LogPosition) -> None:
        note_position(self._reader.directory, READER, self._title, position)
        self._noted_at = time.monotonic()

    def _events(self, start: LogPosition, end: LogPosition, limit: int) -> tuple[list[bytes], list[RejectedEvent]]:
        good, letters = list[bytes](), list[RejectedEvent]()

        def damaged(damage: Damage) -> None:
            letters.append(RejectedEvent(damage.row, str(damage), damage.raw(1 << 16)))

        for part in self._reader.ranges(start, end):
            for record in self._reader.open(part, damaged):
                for number, each in enumerate(events_of(record.entry.payload), record.row):
                    if len(each) + OVERHEAD > limit:
                        letters.append(
                            RejectedEvent(number, f"it is too large for {self._title}: {len(each):,} bytes", each)
                        )
                    else:
                        good.append(each)
        return good, letters

    def _keep(self, letters: Sequence[RejectedEvent]) -> None:
        """Store each event that Kafka does not take as a dead letter, once.

        The next attempt begins at the same event, and may find more of them.
        """
        if letters:
            with closing(IngestLog(self._directory, LETTERS, self._stream)) as dead:
                asyncio.run(_stored(dead, letters))


async def _stored(dead: IngestLog, letters: Sequence[RejectedEvent]) -> None:
    """Store dead letters, together."""
    now, appends = time.time(), []
    for each in letters:
        payload = orjson.dumps([{**each.packed(), "received_at": now}])
        appends.append(dead.append(payload, 1, batch_id=f"{READER} {each.index} {each.reason}"))
    await asyncio.gather(*appends)


def client_options(target: KafkaTarget) -> dict[str, Any]:
    """Return the settings of librdkafka by which a cluster is reached."""
    return {
        "bootstrap.servers": target.servers,
        "client.id": "umbel-collect",
        "log_level": 2,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
    }


def answers(target: KafkaTarget, topic: str) -> bool:
    """Return True if Kafka can be reached."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient(client_options(target)).list_topics(topic, timeout=ANSWER)
    except KafkaException:
        return False
    return True


def record_limit(target: KafkaTarget, topic: str) -> int:
    """Return the bytes of the largest batch of records that a topic takes."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    try:
        admin = AdminClient(client_options(target))
        (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], request_timeout=10).values()
        return int(future.result(15)["max.message.bytes"].value)
    except (KafkaException, KeyError, ValueError, TimeoutError):
        return USUAL_LIMIT  # it may not be described


def collector_id(directory: Path) -> str:
    """Return the id of a collector's folder, made at its first use.

    Raises:
        Damaged: its file has no id.
    """
    path = directory / "collector-id"
    if not path.exists():
        disk.replace(path, secrets.token_hex(8).encode())
    found = path.read_text().strip()
    if len(found) != 16:
        raise Damaged(f"{path} is damaged", hint="restore it from a backup; with a new one all events are sent again")
    return found
