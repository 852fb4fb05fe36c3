"""Topics and subscriptions of Pub/Sub that cannot be read: what is refused, and with which remedy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed, until
from tests.connectors.test_pubsub import events, numbers, reasons, rows, stage_of, subscribed
from tests.servers.pubsub import PROJECT, FakePubSub, environment, running
from umbel.connectors import PubSub
from umbel.connectors.polling import stop_polling
from umbel.errors import InvalidValue, NotSupported, PackageError
from umbel.integrations.aws import Secret


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePubSub]:
    with running() as made:
        for name, value in environment(made).items():
            monkeypatch.setenv(name, value)
        made.create("events")
        yield made


def test_what_cannot_be_read_is_refused_at_commit(
    fake: FakePubSub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = r"there is no such topic(?s:.*)gcloud pubsub topics create nothing"
    with pytest.raises(InvalidValue, match=missing), deployed(tmp_path, events("nothing")):
        pass
    fake.denied = {"GetTopic"}
    with (
        pytest.raises(InvalidValue, match=r"may not be used(?s:.*)roles/pubsub.subscriber"),
        deployed(tmp_path, events()),
    ):
        pass
    fake.denied = {"attach", "CreateSubscription"}
    with pytest.raises(InvalidValue, match=r"lacks pubsub.topics.attachSubscription"), deployed(tmp_path, events()):
        pass
    fake.denied = set()
    assert fake.subscriptions == {}, "a commit creates nothing"
    with (
        pytest.raises(InvalidValue, match="no ARN of a secret in AWS"),
        deployed(tmp_path, events(key=Secret(arn="arn:x"))),
    ):
        pass
    with pytest.raises(NotSupported, match="registered elsewhere"):
        PubSub.get("shop").topic("events", "json").reader_of(None)  # type: ignore[arg-type]
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST")
    for key in ({"private_key": "secret-8731"}, {"type": "service_account", "private_key": "secret-8731"}):
        made = events(key=key)
        with pytest.raises(InvalidValue, match="service_account_key cannot be used") as error, deployed(tmp_path, made):
            pass
        assert "secret-8731" not in str(error.value) + repr(PubSub(name="a", project_id="p", service_account_key=key))
    monkeypatch.setitem(sys.modules, "google.cloud", None)
    with pytest.raises(PackageError, match=r"pip install 'umbel\[pubsub\]'"), deployed(tmp_path, events()):
        pass


def test_a_service_account_that_may_not_create_subscriptions(fake: FakePubSub, tmp_path: Path) -> None:
    """It is told the command, and reads once somebody has run it."""
    fake.denied = {"CreateSubscription"}
    with deployed(tmp_path, events()) as made:
        until(made, lambda: reasons(made))
        (reason,) = reasons(made)
        assert "may not be used" in reason
        name = reason.partition("gcloud pubsub subscriptions create ")[2].partition(" ")[0]
        fake.denied = {"CreateSubscription", "GetSubscription", "GetTopic", "DeleteSubscription"}
        until(made, lambda: any("is missing, and may not be created" in each for each in reasons(made)))
        _subscribe(fake, name)
        fake.publish("events", rows(0, 10))
        until(made, lambda: len(numbers(made)) == 10)


def _subscribe(fake: FakePubSub, name: str, **options: Any) -> None:
    from google.cloud.pubsub_v1.types import Subscription

    path, topic = f"projects/{PROJECT}/subscriptions/{name}", options.pop("topic", "events")
    made = Subscription(name=path, topic=f"projects/{PROJECT}/topics/{topic}", **options)
    fake.CreateSubscription(made, None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"push_config": {"push_endpoint": "https://x"}}, "go to an endpoint"),
        ({"bigquery_config": {"table": "p.d.t"}}, "go to BigQuery"),
        ({"topic": "others"}, "is one of projects/shop/topics/others"),
    ],
)
def test_a_subscription_that_cannot_be_pulled(
    fake: FakePubSub, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    fake.create("others")
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        (path,) = fake.subscriptions
        until(made, lambda: stage_of(tmp_path).state().get("is_created"))
        stop_polling(tmp_path)
        fake.subscriptions.clear()
        _subscribe(fake, path.rpartition("/")[2], **options)
        until(made, lambda: any(reason in each for each in reasons(made)))
