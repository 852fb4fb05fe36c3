"""A fake of Google Pub/Sub that speaks its protocol: topics, subscriptions, streams of messages, redelivery.

Messages are those of Google's own client library. A message that is not acknowledged by its deadline is delivered again, in any
order; so are, if a test says so, messages that were acknowledged.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from google.cloud.pubsub_v1 import types
from google.iam.v1 import iam_policy_pb2
from google.protobuf import empty_pb2

PROJECT = "shop"
ATTACH = "pubsub.topics.attachSubscription"
CHUNK = 100
"""Messages of one answer."""


@dataclass
class FakeTopic:
    name: str
    retention: float = 0.0
    messages: list[Any] = field(default_factory=list)


@dataclass
class FakeSubscription:
    settings: Any
    pending: deque[Any] = field(default_factory=deque)
    leased: dict[str, tuple[Any, float]] = field(default_factory=dict)
    """Messages that were delivered and when they are delivered again, by the id of the delivery."""


class FakePubSub:
    """Topics and subscriptions of the project."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.subscriptions: dict[str, FakeSubscription] = {}
        self.lock = threading.RLock()
        self.port = 0
        self.longest = 600.0
        """Seconds of a deadline at most: tests are shorter than Pub/Sub's."""
        self.forgotten = 0.0
        """The share of acknowledgements that are lost."""
        self.doubled = 0.0
        """The share of messages that are delivered a second time although they are acknowledged."""
        self.denied: set[str] = set()
        """Methods that the service account may not call."""
        self.is_away = False
        self.acknowledged: list[str] = []
        self.extended: list[int] = []
        self._number = 0

    # ---- what publishers and administrators do ---------------------------------------------------------------------

    def create(self, topic: str, retention: float = 0.0) -> None:
        """Create a topic."""
        with self.lock:
            self.topics[topic] = FakeTopic(f"projects/{PROJECT}/topics/{topic}", retention)

    def delete(self, topic: str) -> None:
        """Delete a topic; its subscriptions stay, without one."""
        with self.lock:
            gone = self.topics.pop(topic)
            for each in self.subscriptions.values():
                if each.settings.topic == gone.name:
                    each.settings.topic = "_deleted-topic_"

    def publish(self, topic: str, rows: Sequence[Any], at: datetime | None = None) -> list[str]:
        """Publish rows, or bytes, as messages; return their ids."""
        with self.lock:
            found = self.topics[topic]
            made = []
            for row in rows:
                self._number += 1
                data = row if isinstance(row, bytes) else json.dumps(row).encode()
                number = str(10_000_000_000_000_000 + self._number)
                made.append(types.PubsubMessage(data=data, message_id=number, publish_time=at or datetime.now(UTC)))
            if found.retention:
                found.messages += made
            for each in self.subscriptions.values():
                if each.settings.topic == found.name:
                    each.pending.extend(made)
                    each.pending.extend(message for message in made if random.random() < self.doubled)
            return [each.message_id for each in made]

    def waiting(self) -> int:
        """Return how many messages are not acknowledged."""
        with self.lock:
            return sum(len(each.pending) + len(each.leased) for each in self.subscriptions.values())

    # ---- the methods -----------------------------------------------------------------------------------------------

    def GetTopic(self, request: Any, context: Any) -> Any:
        found = self._topic(request.topic, context)
        retention = {"message_retention_duration": timedelta(seconds=found.retention)} if found.retention else {}
        return types.Topic(name=found.name, **retention)

    def CreateSubscription(self, request: Any, context: Any) -> Any:
        if request.name in self.subscriptions:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "Resource already exists in the project")
        self._topic(request.topic, context)
        self.subscriptions[request.name] = FakeSubscription(request)
        return request

    def GetSubscription(self, request: Any, context: Any) -> Any:
        return self._subscription(request.subscription, context).settings

    def DeleteSubscription(self, request: Any, context: Any) -> Any:
        self._subscription(request.subscription, context)
        del self.subscriptions[request.subscription]
        return empty_pb2.Empty()

    def Seek(self, request: Any, context: Any) -> Any:
        found = self._subscription(request.subscription, context)
        topic = self._topic(found.settings.topic, context)
        found.pending = deque(each for each in topic.messages if each.publish_time >= request.time)
        found.leased.clear()
        return types.SeekResponse()

    def Acknowledge(self, request: Any, context: Any) -> Any:
        found = self._subscription(request.subscription, context)
        for each in request.ack_ids:
            if random.random() >= self.forgotten and (lease := found.leased.pop(each, None)) is not None:
                self.acknowledged.append(lease[0].message_id)
        return empty_pb2.Empty()

    def ModifyAckDeadline(self, request: Any, context: Any) -> Any:
        found, seconds = self._subscription(request.subscription, context), request.ack_deadline_seconds
        self.extended.append(seconds)
        for each in request.ack_ids:
            if (lease := found.leased.get(each)) is not None:
                found.leased[each] = lease[0], time.monotonic() + min(seconds, self.longest)
        return empty_pb2.Empty()

    def TestIamPermissions(self, request: Any, context: Any) -> Any:
        allowed = [] if "CreateSubscription" in self.denied and "attach" in self.denied else list(request.permissions)
        return iam_policy_pb2.TestIamPermissionsResponse(permissions=allowed)

    def StreamingPull(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        first = next(requests)
        own = set[str]()
        while context.is_active():
            with self.lock:
                self._check("StreamingPull", context)
                found = self._subscription(first.subscription, context)
                sent = self._due(found, own, first)
            if sent:
                yield types.StreamingPullResponse(received_messages=sent)
            else:
                time.sleep(0.01)

    def _due(self, found: FakeSubscription, own: set[str], request: Any) -> list[Any]:
        """Return messages to deliver now, within the limits of the stream."""
        now = time.monotonic()
        for ack, (message, until) in list(found.leased.items()):
            if until <= now:
                del found.leased[ack]
                found.pending.append(message)
        own.intersection_update(found.leased)
        size, sent = sum(len(found.leased[each][0].data) for each in own), []
        while found.pending and len(sent) < CHUNK:
            if len(own) >= request.max_outstanding_messages or size >= request.max_outstanding_bytes:
                break
            message = found.pending.popleft()
            self._number += 1
            ack, size = f"ack-{self._number}", size + len(message.data)
            found.leased[ack] = message, now + min(request.stream_ack_deadline_seconds, self.longest)
            own.add(ack)
            sent.append(types.ReceivedMessage(ack_id=ack, message=message))
        return sent

    def _topic(self, name: str, context: Any) -> FakeTopic:
        found = self.topics.get(name.rpartition("/")[2])
        if found is None or found.name != name:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Resource not found (resource={name})")
        return found  # type: ignore[return-value]

    def _subscription(self, name: str, context: Any) -> FakeSubscription:
        if name not in self.subscriptions:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Resource not found (resource={name})")
        return self.subscriptions[name]

    def _check(self, method: str, context: Any) -> None:
        if self.is_away:
            context.abort(grpc.StatusCode.UNAVAILABLE, "The service is currently unavailable")
        if method in self.denied:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "User not authorized to perform this action.")

    def handler(self, name: str, request: Any, response: Any) -> Any:
        """Return the handler of a method.

        Args:
            name: of the method.
            request: decodes a request.
            response: encodes an answer.
        """
        method = getattr(self, name)
        if name == "StreamingPull":
            return grpc.stream_stream_rpc_method_handler(method, request, response)

        def answer(message: Any, context: Any) -> Any:
            with self.lock:
                self._check(name, context)
                return method(message, context)

        return grpc.unary_unary_rpc_method_handler(answer, request, response)


def _methods(fake: FakePubSub) -> dict[str, dict[str, Any]]:
    def of(name: str, request: Any, response: Any) -> Any:
        return fake.handler(name, request.deserialize, response.serialize)

    def empty(name: str, request: Any) -> Any:
        return fake.handler(name, request.deserialize, empty_pb2.Empty.SerializeToString)

    permissions = fake.handler(
        "TestIamPermissions",
        iam_policy_pb2.TestIamPermissionsRequest.FromString,
        iam_policy_pb2.TestIamPermissionsResponse.SerializeToString,
    )
    return {
        "google.pubsub.v1.Publisher": {"GetTopic": of("GetTopic", types.GetTopicRequest, types.Topic)},
        "google.pubsub.v1.Subscriber": {
            "CreateSubscription": of("CreateSubscription", types.Subscription, types.Subscription),
            "GetSubscription": of("GetSubscription", types.GetSubscriptionRequest, types.Subscription),
            "DeleteSubscription": empty("DeleteSubscription", types.DeleteSubscriptionRequest),
            "Seek": of("Seek", types.SeekRequest, types.SeekResponse),
            "Acknowledge": empty("Acknowledge", types.AcknowledgeRequest),
            "ModifyAckDeadline": empty("ModifyAckDeadline", types.ModifyAckDeadlineRequest),
            "StreamingPull": of("StreamingPull", types.StreamingPullRequest, types.StreamingPullResponse),
        },
        "google.iam.v1.IAMPolicy": {"TestIamPermissions": permissions},
    }


@contextmanager
def running() -> Iterator[FakePubSub]:
    """Run the fake for the length of a block."""
    fake = FakePubSub()
    server = grpc.server(ThreadPoolExecutor(16))
    for service, methods in _methods(fake).items():
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
    fake.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield fake
    finally:
        server.stop(0)


def environment(fake: FakePubSub) -> dict[str, str]:
    """Return the variables with which a worker reads from the fake."""
    return {"PUBSUB_EMULATOR_HOST": f"127.0.0.1:{fake.port}"}
