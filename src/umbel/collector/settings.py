"""The settings of a collector."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from umbel.errors import InvalidValue
from umbel.log.collected import check_name

MOST_STREAMS = 100
"""Streams that a collector makes by itself, where they are not listed."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The sizes that requests may have.

    Args:
        body: bytes of a body, compressed and decompressed.
        event: bytes of one event.
        events: events in a request.
    """

    body: int = 8 << 20
    event: int = 1 << 20
    events: int = 50_000


NO_TOPICS = (".", "..")
"""Names that Kafka refuses."""
LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """The cluster and the topic that events are forwarded to.

    Args:
        servers: `host:port`, several separated by commas.
        topic: its name; `{stream}` in it stands for the stream.
    """

    servers: str
    topic: str

    @classmethod
    def parse(cls, url: str) -> KafkaTarget:
        """Return the target of `kafka://host:port/topic`.

        >>> KafkaTarget.parse("kafka://a:9092,b:9092/events.{stream}")
        KafkaTarget(servers='a:9092,b:9092', topic='events.{stream}')

        Raises:
            InvalidValue: it is no such URL.
        """
        parts = urlsplit(url)
        topic = parts.path.lstrip("/")
        named = re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic.replace("{stream}", "x"))
        is_topic = named is not None and topic not in NO_TOPICS
        if parts.scheme != "kafka" or not _are_servers(parts.netloc) or not is_topic or parts.query:
            raise InvalidValue(f"--to {url!r} must be kafka://host:port/topic", hint="kafka://localhost:9092/events")
        return cls(parts.netloc, topic)

    def topic_of(self, stream: str) -> str:
        """Return the topic for a stream."""
        return self.topic.replace("{stream}", stream)


def _are_servers(text: str) -> bool:
    """Return True for `host:port`, or several separated by commas."""
    found = [re.fullmatch(r"[^@\s,]+:(\d{1,5})", each) for each in text.split(",")]
    return all(each is not None and 0 < int(each[1]) <= LAST_PORT for each in found)


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """The settings of a collector.

    Args:
        directory: the folder with all that it stores.
        host: the address it listens on.
        port: the port it listens on.
        processes: how many processes accept requests.
        streams: the names of streams that are accepted; any, up to a hundred, when empty.
        limits: the sizes that requests may have.
        schema: a file with the JSON schema of events, None for any object.
        keys: a file with API keys, None where requests need none.
        to: where events are forwarded, None for nowhere.
        retention: µs for which events are retained.
        tls_cert: file of the certificate, None without TLS.
        tls_key: file of its key.
    """

    directory: Path
    host: str = "127.0.0.1"
    port: int = 8426
    processes: int = 1
    streams: tuple[str, ...] = ()
    limits: RequestLimits = RequestLimits()
    schema: Path | None = None
    keys: Path | None = None
    to: KafkaTarget | None = None
    retention: int = 7 * 86_400_000_000
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def check(self) -> None:
        """Check names of streams, and the files of TLS.

        Raises:
            InvalidValue: a name cannot be one, or a file is missing.
        """
        for each in self.streams:
            check_name(each)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidValue("--tls-cert and --tls-key go together", hint="give both, or neither")
