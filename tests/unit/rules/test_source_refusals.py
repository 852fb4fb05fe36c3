"""Sources and sinks that cannot be (api §3.2, §3.3)."""

from datetime import datetime, timezone
from typing import Any

import pytest

from tests.unit.rules.refusals import refused
from umbel.connectors import (
    HTTP,
    S3,
    Avro,
    Certificate,
    Kafka,
    Kinesis,
    Mongo,
    Postgres,
    PubSub,
    Sample,
    Snowflake,
    Webhook,
    eval,
    ref,
    sink,
    source,
)
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.dtypes import between
from umbel.expr import col
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "team@example.com"
webhook = Webhook(name="w")
endpoint = webhook.endpoint("e")
kafka = Kafka(name="k", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
s3 = S3(name="s")
http = HTTP(name="h", host="http://h", healthz="/ok", ca_cert=Certificate("x"))
postgres = Postgres(name="p", host="h", db_name="d", username="u", password="p")
snowflake = Snowflake(name="sf", account="a", db_name="d", username="u", password="p", warehouse="w", schema="s", role="r")  # fmt: skip
T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@dataset
class Plain:
    a: int
    b: float
    c: between(int, 0, 9)
    t: datetime


@dataset(index=True)
class Keyed:
    k: int = field(key=True)
    a: int
    t: datetime


def committed(conn: Any, D: Dataset = Plain, cdc: str = "append", **options: Any) -> None:
    fed = source(conn, disorder="1d", cdc=cdc, **options)(D)
    MockClient().commit("m", datasets=[fed])


def test_connectors() -> None:
    with refused(TypeError, "w", "endpoint", "Webhook"):
        source(webhook, disorder="1d", cdc="append")
    with refused(TypeError, "k", "topic"):
        source(kafka, disorder="1d", cdc="append")
    with refused(TypeError, "p", "table", "cursor"):
        source(postgres, disorder="1d", cdc="append")
    with refused(TypeError, "5"):
        source(5, disorder="1d", cdc="append")
    with refused(TypeError, "HTTP", "h"):
        source(http.path("/x"), disorder="1d", cdc="append")
    with refused(Exception, "sf", "cursor"):
        source(snowflake.table("t"), disorder="1d", cdc="append")
    with pytest.raises(TypeError, match="disorder"):
        source(endpoint, cdc="append")
    with pytest.raises(TypeError, match="cdc"):
        source(endpoint, disorder="1d")
    with refused(TypeError, "int"):
        source(endpoint, disorder="1d", cdc="append")(int)


def test_arguments() -> None:
    with refused(ValueError, "cdc", "mysql"):
        source(endpoint, disorder="1d", cdc="mysql")
    with refused(ValueError, "delta", "native"):
        source(s3.bucket("b", prefix="p", format="delta"), disorder="1d", cdc="append")
    with refused(TypeError, "since"):
        source(endpoint, disorder="1d", cdc="append", since="2024-01-01")
    with refused(TypeError, "until"):
        source(endpoint, disorder="1d", cdc="append", until=5)
    with refused(ValueError, "since", "until"):
        source(endpoint, disorder="1d", cdc="append", since=T, until=datetime(2023, 1, 1))
    with refused(AttributeError, "idleness"):
        source(endpoint, disorder="1d", cdc="append", bounded=True)
    with refused(AttributeError, "bounded"):
        source(endpoint, disorder="1d", cdc="append", idleness="1h")
    with refused(ValueError, "disorder", "1x"):
        source(endpoint, disorder="1x", cdc="append")
    with refused(ValueError, "every", "1x"):
        source(endpoint, disorder="1d", cdc="append", every="1x")
    for sample in (1.5, -0.1):
        with refused(ValueError, sample):
            source(endpoint, disorder="1d", cdc="append", sample=sample)
    with refused(ValueError, "using"):
        Sample(0.5, using=[])
    for env in ("", "~", "a b", ["a", ""], " "):
        with refused(ValueError, "env"):
            source(endpoint, disorder="1d", cdc="append", env=env)
    with refused(Exception, "env", "~"):
        source(endpoint, disorder="1d", cdc="append", env=["a", "~b"])


def test_cdc_and_keys() -> None:
    with refused(ValueError, "Keyed", "append"):
        committed(endpoint, Keyed, cdc="append")
    with refused(ValueError, "Plain", "upsert"):
        committed(endpoint, Plain, cdc="upsert")
    committed(kafka.topic("t"), Keyed, cdc="debezium")
    committed(s3.bucket("b", prefix="p", format="delta"), Keyed, cdc="native")
    committed(s3.bucket("b", prefix="p", format="hudi"), Keyed, cdc="native")


def test_samples() -> None:
    for name in ("t", "nothing"):
        with refused(ValueError, "Plain", name):
            committed(endpoint, sample=Sample(0.5, using=[name]))
    with refused(ValueError, "Plain", "a"):
        committed(endpoint, preproc={"a": 1}, sample=Sample(0.5, using=["a", "b"]))
    with refused(ValueError, "Plain"):
        committed(endpoint, preproc={"a": 1, "b": 1.0, "c": 1}, sample=0.5)
    with refused(ValueError, "Keyed"):
        committed(endpoint, Keyed, cdc="upsert", preproc={"k": 1}, sample=0.5)
    committed(endpoint, Keyed, cdc="upsert", sample=1)


def test_preproc() -> None:
    with refused(ValueError, "Plain", "zz"):
        committed(endpoint, preproc={"zz": 1})
    with refused(ValueError, "Plain", "t"):
        committed(endpoint, preproc={"t": eval(col("a"))})
    with refused(TypeError, "Plain", "a", "int", "float"):
        committed(endpoint, preproc={"a": eval(col("b") * 1.5)})
    with refused(TypeError, "Plain", "a", "int", "float"):
        committed(endpoint, preproc={"a": eval((col("b") * 1.5).astype(int))})
    with refused(TypeError, "Plain", "a", "int", "float"):
        committed(endpoint, preproc={"a": eval((col("c") * 1).astype(float))})
    with refused(ValueError, "Plain", "a", "x"):
        committed(endpoint, preproc={"a": "x"})
    with refused(ValueError, "Plain", "c", "12"):
        committed(endpoint, preproc={"c": 12})
    with refused(ValueError, "Plain", "a", "nothing"):
        committed(endpoint, preproc={"a": eval(col("nothing"))})
    with refused(ValueError, "Plain", "a"):
        committed(endpoint, preproc={"a": ref("x[y]")})
    for path in ("x[y", "x]y[", "", "x[]", "[y]"):
        with refused(ValueError, "ref"):
            ref(path)
    topics = (
        s3.bucket("b", prefix="p", format="json"), kafka.topic("t"),
        kafka.topic("t", format=Avro(registry="confluent", url="u")),
        Kinesis(name="k", role_arn="r").stream("a", "latest", "json"),
        PubSub(name="p", project_id="p", service_account_key={}).topic("t", "json"),
    )  # fmt: skip
    for conn in topics:
        committed(conn, preproc={"a": ref("x[y][z]")})
    for conn in (
        s3.bucket("b", prefix="p"),
        postgres.table("t", cursor="c"),
        Mongo.get("m").collection("c", cursor="x"),
    ):
        with refused(ValueError, "Plain", "x[y]"):
            committed(conn, preproc={"a": ref("x[y]")})


def test_where() -> None:
    with refused(TypeError, "Plain", "where", "bool", "int"):
        committed(endpoint, where=eval(col("a") + 1))
    with refused(ValueError, "Plain", "where", "nothing"):
        committed(endpoint, where=eval(col("nothing") > 1))
    with refused(TypeError, "Plain", "where"):
        committed(endpoint, where=5)


def test_source_and_pipeline() -> None:
    @source(endpoint, disorder="1d", cdc="append", env="prod")
    @dataset
    class Both:
        a: int
        b: float
        c: between(int, 0, 9)
        t: datetime

        @pipeline(env="dev")
        @inputs(Plain)
        def p(cls, plain: Dataset):
            return plain

    with refused(ValueError, "Both"):
        MockClient().commit("m", datasets=[Plain, Both])
    assert MockClient().commit("m", datasets=[Plain, Both], env="prod").status_code == 200
    assert MockClient().commit("m", datasets=[Plain, Both], env="dev").status_code == 200


def test_sinks() -> None:
    assert sink(kafka.topic("t"), cdc="debezium")
    assert sink(kafka.topic("t"), cdc="debezium", how="incremental", env="prod")
    assert sink(http.path("/x"), cdc="debezium")
    assert sink(s3.bucket("b", prefix="p", format="delta"), every="1d", how="incremental", renames={"a": "x"}, since=T)
    assert sink(snowflake.table("t"), every="1d", how="incremental")
    bad = [
        (kafka.topic("t"), {}, "cdc"), (kafka.topic("t"), {"cdc": "upsert"}, "cdc"),
        (kafka.topic("t", format=Avro(registry="confluent", url="u")), {"cdc": "debezium"}, "format"),
        (kafka.topic("t"), {"cdc": "debezium", "every": "1d"}, "every"),
        (kafka.topic("t"), {"cdc": "debezium", "how": "recreate"}, "how"),
        (kafka.topic("t"), {"cdc": "debezium", "renames": {"a": "b"}}, "renames"),
        (kafka.topic("t"), {"cdc": "debezium", "since": T}, "since"),
        (kafka.topic("t"), {"cdc": "debezium", "until": T}, "until"),
        (http.path("/x"), {}, "cdc"), (http.path("/x"), {"cdc": "debezium", "every": "1d"}, "every"),
        (http.path("/x"), {"cdc": "debezium", "renames": {"a": "b"}}, "renames"),
        (s3.bucket("b", prefix="p", format="delta"), {"cdc": "debezium", "how": "incremental"}, "cdc"),
        (s3.bucket("b", prefix="p", format="json"), {"how": "incremental"}, "format"),
        (s3.bucket("b", prefix="p", format="delta"), {"how": "recreate"}, "how"),
        (S3(name="s", role_arn="r").bucket("b", prefix="p", format="delta"), {"how": "incremental"}, "role"),
        (snowflake.table("t"), {"cdc": "debezium", "how": "incremental"}, "cdc"),
        (snowflake.table("t", cursor="c"), {"how": "incremental"}, "cursor"),
        (snowflake.table("t"), {"how": "recreate"}, "how"),
        (postgres.table("t", cursor="c"), {"how": "incremental"}, "Postgres"),
        (endpoint, {}, "Webhook"), (kafka, {}, "topic"), (s3, {}, "bucket"), (5, {}, "5"),
    ]  # fmt: skip
    for conn, options, word in bad:
        with refused(ValueError, word):
            sink(conn, **options)
    with refused(ValueError, "zz"):
        sink(s3.bucket("b", prefix="p", format="delta"), how="incremental", renames={"zz": "x"})(Plain)


def test_sinks_and_sources() -> None:
    both = sink(kafka.topic("t"), cdc="debezium")(source(endpoint, disorder="1d", cdc="append")(Plain))
    with refused(ValueError, "Plain"):
        MockClient().commit("m", datasets=[both])
    assert MockClient().commit("m", datasets=[sink(kafka.topic("t"), cdc="debezium")(Plain)]).status_code == 200


def test_env_of_commits() -> None:
    with refused(ValueError, "~prod"):
        MockClient().commit("m", datasets=[Plain], env="~prod")
