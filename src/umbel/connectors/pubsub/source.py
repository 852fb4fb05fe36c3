"""A topic of Pub/Sub as a source: messages are staged, and then acknowledged.

Pub/Sub delivers a message at least once, and again when its acknowledgement was late, or was lost. So the ids of messages are
stored with them, and a message whose id is known is acknowledged and left out.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller
from umbel.connectors.pubsub.client import DELETED_TOPIC, NoSubscription, PubSubClient, SubscriptionSettings
from umbel.connectors.pubsub.seen import SEEN, SeenIds, undamaged
from umbel.connectors.pubsub.stream import MessageStream, PulledMessage
from umbel.connectors.staged_messages import COUNTS, PLACE, REPORT, StagedMessage, StagedMessages, staged_frame
from umbel.connectors.staged_source import IDENTITY
from umbel.definitions.arguments import ReadOptions
from umbel.errors import InvalidValue, UmbelError
from umbel.log.environments import HARM, erase_environment
from umbel.state import disk

if TYPE_CHECKING:
    from umbel.connectors.pubsub import PubSubConnector

log = logging.getLogger("umbel.work")

PART_BYTES = 16 << 20
"""Bytes of messages that are taken for one part."""
QUIET = 1.0
"""Seconds without a message after which a source is up to date."""
CURRENT = 10.0
"""Seconds since a message was published within which a source is up to date, too."""
NOTED_FOR, CHECKED_FOR = 10.0, 60.0
"""Seconds after which it is noted that messages are pulled, and after which the subscription is looked at again."""
MARGIN = 600.0
"""Seconds before the last note from which on the topic's messages are read again after its subscription was deleted."""
DUPLICATES = "duplicate_messages"
"""The name of a count."""
PREFIX = "message "
DAMAGED = "the ids of messages were lost or damaged; messages that are delivered again may be doubled"


@dataclass
class _Session:
    """The open connections and tables of the thread that reads.

    Args:
        client: of the subscription.
        seen: the ids of messages.
        stream: of messages.
        noted_at: when it was noted that messages are pulled, monotonic.
        checked_at: when the subscription was looked at, monotonic.
        stepped_at: when messages were last taken, monotonic.
        duplicates: messages left out since the last part.
    """

    client: PubSubClient
    seen: SeenIds
    stream: MessageStream
    noted_at: float = field(default_factory=time.monotonic)
    checked_at: float = field(default_factory=time.monotonic)
    stepped_at: float = field(default_factory=time.monotonic)
    elapsed: float = 0.0
    duplicates: int = 0

    def close(self) -> None:
        """Close all."""
        self.stream.close()
        self.seen.close()
        self.client.close()


@dataclass(frozen=True)
class PubSubSource(StagedMessages):
    """The reading side of a `PubSubConnector`.

    Args:
        connector: the topic.
        options: of the source.
    """

    connector: PubSubConnector
    options: ReadOptions

    @property
    def title(self) -> str:
        return self.connector.title

    @property
    def subscription(self) -> str:
        """The name of the subscription, the same for a deployment and source at any time."""
        return self._state().get("subscription") or self._named()

    def _state(self) -> dict[str, Any]:
        """Return the state of the reader, empty if it is of another topic."""
        found = self.stage.state()
        return found if found.get("topic") == self._topic else {}

    @property
    def _topic(self) -> str:
        return PubSubClient(self.connector, "").topic_path

    def _named(self) -> str:
        path = self.options.directory / "subscriber"
        if not path.exists():
            disk.replace(path, secrets.token_hex(8).encode())
        digest = blake2b(path.read_bytes() + f"{self.options.key} {self._topic}".encode(), digest_size=8).hexdigest()
        readable = "".join(each if each.isascii() and each.isalnum() else "-" for each in self.options.dataset)
        return f"umbel-{readable[:100].lower()}-{digest}"

    @cached_property
    def _open(self) -> list[_Session]:
        return []

    def examine(self) -> None:
        """Check at commit that the topic can be subscribed to; create nothing."""
        client = PubSubClient(self.connector, self.subscription)
        try:
            self._check(client.described())
        except NoSubscription:
            client.topic_retention()
            client.check_attach()
        finally:
            client.close()

    def retire(self) -> None:
        """Delete the subscription: Pub/Sub would retain messages for it."""
        state = self.stage.state()
        if not state.get("is_created") or state.get("is_retired"):
            return
        client = PubSubClient(self.connector, state["subscription"])
        try:
            client.delete()
        finally:
            client.close()
        self.stage.save({"topic": self._topic, "subscription": state["subscription"], "is_retired": True})
        log.info("%s: subscription %s was deleted: no commit has the source any more", self.title, client.subscription)

    def take_over(self) -> None:
        self.release()
        super().take_over()

    def release(self) -> None:
        """Close what is open; messages that were not staged are delivered again."""
        while self._open:
            self._open.pop().close()

    def read_on(self, poller: Poller) -> float:
        try:
            self._step(poller)
        except NoSubscription:
            self.release()  # it is created again at the next attempt
            self._check_sight()
            return QUIET
        except BaseException:
            self.release()
            raise
        return 0.0

    def _check_sight(self) -> None:
        """Refuse a missing subscription that the service account may not see."""
        client = PubSubClient(self.connector, self.subscription)
        try:
            if client.described() is None:
                raise InvalidValue(
                    f"{self.title}: subscription {client.subscription} is missing, and may not be created",
                    hint=f"as an administrator: {client.command}",
                )
        except NoSubscription:
            return
        finally:
            client.close()

    def _step(self, poller: Poller) -> None:
        """Stage the messages that have come, and acknowledge them."""
        if not self._open:
            self._open.append(self._opened())
        (session,) = self._open
        if not self._wait_for_room(poller, session.stream):
            return
        messages = session.stream.take(PART_BYTES, QUIET)
        now = time.monotonic()
        session.elapsed, session.stepped_at = session.elapsed + now - session.stepped_at, now
        if messages:
            self._stage(session, messages)
            session.client.acknowledge([each.ack_id for each in messages])
        oldest = min((each.published for each in messages), default=None)
        poller.progressed(SourceLag(seconds=0.0 if oldest is None else max(0.0, time.time() - oldest)))
        self._note(session, is_current=oldest is None or time.time() - oldest < CURRENT)
        self.stage.expire(min(poller.consumed, session.seen.part) + 1)

    def _wait_for_room(self, poller: Poller, stream: MessageStream) -> bool:
        """Wait while much is staged, and extend the deadlines of waiting messages."""
        while not self.has_room_now(poller):
            if poller.is_stopping:
                return False
            stream.extend()
            time.sleep(0.1)
        return True

    def _stage(self, session: _Session, messages: Sequence[PulledMessage]) -> None:
        """Stage messages that were not delivered before."""
        by_id = {each.id: each for each in messages}
        with undamaged(self.folder / SEEN, self.title):
            known = session.seen.known(by_id)
        new = [each for each in by_id.values() if each.id not in known]
        session.duplicates += len(messages) - len(new)
        number = session.seen.part
        if new:
            counts = {COUNTS: {DUPLICATES: session.duplicates}} if session.duplicates else {}
            facts = {"topic": self._topic, **counts}
            frame = staged_frame([StagedMessage(each.data, PREFIX + each.id) for each in new])
            number, session.duplicates = self.stage.append(frame, facts).number, 0
        with undamaged(self.folder / SEEN, self.title):
            session.seen.add(by_id, number, session.elapsed)
        session.elapsed = 0.0

    def _note(self, session: _Session, *, is_current: bool) -> None:
        """Note at times that messages are pulled, and check the subscription."""
        now, state = time.monotonic(), self.stage.state()
        is_loaded = state.get("loaded", False) or is_current
        if now > session.noted_at + NOTED_FOR or is_loaded != state.get("loaded", False):
            session.noted_at = now
            self.stage.save({**state, "pulled_at": time.time(), "loaded": is_loaded})
        if now > session.checked_at + CHECKED_FOR:
            session.checked_at = now
            if self._is_orphaned(session.client.described()):
                raise NoSubscription

    # ---- the subscription ------------------------------------------------------------------------------------------

    def _opened(self) -> _Session:
        client = PubSubClient(self.connector, self.subscription)
        try:
            self._subscribe(client)
            seen = self._seen()
            try:
                return _Session(client, seen, MessageStream(client))
            except BaseException:
                seen.close()
                raise
        except BaseException:
            client.close()
            raise

    def _subscribe(self, client: PubSubClient) -> None:
        """See that there is a subscription of the topic, created if need be."""
        state = self._state()
        if not state:
            self._forget()
        try:
            settings = client.described()
        except NoSubscription:
            settings, reason = None, f"subscription {client.subscription} was deleted"
        else:
            reason = "the topic was deleted, or its subscription detached" if self._is_orphaned(settings) else ""
        if not reason:
            self._check(settings)
            self._check_pause(settings, state)
        else:
            self._create(client, state, reason, is_orphaned=settings is not None)
        is_new = (
            settings is not None and not reason and state.get("is_new", False)
        )  # the worker died between creating it and noting that
        if is_new:
            self._replay(client, 0.0)
        if reason or is_new or not state.get("is_created"):
            note = {"topic": self._topic, "subscription": client.subscription, "is_created": True}
            self.stage.save(
                {
                    **note,
                    "pulled_at": time.time(),
                    "loaded": state.get("loaded", False),
                    "has_ids": state.get("has_ids", False),
                }
            )

    def _forget(self) -> None:
        """Delete what belongs to the topic that the source had before."""
        erase_environment(self.folder / SEEN)
        before = self.stage.state()
        if "topic" in before and before.get("is_created"):
            project, _, topic = before["topic"].removeprefix("projects/").partition("/topics/")
            source = replace(self.connector.project, project_id=project)
            client = PubSubClient(replace(self.connector, source=source, topic_id=topic), before["subscription"])
            try:
                client.delete()
            except UmbelError as error:
                log.warning("%s: subscription %s stays: %s", self.title, client.path, error.message)
            finally:
                client.close()

    def _create(self, client: PubSubClient, state: dict[str, Any], reason: str, *, is_orphaned: bool) -> None:
        retention, is_known = client.topic_retention(), state.get("is_created", False)
        if is_known:
            self._report(f"{reason}; messages that were published since {_instant(state['pulled_at'])} may be lost")
        else:
            note = {"topic": self._topic, "subscription": client.subscription, "is_new": True}
            self.stage.save({**state, **note})
        if is_orphaned:
            client.delete()
        client.create()
        if retention:
            self._replay(client, state["pulled_at"] - MARGIN if is_known else 0.0, retention)

    def _replay(self, client: PubSubClient, since: float, retention: float | None = None) -> None:
        """Have messages delivered that the topic retains from before its subscription."""
        known = client.topic_retention() if retention is None else retention
        if known:
            client.seek(max(since, time.time() - known))

    def _check(self, settings: SubscriptionSettings | None) -> None:
        """Refuse a subscription that cannot be read."""
        if settings is None or self._is_orphaned(settings):
            return
        name = self.subscription
        if settings.topic != self._topic:
            raise InvalidValue(
                f"{self.title}: subscription {name} is one of {settings.topic}",
                hint="delete it; umbel creates it again",
            )
        if settings.delivery:
            raise InvalidValue(
                f"{self.title}: messages of subscription {name} go to {settings.delivery}",
                hint="delete it; umbel creates one whose messages are pulled",
            )

    def _is_orphaned(self, settings: SubscriptionSettings | None) -> bool:
        return settings is not None and (settings.is_detached or settings.topic == DELETED_TOPIC)

    def _check_pause(self, settings: SubscriptionSettings | None, state: dict[str, Any]) -> None:
        """Report messages that the subscription may have dropped while nobody pulled them."""
        pulled_at = state.get("pulled_at")
        if settings is not None and pulled_at is not None and time.time() - pulled_at > settings.retention:
            self._report(
                f"no message was pulled since {_instant(pulled_at)}: older ones than the subscription retains "
                f"({settings.retention / 3600:g} h) are lost"
            )
            self.stage.save({**state, "pulled_at": time.time()})

    # ---- the ids of messages ---------------------------------------------------------------------------------------

    def _seen(self) -> SeenIds:
        """Return the ids of messages, those of the last parts included."""
        try:
            return self._caught_up()
        except HARM:
            erase_environment(self.folder / SEEN)
            return self._caught_up()

    def _caught_up(self) -> SeenIds:
        seen, state = SeenIds(self.folder / SEEN), self.stage.state()
        try:
            if seen.is_new:
                seen.add((), 0, 0.0)
                if state.get("has_ids"):
                    self._report(DAMAGED)
            self._catch_up(seen)
            if not state.get("has_ids"):
                self.stage.save({**state, "has_ids": True})
        except BaseException:
            seen.close()
            raise
        return seen

    def _catch_up(self, seen: SeenIds) -> None:
        """Add the ids of parts that were written after the ids were."""
        for number in [each for each in self.stage.numbers() if each > seen.part]:
            if self.stage.part(number).facts.get("topic") == self._topic:
                places = self.stage.read(number, [PLACE])[PLACE].drop_nulls()
                seen.add([each.removeprefix(PREFIX) for each in places], number, 0.0)

    def _report(self, reason: str) -> None:
        """Stage a report of messages that may be lost or doubled."""
        text = f"{self.title}: {reason}"
        last = self.stage.last()
        if last is None or last.facts.get(REPORT) != text:
            self.stage.append(pl.DataFrame({IDENTITY: [0]}), {REPORT: text})


def _instant(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
