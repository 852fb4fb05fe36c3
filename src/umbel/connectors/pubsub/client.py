"""Requests to Google Pub/Sub, and their errors in umbel's terms."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from umbel.connectors.credentials import check_credential, resolved
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

if TYPE_CHECKING:
    from umbel.connectors.pubsub import PubSubConnector

INSTALL = "pip install 'umbel[pubsub]'"
EMULATOR = "PUBSUB_EMULATOR_HOST"
"""The variable with the address of an emulator, by which Google's clients find it."""
TIMEOUT = 10.0
"""Seconds of a request."""
IDS = 1000
"""Messages of one acknowledgement."""
DELETED_TOPIC = "_deleted-topic_"
"""The topic of a subscription whose topic was deleted."""
ATTACH = "pubsub.topics.attachSubscription"
SUBSCRIBER = "grant the service account roles/pubsub.subscriber on the topic and on the subscription"
RETENTION = 7 * 24 * 3600
"""Seconds for which a subscription that is created retains messages: as long as Pub/Sub does without topic storage."""
_KEY = "service_account_key is the JSON of a key of a service account, as a dict or a Secret"


class NoSubscription(Exception):
    """There is no such subscription."""


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """A subscription as Pub/Sub describes it.

    Args:
        topic: the path of its topic.
        retention: of messages, in seconds.
        delivery: the system that messages are delivered to, empty if they are pulled.
        is_detached: whether it gets no messages any more.
    """

    topic: str
    retention: float
    delivery: str
    is_detached: bool


def check_installed() -> None:
    """Refuse a topic where the client library is missing.

    Raises:
        PackageError: google-cloud-pubsub is not installed.
    """
    try:
        from google.cloud import pubsub_v1  # noqa: F401
    except ImportError as error:
        raise PackageError(f"Pub/Sub needs a library that is not installed: {error}", hint=INSTALL) from None


def check_key(connector: PubSubConnector) -> None:
    """Refuse a key that cannot be used. One in a secret is examined later.

    Raises:
        InvalidValue: it is no key of a service account.
    """
    key = connector.project.service_account_key
    if isinstance(key, Secret):
        check_credential(key, connector.title)
    else:
        credentials_of(connector.title, key)


def credentials_of(title: str, key: Mapping[str, Any] | Secret) -> Any:
    """Return the credentials of a key, None for an emulator.

    Raises:
        InvalidValue: it is no key of a service account.
        Transient: there is no such secret.
    """
    if os.environ.get(EMULATOR):
        return None
    from google.oauth2.service_account import Credentials

    try:
        plain = json.loads(resolved(key)) if isinstance(key, Secret) else key
        return Credentials.from_service_account_info(plain)
    except (ValueError, TypeError, AttributeError) as error:
        # the text of the error may have parts of the key
        raise InvalidValue(f"{title}: service_account_key cannot be used: {type(error).__name__}", hint=_KEY) from None


@dataclass(frozen=True)
class PubSubClient:
    """The requests of one source.

    Args:
        connector: the topic.
        subscription: the name of the subscription.
    """

    connector: PubSubConnector
    subscription: str

    @property
    def title(self) -> str:
        """The description of the source, for messages."""
        return self.connector.title

    @property
    def topic_path(self) -> str:
        """The full name of the topic."""
        return f"projects/{self.connector.project.project_id}/topics/{self.connector.topic_id}"

    @property
    def path(self) -> str:
        """The full name of the subscription."""
        return f"projects/{self.connector.project.project_id}/subscriptions/{self.subscription}"

    @property
    def command(self) -> str:
        """The command that creates the subscription."""
        return (
            f"gcloud pubsub subscriptions create {self.subscription} --project={self.connector.project.project_id} "
            f"--topic={self.connector.topic_id} --expiration-period=never --enable-message-ordering"
        )

    @cached_property
    def subscriber(self) -> Any:
        """The vendor's client."""
        from google.cloud import pubsub_v1

        key = self.connector.project.service_account_key
        return pubsub_v1.SubscriberClient(credentials=credentials_of(self.title, key))

    @cached_property
    def publisher(self) -> Any:
        """The vendor's client of topics."""
        from google.cloud import pubsub_v1

        key = self.connector.project.service_account_key
        return pubsub_v1.PublisherClient(credentials=credentials_of(self.title, key))

    def topic_retention(self) -> float:
        """Return for how many seconds the topic retains messages, 0 if it does not.

        Raises:
            InvalidValue: there is no such topic, or it may not be read.
        """
        from google.api_core.exceptions import NotFound

        with self.translated("the topic"):
            try:
                found = self.publisher.get_topic(topic=self.topic_path, timeout=TIMEOUT, retry=None)
            except NotFound:
                raise InvalidValue(
                    f"{self.title}: there is no such topic in project '{self.connector.project.project_id}'",
                    hint=f"gcloud pubsub topics create {self.connector.topic_id}",
                ) from None
        return float(found.message_retention_duration.total_seconds()) if found.message_retention_duration else 0.0

    def check_attach(self) -> None:
        """Refuse a topic to which the service account may not attach a subscription."""
        request = {"resource": self.topic_path, "permissions": [ATTACH]}
        with self.translated("the topic"):
            found = self.publisher.test_iam_permissions(request=request, timeout=TIMEOUT, retry=None)
        if ATTACH not in found.permissions:
            raise InvalidValue(f"{self.title}: the service account lacks {ATTACH}", hint=SUBSCRIBER)

    def described(self) -> SubscriptionSettings | None:
        """Return the settings of the subscription; None if the service account may not see them.

        Raises:
            NoSubscription: there is none.
        """
        from google.api_core.exceptions import NotFound, PermissionDenied

        with self.translated("the subscription"):
            try:
                found = self.subscriber.get_subscription(subscription=self.path, timeout=TIMEOUT, retry=None)
            except NotFound:
                raise NoSubscription from None
            except PermissionDenied:
                return None
        delivery = {
            "an endpoint": found.push_config.push_endpoint,
            "BigQuery": found.bigquery_config.table,
            "Cloud Storage": found.cloud_storage_config.bucket,
        }
        retention = found.message_retention_duration
        return SubscriptionSettings(
            topic=found.topic,
            retention=retention.total_seconds() if retention else RETENTION,
            delivery=next((name for name, value in delivery.items() if value), ""),
            is_detached=found.detached,
        )

    def create(self) -> None:
        """Create the subscription, unless another process did."""
        from google.api_core.exceptions import AlreadyExists
        from google.protobuf.duration_pb2 import Duration

        request = {
            "name": self.path,
            "topic": self.topic_path,
            "ack_deadline_seconds": 60,
            "message_retention_duration": Duration(seconds=RETENTION),
            "enable_message_ordering": True,
            "expiration_policy": {},
        }
        with self.translated("subscriptions of the project", self.command):
            try:
                self.subscriber.create_subscription(request=request, timeout=TIMEOUT, retry=None)
            except AlreadyExists:
                return

    def delete(self) -> None:
        """Delete the subscription, if there is one."""
        from google.api_core.exceptions import NotFound

        with self.translated("the subscription"):
            try:
                self.subscriber.delete_subscription(subscription=self.path, timeout=TIMEOUT, retry=None)
            except NotFound:
                return

    def seek(self, instant: float) -> None:
        """Have the messages since an instant that the topic retains delivered.

        Args:
            instant: in seconds since the epoch.
        """
        request = {"subscription": self.path, "time": datetime.fromtimestamp(instant, UTC)}
        with self.translated("the subscription"):
            self.subscriber.seek(request=request, timeout=TIMEOUT, retry=None)

    def acknowledge(self, ids: Sequence[str]) -> None:
        """Acknowledge messages: they are not delivered again, as a rule."""
        with self.translated("the subscription"):
            for first in range(0, len(ids), IDS):
                chunk = list(ids[first : first + IDS])
                self.subscriber.acknowledge(subscription=self.path, ack_ids=chunk, timeout=TIMEOUT, retry=None)

    def extend(self, ids: Sequence[str], seconds: int) -> None:
        """Have messages delivered again after some seconds, unless they are acknowledged before."""
        with self.translated("the subscription"):
            for first in range(0, len(ids), IDS):
                request = {
                    "subscription": self.path,
                    "ack_ids": list(ids[first : first + IDS]),
                    "ack_deadline_seconds": seconds,
                }
                self.subscriber.modify_ack_deadline(request=request, timeout=TIMEOUT, retry=None)

    def close(self) -> None:
        """Close the connections."""
        for name in ("subscriber", "publisher"):
            if name in self.__dict__:
                self.__dict__.pop(name).transport.close()

    @contextmanager
    def translated(self, subject: str, command: str = "") -> Iterator[None]:
        """Turn errors of Google's libraries into umbel's."""
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except (GoogleAPIError, GoogleAuthError) as error:
            raise self.error_of(error, subject, command) from None

    def error_of(self, error: Exception, subject: str, command: str = "") -> UmbelError:
        """Return umbel's error for one of Google's libraries.

        Args:
            error: the error.
            subject: the object of the request.
            command: that somebody else may run instead.
        """
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError

        text = str(getattr(error, "message", "") or error)[:300]
        if isinstance(error, exceptions.NotFound):
            return InvalidValue(f"{self.title}: {subject} is not there: {text}", hint="create the topic again")
        if isinstance(error, exceptions.PermissionDenied):
            hint = f"{SUBSCRIBER}, and roles/pubsub.editor on the project; or run: {command}" if command else SUBSCRIBER
            return InvalidValue(f"{self.title}: {subject} may not be used: {text}", hint=hint)
        is_lasting = isinstance(error, GoogleAuthError) and not getattr(error, "retryable", False)
        if is_lasting or isinstance(error, exceptions.Unauthenticated):
            return InvalidValue(f"{self.title}: the login was refused: {type(error).__name__}", hint=_KEY)
        return Transient(
            f"{self.title}: Pub/Sub does not answer: {type(error).__name__}: {text}",
            hint="see that it can be reached from the worker",
        )
