"""A real broker with TLS and SCRAM: who is let in, and what is said to those who are not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed
from tests.connectors.test_kafka_commit import events, refusal
from tests.servers.certificates import Authority
from tests.servers.kafka import EXPIRED, OTHER_HOST, PASSWORD, RIGHT, USER, Broker
from tests.unit.connectors.reading import read
from umbel.connectors import Kafka
from umbel.connectors.kafka import fetching
from umbel.connectors.kafka.examining import examine
from umbel.errors import InvalidValue, Transient, UmbelError
from umbel.types.dtypes import Int

TOPIC = "encrypted"


@pytest.fixture(scope="module")
def encrypted(broker: Broker) -> Iterator[Broker]:
    """Return the broker, with a topic that the user may read."""
    broker.create(TOPIC)
    broker.grant("TOPIC", TOPIC, "DESCRIBE", "READ")
    broker.produce(TOPIC, [b'{"n": 1}', b'{"n": 2}'])
    yield broker
    fetching.FETCHERS.close()


def login(broker: Broker, **options: Any) -> dict[str, Any]:
    right = {
        "bootstrap_servers": broker.encrypted_address(RIGHT),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "options": {"ssl.ca.location": str(broker.authority)},
    }
    return {**right, **options}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_rows_are_read(encrypted: Broker, mechanism: str) -> None:
    cluster = Kafka(name="k", **login(encrypted, sasl_mechanism=mechanism))
    reader = cluster.topic(TOPIC).reader(Path())
    reader.examine()
    assert [values[0] for values in read(reader, {"n": Int()}).values()] == [1, 2]


def test_an_authority_in_the_options_and_no_look_at_the_host(encrypted: Broker, tmp_path: Path) -> None:
    pem = {"ssl.ca.pem": encrypted.authority.read_text()}
    with deployed(tmp_path) as made:
        made.commit([events(TOPIC, **login(encrypted, options=pem))])
    anywhere = {**pem, "ssl.endpoint.identification.algorithm": "none"}
    other = encrypted.encrypted_address(OTHER_HOST)
    examine(Kafka(name="k", **login(encrypted, bootstrap_servers=other, options=anywhere)).topic(TOPIC))


def refusals(broker: Broker, stranger: Path) -> dict[str, tuple[dict[str, Any], type[UmbelError], list[str]]]:
    """Return logins, and the kinds and parts of their errors."""
    return {**of_certificates(broker, stranger), **of_logins(broker)}


def of_certificates(broker: Broker, stranger: Path) -> dict[str, tuple[dict[str, Any], type[UmbelError], list[str]]]:
    authority, listener = "ssl.ca.location", broker.encrypted_address
    return {
        "no authority": ({"options": None}, InvalidValue, ["unable to get local issuer", f'options={{"{authority}"']),
        "another authority": (
            {"options": {authority: str(stranger)}},
            InvalidValue,
            ["unable to get local issuer", f"{stranger} is of another authority"],
        ),
        "no file": (
            {"options": {authority: "/nowhere.pem"}},
            InvalidValue,
            ["ssl.ca.location", "correct the options="],
        ),
        "expired": (
            {"bootstrap_servers": listener(EXPIRED)},
            InvalidValue,
            ["certificate has expired", "renew the certificate"],
        ),
        "another host": (
            {"bootstrap_servers": listener(OTHER_HOST)},
            InvalidValue,
            ["not valid for '127.0.0.1'", "give bootstrap_servers= a name that is in the certificate"],
        ),
    }


def of_logins(broker: Broker) -> dict[str, tuple[dict[str, Any], type[UmbelError], list[str]]]:
    return {
        "another mechanism": (
            {"sasl_mechanism": "PLAIN"},
            InvalidValue,
            ["supported mechanisms: SCRAM-SHA-", "sasl_mechanism= that the broker has enabled"],
        ),
        "a wrong password": (
            {"sasl_plain_password": "wr0ng"},
            InvalidValue,
            ["invalid credentials", "correct sasl_mechanism=, sasl_plain_username= and sasl_plain_password="],
        ),
        "a user without a password": ({"sasl_plain_username": "nobody"}, InvalidValue, ["invalid credentials"]),
        "no encryption": (
            {"security_protocol": "SASL_PLAINTEXT"},
            InvalidValue,
            ["is encrypted", 'security_protocol="SASL_SSL"'],
        ),
        "encryption of a listener without": (
            {"bootstrap_servers": broker.sasl_address},
            Transient,
            ["connecting to a PLAINTEXT broker listener?", "check", "security_protocol="],
        ),
        "a login where there is none": (
            {"bootstrap_servers": broker.address, "security_protocol": "SASL_PLAINTEXT"},
            InvalidValue,
            ["handshake failed", "the listener has no logins", 'security_protocol="PLAINTEXT"'],
        ),
    }


def test_each_refusal_says_what_to_correct(encrypted: Broker, tmp_path: Path) -> None:
    """They are requested at once: each takes the seconds for which a client tries again."""
    cases = refusals(encrypted, Authority("stranger").write(tmp_path / "stranger.pem"))

    def said(case: str) -> UmbelError:
        with pytest.raises(UmbelError) as caught:
            examine(Kafka(name="k", **login(encrypted, **cases[case][0])).topic(TOPIC))
        return caught.value

    with ThreadPoolExecutor(len(cases)) as threads:
        found = dict(zip(cases, threads.map(said, cases), strict=True))
    for case, (_, kind, parts) in cases.items():
        text = found[case].described()
        assert type(found[case]) is kind, (case, text)
        assert [part for part in parts if part not in text] == [], (case, text)
        assert not any(secret in text for secret in (PASSWORD, "wr0ng")), case


def test_a_commit_with_another_authority_leaves_nothing(encrypted: Broker, tmp_path: Path) -> None:
    stranger = Authority("stranger").write(tmp_path / "stranger.pem")
    read = events(TOPIC, **login(encrypted, options={"ssl.ca.location": str(stranger)}))
    text = refusal(tmp_path, read).described()
    assert f"topic '{TOPIC}'" in text
    assert "of another authority" in text
