"""The page for those who come from Fennel names what a server does not read and does not write to."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.connectors import (
    HTTP,
    S3,
    BigQuery,
    Kafka,
    Kinesis,
    Mongo,
    MySQL,
    Postgres,
    PubSub,
    Redshift,
    Snowflake,
    Webhook,
)
from umbel.errors import NotSupported

PAGE = (Path(__file__).parents[2] / "docs/coming-from/fennel.md").read_text().partition("does not do yet")[2]
DATABASE = {"name": "a", "db_name": "d", "username": "u", "password": "p"}
KEY = {"type": "service_account"}
CONNECTORS = {
    "webhooks": Webhook(name="a").endpoint("e"),
    "S3": S3(name="a").bucket("b", prefix="p", format="delta"),
    "Kafka": Kafka(name="a", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN").topic("t"),
    "Postgres": Postgres(host="h", **DATABASE).table("t", cursor="c"),
    "MySQL": MySQL(host="h", **DATABASE).table("t", cursor="c"),
    "Kinesis": Kinesis(name="a", role_arn="r").stream("s", init_position="latest", format="json"),
    "PubSub": PubSub(name="a", project_id="p", service_account_key=KEY).topic("t", format="json"),
    "Snowflake": Snowflake(account="a", warehouse="w", schema="s", role="r", **DATABASE).table("t", cursor="c"),
    "BigQuery": BigQuery(name="a", project_id="p", dataset_id="d", service_account_key=KEY).table("t", cursor="c"),
    "Redshift": Redshift(host="h", schema="s", **DATABASE).table("t", cursor="c"),
    "Mongo": Mongo(host="h", **DATABASE).collection("c", cursor="c"),
    "HTTP": HTTP(name="a", host="https://h", healthz="/h").path("p"),
}
READ, NOT_READ = PAGE.partition("It reads")[2].partition("can be declared")[0].rsplit(". ", 1)
WRITTEN = PAGE.partition("[writes]")[2].partition(". ")[0]


def has_reader(connector: object) -> bool:
    """Return whether a class of a connector has a reading side."""
    own = (each for each in type(connector).__mro__ if each.__module__ != "umbel.definitions.arguments")
    return any({"reader", "reader_of"} & vars(each).keys() for each in own)


@pytest.mark.parametrize("name", [name for name in CONNECTORS if name != "HTTP"])
def test_what_is_read(name: str) -> None:
    is_read = has_reader(CONNECTORS[name])
    assert (name in READ, name in NOT_READ) == (is_read, not is_read)


@pytest.mark.parametrize("name", CONNECTORS)
def test_what_is_written(name: str) -> None:
    try:
        CONNECTORS[name].check_writer()
    except NotSupported:
        assert name not in WRITTEN
    else:
        assert name in WRITTEN
