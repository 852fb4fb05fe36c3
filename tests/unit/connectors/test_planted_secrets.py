"""Every credential that a source can have is planted as a text, and must not be in what is printed of it."""

from __future__ import annotations

import dataclasses
import traceback
import types
import typing
from typing import Any

import pytest

from umbel import connectors
from umbel.connectors import Avro
from umbel.definitions.arguments import DataSource
from umbel.definitions.credentials import _without
from umbel.definitions.secret import Secret
from umbel.errors import UmbelError

PLANTED = "pl4nted-s3cret"
PUBLIC = {"username", "sasl_plain_username", "aws_access_key_id", "host", "cert", "ca_cert", "s3_access_role_arn"}
"""Credentials that name someone or something, or are certificates; they may be printed."""

ADDITIONAL = {
    "Avro": {"registry": "confluent", "username": "u"},
    "Protobuf": {"registry": "confluent", "username": "u"},
    "Redshift": {"username": "u"},
}
"""Arguments that go with the others."""
ALONE = {"Protobuf": {"token"}}
"""Secrets that exclude others."""


def carriers() -> list[type[Any]]:
    """Return the classes of `umbel.connectors` that have a credential among their fields."""
    found = []
    for name in dir(connectors):
        kind = getattr(connectors, name)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and secrets(kind):
            found.append(kind)
    return found


def secrets(kind: type[Any]) -> list[str]:
    """Return the fields of a class that hold a secret."""
    hints = typing.get_type_hints(kind)
    return [
        each.name
        for each in dataclasses.fields(kind)
        if each.init and has_secret(hints[each.name]) and each.name not in PUBLIC
    ]


def has_secret(hint: Any) -> bool:
    return hint is Secret or any(has_secret(each) for each in typing.get_args(hint))


def planted(kind: type[Any]) -> Any:
    """Return an object with the text at every secret, and plausible values elsewhere."""
    hints, values = typing.get_type_hints(kind), dict[str, Any]()
    for each in dataclasses.fields(kind):
        if not each.init:
            continue
        hint = hints[each.name]
        if each.name in secrets(kind) and each.name not in ALONE.get(kind.__name__, set()):
            is_mapping = "Mapping" in str(hint) or "dict" in str(hint)
            values[each.name] = {"token": PLANTED} if is_mapping else PLANTED
        elif each.name in ADDITIONAL.get(kind.__name__, {}):
            values[each.name] = ADDITIONAL[kind.__name__][each.name]
        elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            values[each.name] = plausible(hint)
    return kind(**values)


def plausible(hint: Any) -> Any:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[-1]
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return plausible(typing.get_args(hint)[0])
    return 1 if hint is int else "x"


def test_all_carriers_are_found() -> None:
    names = {kind.__name__ for kind in carriers()}
    assert {
        "Kafka",
        "Postgres",
        "MySQL",
        "Snowflake",
        "BigQuery",
        "Redshift",
        "Mongo",
        "S3",
        "GCS",
        "Avro",
        "Protobuf",
    } <= names, names


@pytest.mark.parametrize("kind", carriers(), ids=lambda kind: kind.__name__)
def test_a_secret_is_in_no_text_of_its_object(kind: type[Any]) -> None:
    made = planted(kind)
    assert PLANTED in str([getattr(made, name) for name in secrets(kind)])
    assert PLANTED not in repr(made)
    assert PLANTED not in f"{made} {[made]} {getattr(made, 'title', '')}"
    try:
        raise ValueError(made)
    except ValueError as error:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert PLANTED not in "".join(shown.format()).replace(f"PLANTED = '{PLANTED}'", "")


def test_a_source_of_a_secret_format_has_no_secret_in_its_text() -> None:
    cluster: DataSource = connectors.Kafka(
        name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN"
    )
    topic = cluster.topic("t", Avro(registry="confluent", url="http://r", username="u", password=PLANTED))  # type: ignore[attr-defined]
    assert PLANTED not in repr(topic)


@pytest.mark.parametrize("kind", carriers(), ids=lambda kind: kind.__name__)
def test_a_secret_of_a_wrong_type_is_not_in_the_error(kind: type[Any]) -> None:
    made = planted(kind)
    values = {each.name: getattr(made, each.name) for each in dataclasses.fields(kind) if each.init}
    for name in secrets(kind):
        for wrong in ([PLANTED], (PLANTED,)):
            with pytest.raises(UmbelError) as caught:
                kind(**{**values, name: wrong})
            assert PLANTED not in caught.value.described(), name
            assert name in caught.value.described()


def test_a_header_of_a_request_may_be_a_secret() -> None:
    target = connectors.HTTP(name="h", host="https://x", healthz="/").path("in", headers={"Authorization": PLANTED})
    assert PLANTED not in repr(target)


@pytest.mark.parametrize("kind", carriers(), ids=lambda kind: kind.__name__)
def test_a_reader_sees_no_secret_of_an_object(kind: type[Any]) -> None:
    shown = _without(planted(kind))
    values = {name: getattr(shown, name) for name in secrets(kind)}
    assert PLANTED not in str(values)
    assert "***" in str(values)
