"""Sources and sinks as they are declared (api §3.1)."""

from datetime import datetime, timezone

import pytest

from tests.unit.rules.refusals import refused
from umbel.connectors import (
    CSV,
    HTTP,
    S3,
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
    at_timestamp,
    kinesis,
)
from umbel.integrations.aws import Secret

SECRET = Secret(arn="arn:aws:secretsmanager:us-east-1:1:secret:x", role_arn="arn:aws:iam::1:role/r")
AT = datetime(2024, 1, 2, tzinfo=timezone.utc)
kafka = Kafka(
    name="k", bootstrap_servers="b:9092", security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
    sasl_plain_username="u", sasl_plain_password=SECRET["kafka"]["password"],
)  # fmt: skip
stream = Kinesis(name="ki", role_arn="arn")
s3 = S3(name="s", aws_access_key_id="a", aws_secret_access_key="b")
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


def test_defaults() -> None:
    assert Webhook(name="w").retention == "7d"
    assert (postgres.port, MySQL(name="m", host="h", db_name="d", username="u", password="p").port) == (5432, 3306)
    assert Redshift(name="r", db_name="d", host="h", schema="s", s3_access_role_arn="a").port == 5439
    assert CSV().delimiter == ","
    assert CSV().headers is None
    assert kafka.topic("t").format == "json"
    assert s3.bucket("b", prefix="p").presorted is False
    assert isinstance(s3.bucket("b", prefix="p").format, CSV)


@pytest.mark.parametrize(
    "kind", [Webhook, Kafka, Kinesis, S3, Postgres, MySQL, Snowflake, BigQuery, Redshift, Mongo, PubSub]
)
def test_sources_by_name(kind: type) -> None:
    assert kind.get("registered").name == "registered"


def test_connectors_of_sources_by_name() -> None:
    assert Webhook.get("w").endpoint("e")
    assert Kafka.get("k").topic("t")
    assert S3.get("s").bucket("b", prefix="p")
    assert Postgres.get("p").table("t", cursor="c")
    assert HTTP.get("h").path("/p")


def test_secrets() -> None:
    deeper = SECRET["a"]["b"]
    assert isinstance(deeper, Secret)
    assert deeper is not SECRET
    assert deeper["c"] != deeper
    assert Secret(arn="x") is not None
    assert Secret(arn=SECRET.arn, role_arn=SECRET.role_arn) == SECRET


@pytest.mark.parametrize(
    "position",
    [
        "latest",
        "LATEST",
        "Trim_Horizon",
        AT,
        datetime(2024, 1, 2),
        1704153600,
        1704153600.5,
        "2024-01-02T00:00:00Z",
        at_timestamp(AT),
        at_timestamp(1704153600),
        at_timestamp("2024-01-02T00:00:00Z"),
        kinesis.at_timestamp(AT),
    ],
)
def test_positions(position: object) -> None:
    assert stream.stream("arn", init_position=position, format="json")


def test_bad_positions() -> None:
    with refused(TypeError, "init_position"):
        stream.stream("arn", init_position=[1], format="json")
    with refused(ValueError, "nonsense"):
        stream.stream("arn", init_position="nonsense", format="json")
    with refused(AttributeError, "csv", "json"):
        stream.stream("arn", init_position="latest", format="csv")


def test_bad_arguments() -> None:
    with refused(ValueError, "name"):
        Webhook()
    with refused(ValueError, "host", "db_name", "Postgres"):
        Postgres(name="p", username="u", password="p")
    with refused(ValueError, "port"):
        Postgres(name="p", host="h", db_name="d", username="u", password="p", port="x")
    with refused(ValueError, "security_protocol"):
        Kafka(name="k", bootstrap_servers="b", security_protocol="SSLX", sasl_mechanism="PLAIN")
    with refused(ValueError, "sasl_mechanism"):
        Kafka(name="k", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="X")
    with refused(ValueError, "name"):
        Webhook(name=5)
    with refused(AttributeError, "Redshift", "s3_access_role_arn"):
        Redshift(name="r", db_name="d", host="h", schema="s", s3_access_role_arn="a", username="u", password="p")
    with refused(AttributeError, "Redshift", "s3_access_role_arn"):
        Redshift(name="r", db_name="d", host="h", schema="s")


def test_bad_formats() -> None:
    with refused(ValueError, "json"):
        PubSub(name="ps", project_id="p", service_account_key={}).topic("t", format="csv")
    with refused(ValueError, "xml"):
        kafka.topic("t", format="xml")
    with refused(ValueError, "csv", "json", "parquet", "hudi", "delta"):
        s3.bucket("b", prefix="p", format="csv")
    with refused(ValueError, "confluent"):
        Avro(registry="glue", url="u")
    with refused(ValueError, "confluent"):
        Protobuf(registry="glue", url="u", token="t")
    texts = set()
    for options in ({"username": "u"}, {"username": "u", "password": "p", "token": "t"}, {}):
        with pytest.raises(ValueError, match="Protobuf") as caught:
            Protobuf(registry="confluent", url="u", **options)
        texts.add(str(caught.value))
    assert len(texts) == 3


def test_bad_buckets() -> None:
    with refused(AttributeError, "prefix", "path"):
        s3.bucket("b", prefix="p", path="p")
    with refused(AttributeError, "prefix", "path"):
        s3.bucket("b")
    with refused(AttributeError, "spread", "path"):
        s3.bucket("b", prefix="p", spread="1d")
    with refused(ValueError, "spread", "1x"):
        s3.bucket("b", path="p/%Y", spread="1x")


PATHS = {
    "*": ("", "*"), "**/*.json": ("", "**/*.json"), "a/b/*": ("a/b/", "*"), "a/b/": ("a/b/", ""), "a/b": ("a/b", ""),
    "yy/%Y-%m-%d/x.csv": ("yy/", "%Y-%m-%d/x.csv"), "a=1/b_2.c-3/*.csv": ("a=1/b_2.c-3/", "*.csv"),
    "foo*/x": None, "a/*b/c": None, "a/x$": None, "a//b": None, "*.csv/x": None, "a/%q": None,
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_paths(path: str) -> None:
    expected = PATHS[path]
    if expected is None:
        with refused(ValueError, next(part for part in path.split("/") if part not in ("a", "x", "c", "b"))):
            s3.bucket("b", path=path)
        return
    made = s3.bucket("b", path=path)
    assert (made.prefix, made.suffix) == expected
