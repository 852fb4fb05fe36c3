"""Connector declarations (api §3.1)."""

from datetime import UTC, datetime, timezone
from typing import Any

import pytest

from tests.unit.refusals import Cases, check_refused
from umbel import connectors as c
from umbel.connectors import (
    CSV,
    HTTP,
    Avro,
    BigQuery,
    Certificate,
    HTTPConnector,
    Kafka,
    KafkaConnector,
    Kinesis,
    KinesisConnector,
    Mongo,
    MySQL,
    Postgres,
    Protobuf,
    PubSub,
    PubSubConnector,
    Redshift,
    S3Connector,
    Snowflake,
    TableConnector,
    Webhook,
    WebhookConnector,
)
from umbel.connectors.s3 import split_path
from umbel.integrations.aws import Secret

refused = Cases()
LOGIN = {"host": "h", "db_name": "d", "username": "u", "password": "p"}
KAFKA: dict[str, Any] = {
    "name": "k",
    "bootstrap_servers": "b:9092",
    "security_protocol": "PLAINTEXT",
    "sasl_mechanism": "PLAIN",
}
SNOW = {"account": "a", "db_name": "d", "username": "u", "password": "p", "warehouse": "w", "schema": "s", "role": "r"}
REGISTRY = {"registry": "confluent", "url": "http://r"}


def test_each_source_makes_its_connector() -> None:
    made = {
        c.Webhook(name="w").endpoint("e"): ("webhook", {"endpoint": "e"}),
        c.Kafka(**KAFKA).topic("t"): ("kafka", {"topic": "t", "format": "json"}),
        c.S3(name="s").bucket("b", prefix="p"): (
            "s3",
            {"bucket": "b", "prefix": "p", "suffix": None, "format": c.CSV()},
        ),
        c.Postgres(name="p", **LOGIN).table("t", "at"): ("postgres", {"table": "t", "cursor": "at"}),
        c.MySQL(name="m", **LOGIN).table("t", cursor="at"): ("mysql", {"table": "t", "cursor": "at"}),
        c.Snowflake(name="s", **SNOW).table("t"): ("snowflake", {"table": "t", "cursor": None}),
        c.Redshift(name="r", host="h", db_name="d", schema="s", s3_access_role_arn="a").table("t", "at"): (
            "redshift",
            {"table": "t"},
        ),
        c.Mongo(name="m", **LOGIN).collection("c", cursor="at"): ("mongo", {"table": "c", "cursor": "at"}),
        c.Kinesis(name="k", role_arn="a").stream("s", "LATEST", format="json"): (
            "kinesis",
            {"init_position": "latest"},
        ),
        c.HTTP(name="h", host="x", healthz="/h", ca_cert=c.Certificate("pem")).path("e", limit=3, headers={"a": "b"}): (
            "http",
            {"endpoint": "e", "limit": 3, "headers": (("a", "b"),)},
        ),
    }
    for connector, (kind, fields) in made.items():
        assert connector.kind == kind
        assert {name: getattr(connector, name) for name in fields} == fields
    key = {"type": "service_account"}
    assert c.BigQuery(name="b", project_id="p", dataset_id="d", service_account_key=key).table("t", "at").table == "t"
    assert c.PubSub(name="p", project_id="p", service_account_key=key).topic("t", format="json").topic_id == "t"


SECRET = Secret(arn="arn:aws:secretsmanager:us-east-1:1:secret:x", role_arn="arn:aws:iam::1:role/r")

AT = datetime(2024, 1, 2, tzinfo=timezone.utc)

kafka = Kafka(
    name="k", bootstrap_servers="b:9092", security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
    sasl_plain_username="u", sasl_plain_password=SECRET["kafka"]["password"],
)  # fmt: skip

stream = Kinesis(name="ki", role_arn="arn")

s3 = c.S3(name="s", aws_access_key_id="a", aws_secret_access_key="b")

postgres = Postgres(name="p", host="h", db_name="d", username="u", password="p")

MADE = [
    (Webhook(name="w").endpoint("e"), WebhookConnector),
    (Webhook(name="w", retention="14d").endpoint(endpoint="e"), WebhookConnector),
    (kafka.topic("t"), KafkaConnector),
    (kafka.topic(topic="t", format="json"), KafkaConnector),
    (
        kafka.topic("t", format=Avro(registry="confluent", url="http://r", username="u", password="p")),
        KafkaConnector,
    ),
    (kafka.topic("t", Protobuf(registry="confluent", url="http://r", token="t")), KafkaConnector),
    (stream.stream("arn", init_position="latest", format="json"), KinesisConnector),
    (s3.bucket(bucket_name="b", prefix="p/"), S3Connector),
    (s3.bucket("b", path="y/%Y-%m-%d/*/x.json", format="json", presorted=True, spread="2d"), S3Connector),
    (s3.bucket("b", prefix="p", format=CSV(delimiter="\t", headers=["a", "b"])), S3Connector),
    (s3.bucket("b", prefix="p", format="parquet"), S3Connector),
    (s3.bucket("b", prefix="p", format="hudi"), S3Connector),
    (s3.bucket("b", prefix="p", format="delta"), S3Connector),
    (postgres.table("t", cursor="c"), TableConnector),
    (
        MySQL(name="m", host="h", db_name="d", username="u", password="p", jdbc_params="x=y").table("t", "c"),
        TableConnector,
    ),
    (
        Snowflake(
            name="sf", account="a", db_name="d", username="u", password="p", warehouse="w", schema="s", role="r"
        ).table("t", cursor="c"),
        TableConnector,
    ),
    (
        BigQuery(name="bq", project_id="p", dataset_id="d", service_account_key={"a": "b"}).table("t", cursor="c"),
        TableConnector,
    ),
    (
        BigQuery(name="bq", project_id="p", dataset_id="d", service_account_key=SECRET).table("t", cursor="c"),
        TableConnector,
    ),
    (
        Redshift(name="r", db_name="d", host="h", schema="s", s3_access_role_arn="a").table("t", cursor="c"),
        TableConnector,
    ),
    (
        Redshift(name="r", db_name="d", host="h", schema="s", username="u", password=SECRET).table("t", cursor="c"),
        TableConnector,
    ),
    (
        Mongo(name="mo", host="h", db_name="d", username="u", password="p").collection("c", cursor="x"),
        TableConnector,
    ),
    (PubSub(name="ps", project_id="p", service_account_key={"a": "b"}).topic("t", format="json"), PubSubConnector),
    (
        HTTP(name="h", host="http://h", healthz="/ok", ca_cert=Certificate(SECRET)).path(
            "/p", limit=10, headers={"a": "b"}
        ),
        HTTPConnector,
    ),
]


def test_every_kind_makes_its_connector() -> None:
    for connector, kind in MADE:
        assert isinstance(connector, kind)


def test_connectors_of_sources_by_name() -> None:
    assert Webhook.get("w").endpoint("e")
    assert Kafka.get("k").topic("t")
    assert c.S3.get("s").bucket("b", prefix="p")
    assert Postgres.get("p").table("t", cursor="c")
    assert HTTP.get("h").path("/p")


def test_ports_and_retention_have_defaults() -> None:
    assert c.Postgres(name="p", **LOGIN).port == 5432
    assert c.MySQL(name="p", **LOGIN).port == 3306
    assert c.Webhook(name="w").retention == "7d"
    assert c.CSV() == c.CSV(delimiter=",", headers=None)
    assert Redshift(name="r", db_name="d", host="h", schema="s", s3_access_role_arn="a").port == 5439
    bucket = c.S3(name="s").bucket("b", prefix="p")
    assert (bucket.presorted, bucket.format) == (False, c.CSV())


@pytest.mark.parametrize(
    "kind",
    [
        c.Webhook,
        c.Kafka,
        c.Kinesis,
        c.S3,
        c.Postgres,
        c.MySQL,
        c.Snowflake,
        c.BigQuery,
        c.Redshift,
        c.Mongo,
        c.PubSub,
        c.HTTP,
    ],
)
def test_sources_registered_elsewhere_are_got_by_name(kind: Any) -> None:
    found = kind.get("theirs")
    assert (type(found), found.name, found.is_reference) == (kind, "theirs", True)


def test_secrets_are_credentials_and_lead_to_their_parts() -> None:
    secret = Secret(arn="a", role_arn="r")
    assert secret["x"]["y"] == Secret(arn="a", role_arn="r", path=("x", "y"))
    assert secret.path is None
    assert secret["x"] is not secret
    assert secret["x"]["y"] != secret["x"]
    assert Secret(arn=secret.arn, role_arn=secret.role_arn) == secret
    assert c.Postgres(name="p", **{**LOGIN, "password": secret["p"]}).password == secret["p"]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("latest", "latest"),
        ("LATEST", "latest"),
        ("Trim_Horizon", "trim_horizon"),
        (AT, AT),
        (c.at_timestamp(AT), AT),
        (c.at_timestamp(1704153600), AT),
        (c.at_timestamp("2024-01-02T00:00:00Z"), AT),
        (c.kinesis.at_timestamp(AT), AT),
        (datetime(2024, 1, 2), datetime(2024, 1, 2, tzinfo=UTC)),
        (1704153600, datetime(2024, 1, 2, tzinfo=UTC)),
        (1704153600.5, datetime(2024, 1, 2, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("2024-01-02T00:00:00Z", datetime(2024, 1, 2, tzinfo=UTC)),
        (c.at_timestamp("2024-01-02"), datetime(2024, 1, 2, tzinfo=UTC)),
    ],
)
def test_positions_in_a_stream(position: Any, expected: Any) -> None:
    found = c.Kinesis(name="k", role_arn="a").stream("s", position, format="json").init_position
    assert (found if isinstance(found, str) else found.instant) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("raw", ("raw", "")),
        ("raw/", ("raw/", "")),
        ("raw/clicks", ("raw/clicks", "")),
        ("raw/*", ("raw/", "*")),
        ("raw/**/x=1/*.json", ("raw/", "**/x=1/*.json")),
        ("raw/%Y/%m-%d/*.json.gz", ("raw/", "%Y/%m-%d/*.json.gz")),
        ("%Y%m%d", ("", "%Y%m%d")),
        ("*", ("", "*")),
        ("a/b-c_d.e=f/data.csv", ("a/b-c_d.e=f/data.csv", "")),
        ("**/*.json", ("", "**/*.json")),
        ("yy/%Y-%m-%d/x.csv", ("yy/", "%Y-%m-%d/x.csv")),
        ("a=1/b_2.c-3/*.csv", ("a=1/b_2.c-3/", "*.csv")),
    ],
)
def test_paths(path: str, expected: tuple[str, str]) -> None:
    assert split_path(path) == expected
    connector = c.S3(name="s").bucket("b", path=path, spread="2d")
    assert (connector.prefix, connector.suffix) == expected


for bad, part in {
    "raw/a*": "a*",
    "*.json/x": "*.json",
    "raw//x": "",
    "/raw": "",
    "raw/a b": "a b",
    "raw/***": "***",
    "raw/?": "?",
    "raw/%": "%",
    "foo*/x": "foo*",
    "a/*b/c": "*b",
    "a/x$": "x$",
    "a/%q": "%q",
}.items():
    refused.add(f"path {bad}", lambda bad=bad: split_path(bad), ValueError, f"'{part}'", "a part is made of")

S3 = c.S3(name="s")
refused.add("path of a bucket", lambda: S3.bucket("b", path="a//b"), ValueError, "''", "a part is made of")
refused.add("no name", lambda: c.Webhook(), ValueError, "name")
refused.add("kafka xml", lambda: c.Kafka(**KAFKA).topic("t", format="xml"), ValueError, "xml")
STREAM = c.Kinesis(name="k", role_arn="a").stream
refused.add("missing", lambda: c.Postgres(name="p"), ValueError, "Postgres", "host", "db_name", "username", "password")
refused.add("wrong type", lambda: c.Postgres(**{**LOGIN, "name": 3}), ValueError, "name", "3")
refused.add("wrong port", lambda: c.MySQL(name="m", port="1", **LOGIN), ValueError, "port", "int")
refused.add("positional", lambda: c.Webhook("w"), TypeError, "keyword")
refused.add("retention", lambda: c.Webhook(name="w", retention="1x"), ValueError, "retention")
refused.add(
    "protocol", lambda: c.Kafka(**{**KAFKA, "security_protocol": "SSL"}), ValueError, "security_protocol", "SASL_SSL"
)
refused.add("mechanism", lambda: c.Kafka(**{**KAFKA, "sasl_mechanism": "MD5"}), ValueError, "sasl_mechanism", "GSSAPI")
refused.add("kafka format", lambda: c.Kafka(**KAFKA).topic("t", format="csv"), ValueError, "csv", "'json'", "Avro")
refused.add("kinesis format", lambda: STREAM("s", "latest", format="csv"), AttributeError, "csv", "json")
refused.add("kinesis position", lambda: STREAM("s", [1], format="json"), TypeError, "init_position", "[1]")
refused.add("kinesis text", lambda: STREAM("s", "soon", format="json"), ValueError, "soon")
refused.add("at_timestamp", lambda: c.at_timestamp(None), TypeError, "None")
refused.add(
    "pubsub", lambda: c.PubSub(name="p", project_id="p", service_account_key={}).topic("t", "csv"), ValueError, "csv"
)
refused.add("s3 neither", lambda: S3.bucket("b"), AttributeError, "prefix", "path")
refused.add("s3 both", lambda: S3.bucket("b", prefix="p", path="p"), AttributeError, "prefix", "path")
refused.add("s3 spread", lambda: S3.bucket("b", prefix="p", spread="1d"), AttributeError, "spread", "path")
refused.add("s3 bad spread", lambda: S3.bucket("b", path="p", spread="1x"), ValueError, "spread", "1x")
refused.add(
    "s3 csv",
    lambda: S3.bucket("b", prefix="p", format="csv"),
    ValueError,
    "'csv'",
    "'json'",
    "'parquet'",
    "'hudi'",
    "'delta'",
)
refused.add(
    "redshift both",
    lambda: c.Redshift(name="r", s3_access_role_arn="a", schema="s", **LOGIN),
    AttributeError,
    "Redshift",
    "s3_access_role_arn",
)
refused.add(
    "redshift neither",
    lambda: c.Redshift(name="r", host="h", db_name="d", schema="s"),
    AttributeError,
    "username",
    "s3_access_role_arn",
)
refused.add("avro registry", lambda: c.Avro(registry="other", url="u"), ValueError, "confluent", "other")
refused.add("protobuf registry", lambda: c.Protobuf(registry="other", url="u"), ValueError, "confluent")
refused.add("protobuf half", lambda: c.Protobuf(**REGISTRY, username="u"), ValueError, "together")
refused.add(
    "protobuf both", lambda: c.Protobuf(**REGISTRY, username="u", password="p", token="t"), ValueError, "not both"
)
refused.add("protobuf neither", lambda: c.Protobuf(**REGISTRY), ValueError, "must be given")


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)
