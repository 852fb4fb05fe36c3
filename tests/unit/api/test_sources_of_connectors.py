"""Which cdc and which references the connector of a source allows (api §3.2)."""

from datetime import datetime, timezone

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.api.commit import check_commit
from umbel.api.incoming import Ref
from umbel.connectors import (
    HTTP,
    S3,
    BigQuery,
    Certificate,
    Kafka,
    Kinesis,
    Mongo,
    MySQL,
    Postgres,
    PubSub,
    Redshift,
    Snowflake,
    Webhook,
    ref,
    source,
)
from umbel.datasets import dataset, field
from umbel.lib import meta
from umbel.testing import mock

__owner__ = "team@example.com"

T = datetime(2024, 1, 1, tzinfo=timezone.utc)

LOGIN = {"username": "u", "password": "p"}

SASL = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN"}

SOURCES = {
    Webhook: {},
    Kafka: {"bootstrap_servers": "b", **SASL},
    Kinesis: {"role_arn": "r"},
    S3: {},
    Postgres: {"host": "h", "db_name": "d", **LOGIN},
    MySQL: {"host": "h", "db_name": "d", **LOGIN},
    Snowflake: {"account": "a", "db_name": "d", "warehouse": "w", "schema": "s", "role": "r", **LOGIN},
    BigQuery: {"project_id": "p", "dataset_id": "d", "service_account_key": {}},
    Redshift: {"db_name": "d", "host": "h", "schema": "s", "s3_access_role_arn": "r"},
    Mongo: {"host": "h", "db_name": "d", **LOGIN},
    PubSub: {"project_id": "p", "service_account_key": {}},
    HTTP: {"host": "h", "healthz": "/h", "ca_cert": Certificate("pem")},
}

CONNECTORS = {
    "webhook": Webhook(name="w").endpoint("E"),
    "kafka": Kafka(name="k", bootstrap_servers="b", **SASL).topic("t"),
    "kinesis": Kinesis(name="k", role_arn="r").stream("a", "latest", "json"),
    "table": Postgres(name="p", **SOURCES[Postgres]).table("t", "c"),
    "mongo": Mongo(name="p", **SOURCES[Mongo]).collection("t", "c"),
    "pubsub": PubSub(name="p", **SOURCES[PubSub]).topic("t", "json"),
    "csv": S3(name="s").bucket("b", prefix="p"),
    "parquet": S3(name="s").bucket("b", prefix="p", format="parquet"),
    "hudi": S3(name="s").bucket("b", prefix="p", format="hudi"),
    "delta": S3(name="s").bucket("b", prefix="p", format="delta"),
}


@pytest.mark.parametrize("name", CONNECTORS)
@pytest.mark.parametrize("keyed", [True, False])
def test_native_goes_with_every_connector(name: str, keyed: bool) -> None:
    @source(CONNECTORS[name], disorder="1d", cdc="native")
    @dataset
    class D:
        k: int = field(key=keyed)
        t: datetime

    assert check_commit([D], []).datasets["D"].sources[0].cdc == "native"


@pytest.mark.parametrize("cdc", ["append", "upsert", "debezium"])
def test_delta_needs_native(cdc: str) -> None:
    with refusal(ValueError, "native", cdc):
        source(CONNECTORS["delta"], disorder="1d", cdc=cdc)


@mock
def test_native_rows_of_a_webhook_are_rows(client) -> None:
    @source(CONNECTORS["webhook"], disorder="1d", cdc="native")
    @dataset(index=True)
    class Keyed:
        k: int = field(key=True)
        v: int
        t: datetime

    @source(CONNECTORS["webhook"], disorder="1d", cdc="native")
    @dataset
    class Keyless:
        k: int
        v: int
        t: datetime

    client.commit(message="m", datasets=[Keyed, Keyless])
    client.log("w", "E", pd.DataFrame({"k": [1, 1], "v": [1, 2], "t": [T, T]}))
    assert client.get_dataset_df("Keyed")["v"].tolist() == [2]
    assert client.get_dataset_df("Keyless")["v"].tolist() == [1, 2]
    assert Keyed.lookup(pd.Series([T]), k=pd.Series([1]))[0]["v"].tolist() == [2]


@pytest.mark.parametrize("bad", ["", "a[", "a]", "a[b]c", "a[]", "[a]"])
def test_the_text_of_ref_is_checked_before_any_dataset_is_there(bad: str) -> None:
    with refusal(ValueError, "ref", at=False):
        ref(bad)
    with refusal(ValueError, "'x'"):
        source(CONNECTORS["webhook"], disorder="1d", cdc="append", preproc={"x": Ref(bad)})


NESTS = {"kafka", "kinesis", "pubsub"}


@pytest.mark.parametrize("name", CONNECTORS)
def test_nested_refs_are_checked_before_any_dataset_is_there(name: str) -> None:
    def made(path: str):
        return source(CONNECTORS[name], disorder="1d", cdc="native", preproc={"x": ref(path)})

    made("a")
    if name in NESTS:
        made("a[b][c]")
    else:
        with refusal(ValueError, "'x'", "a[b][c]", "nested"):
            made("a[b][c]")


def test_other_rules_of_preproc_stay_at_commit() -> None:
    @meta(owner="a@b.cd")
    @source(CONNECTORS["webhook"], disorder="1d", cdc="append", preproc={"nope": ref("a")})
    @dataset
    class D:
        k: int
        t: datetime

    with refusal(ValueError, "'D'", "nope"):
        check_commit([D], [])
