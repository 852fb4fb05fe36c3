"""A stream of messages that a thread receives, and that wait to be taken."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from umbel.connectors.pubsub.client import NoSubscription, PubSubClient
from umbel.errors import UmbelError

DEADLINE = 60
"""Seconds after which a message that was not acknowledged is delivered again."""
OUTSTANDING, OUTSTANDING_BYTES = 20_000, 64 << 20
"""Messages, and their bytes, that Pub/Sub delivers before any of them is acknowledged."""
BEAT = 30.0
"""Seconds between two signs of life."""


@dataclass(frozen=True, slots=True)
class PulledMessage:
    """A message that was delivered.

    Args:
        id: the same for each delivery of the message.
        ack_id: of this delivery.
        data: its bytes.
        published: when it was published, in seconds since the epoch.
    """

    id: str
    ack_id: str
    data: bytes
    published: float


class MessageStream:
    """The messages of a subscription.

    Args:
        client: of the subscription.
    """

    def __init__(self, client: PubSubClient) -> None:
        self._client = client
        self._waiting: deque[list[PulledMessage]] = deque()
        self._changed, self._closing = threading.Condition(), threading.Event()
        self._error: Exception | None = None
        self._has_ended = False
        self._extended_at = time.monotonic()
        self._call = client.subscriber.transport.streaming_pull(
            self._requests(), metadata=[("x-goog-request-params", f"subscription={client.path}")]
        )
        threading.Thread(target=self._receive, name="pubsub", daemon=True).start()

    def take(self, size: int, patience: float) -> list[PulledMessage]:
        """Return messages, none if there are none within some time.

        Args:
            size: bytes from which on no more are taken.
            patience: seconds to wait for the first.

        Raises:
            NoSubscription: the subscription was deleted.
            UmbelError: the stream has broken.
        """
        found = list[PulledMessage]()
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._has_ended, patience)
            while self._waiting and size > 0:
                taken = self._waiting.popleft()
                size -= sum(len(each.data) for each in taken)
                found += taken
            if not found and self._has_ended:
                raise self._reason()
        return found

    def extend(self) -> None:
        """Ask for more time for the messages that wait, before it ends."""
        if time.monotonic() - self._extended_at > DEADLINE / 3:
            self._extended_at = time.monotonic()
            self._client.extend(self._ids(), DEADLINE)

    def close(self) -> None:
        """End the stream; messages that wait are delivered again at once, to the next reader."""
        self._closing.set()
        self._call.cancel()
        with suppress(UmbelError):
            self._client.extend(self._ids(), 0)

    def _ids(self) -> list[str]:
        with self._changed:
            return [each.ack_id for some in self._waiting for each in some]

    def _requests(self) -> Iterator[Any]:
        from google.cloud.pubsub_v1.types import StreamingPullRequest

        yield StreamingPullRequest(
            subscription=self._client.path,
            stream_ack_deadline_seconds=DEADLINE,
            max_outstanding_messages=OUTSTANDING,
            max_outstanding_bytes=OUTSTANDING_BYTES,
        )
        while not self._closing.wait(BEAT):
            yield StreamingPullRequest()

    def _receive(self) -> None:
        try:
            for response in self._call:
                found = [_message(each) for each in type(response).pb(response).received_messages]
                with self._changed:
                    self._waiting.append(found)
                    self._changed.notify()
        except Exception as error:  # noqa: BLE001  it is raised where messages are taken
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._closing.set()
                self._changed.notify()

    def _reason(self) -> Exception:
        import grpc
        from google.api_core.exceptions import GoogleAPICallError, NotFound, ServiceUnavailable, from_grpc_error

        error = self._error or ServiceUnavailable("the stream has ended")
        if isinstance(error, grpc.RpcError):
            error = from_grpc_error(error)
        if isinstance(error, NotFound):
            return NoSubscription(str(error))
        if not isinstance(error, GoogleAPICallError):
            error = ServiceUnavailable(f"{type(error).__name__}: {error}")
        return self._client.error_of(error, "the subscription")


def _message(received: Any) -> PulledMessage:
    message = received.message
    at = message.publish_time
    return PulledMessage(message.message_id, received.ack_id, message.data, at.seconds + at.nanos / 1e9)
