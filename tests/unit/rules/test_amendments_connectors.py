"""§3.1 and §3.2 amended: arguments of sources, positions, paths, `ref`, cdc."""

import warnings
from datetime import datetime, timezone

import pandas as pd
import pytest

from tests.unit.rules.refusals import refused
from umbel.api.commit import check_commit
from umbel.api.incoming import Ref
from umbel.connectors import (
    CSV,
    HTTP,
    S3,
    Avro,
    BigQuery,
    Certificate,
    Kafka,
    Kinesis,
    Mongo,
    MySQL,
    Postgres,
    PubSub,
    Redshift,
    S3Connector,
    Snowflake,
    Webhook,
    ref,
    sink,
    source,
)
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.integrations import Secret
from umbel.lib import inputs, meta
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


@pytest.mark.parametrize("kind", SOURCES, ids=lambda kind: kind.__name__)
def test_unknown_arguments_of_sources_are_warned_of(kind) -> None:
    known = {"name": "s", **SOURCES[kind]}
    with pytest.warns(
        UserWarning, match=rf"{kind.__name__} ignores .*'verify_cert'.*'nam'; did you mean 'name'"
    ) as report:
        made = kind(**known, verify_cert=False, nam="x")
    assert report[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made == kind(**known)
    with pytest.warns(UserWarning), refused(ValueError, "name: missing", at=False):
        kind(**SOURCES[kind], nam="x")
    with refused(ValueError, "name: expected str", at=False):
        kind(**{**known, "name": 3})


def test_formats_and_aggregates_refuse_them() -> None:
    with refused(ValueError, "delimeter", "did you mean 'delimiter'", at=False):
        CSV(delimeter=";")
    with refused(ValueError, "registery", at=False):
        Avro(registery="confluent", url="u")
    with pytest.raises(ValueError, match="windw"):
        Count(windw=Continuous("1d"))


def test_hosts_and_certificates_are_texts_or_secrets() -> None:
    secret = Secret(arn="arn:x", path=["a"])
    made = HTTP(name="h", host=secret["host"], healthz="/h", ca_cert=Certificate(cert=secret))
    assert (made.host.path, made.ca_cert.cert) == (("a", "host"), secret)
    assert HTTP(name="h", host="https://x", healthz="/h", ca_cert=Certificate("pem")).ca_cert.cert == "pem"
    for bad in ({"host": 3}, {"ca_cert": 3}, {"healthz": secret}):
        with refused(ValueError, next(iter(bad)), at=False):
            HTTP(**{"name": "h", "host": "x", "healthz": "/h", **bad})
    with refused(ValueError, "cert", at=False):
        Certificate(3)

    @source(Webhook(name="w").endpoint("E"), disorder="1d", cdc="append")
    @dataset
    class E:
        a: int
        t: datetime

    @sink(made.path("p"), cdc="debezium")
    @dataset
    class Out:
        a: int
        t: datetime

        @pipeline
        @inputs(E)
        def p(cls, e: Dataset):
            return e

    (sent,) = check_commit([E, Out], []).datasets["Out"].sinks
    assert sent.connector.source.host == secret["host"]


PATHS = {
    "a/b/": ("a/b/", ""),
    "a/b": ("a/b", ""),
    "a/*": ("a/", "*"),
    "a/**/*.json": ("a/", "**/*.json"),
    "raw/%Y-%m-%d/x": ("raw/", "%Y-%m-%d/x"),
    "*.csv": ("", "*.csv"),
}


@pytest.mark.parametrize("path", PATHS)
def test_parse_path(path: str) -> None:
    assert S3Connector.parse_path(path) == PATHS[path]
    made = S3(name="s").bucket("b", path=path)
    assert (made.prefix, made.suffix) == PATHS[path]
    assert made.parse_path(path) == PATHS[path]


@pytest.mark.parametrize("bad", ["a//b", "a/b c", "a/*x*/b", ""])
def test_parse_path_refuses(bad: str) -> None:
    with refused(ValueError, "invalid part", at=False):
        S3Connector.parse_path(bad)


def test_the_position_of_kinesis_comes_first() -> None:
    streams = Kinesis(name="k", role_arn="r")
    for kind in ("json", "csv"):
        with refused(ValueError, "newest", at=False):
            streams.stream("a", "newest", kind)
        with refused(TypeError, "init_position", at=False):
            streams.stream("a", [1], kind)
    with refused(AttributeError, "json", "csv", at=False):
        streams.stream("a", "latest", "csv")


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
    with refused(ValueError, "native", cdc):
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
    with refused(ValueError, "ref", at=False):
        ref(bad)
    with refused(ValueError, "'x'"):
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
        with refused(ValueError, "'x'", "a[b][c]", "nested"):
            made("a[b][c]")


def test_other_rules_of_preproc_stay_at_commit() -> None:
    @meta(owner="a@b.cd")
    @source(CONNECTORS["webhook"], disorder="1d", cdc="append", preproc={"nope": ref("a")})
    @dataset
    class D:
        k: int
        t: datetime

    with refused(ValueError, "'D'", "nope"):
        check_commit([D], [])
