"""Credentials written in definitions are shown only to who may commit."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.unit.serving.test_gate import bearer, served
from umbel import inputs, pipeline
from umbel.api.commit import check_commit
from umbel.catalog.tokens import Role, Tokens
from umbel.connectors import HTTP, S3, Avro, BigQuery, Kafka, sink, source
from umbel.datasets import Dataset, dataset
from umbel.definitions.secret import Secret
from umbel.definitions.serde import dump, load

__owner__ = "tests@example.com"
PLANTED = ("planted-password", "planted-key")


def _datasets() -> list[Dataset]:
    kafka = Kafka(
        name="k",
        bootstrap_servers="b:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=Secret(arn="login")["user"],
        sasl_plain_password=PLANTED[0],
    )
    bucket = S3(name="s", aws_access_key_id="id", aws_secret_access_key=PLANTED[1])

    @source(kafka.topic("a"), disorder="1d", cdc="append")
    @source(bucket.bucket("b", prefix="c"), disorder="1d", cdc="append")
    @dataset
    class Event:
        user: int
        at: datetime

    return [Event]


def test_a_reader_gets_definitions_without_credentials(tmp_path: Path) -> None:
    with served(tmp_path, requires_token=True) as (http, deployment):
        committed = check_commit(_datasets(), [])
        deployment.catalog.commit("main", "with credentials", dump(committed))
        found = {
            role: http.get("/api/v1/commit", headers=bearer(Tokens(deployment.catalog).create(role.label, role)))
            for role in Role
        }
        for role, answer in found.items():
            assert answer.status_code == 200
            assert [each.encode() in answer.content for each in PLANTED] == [role == Role.ADMIN] * 2
        kafka, bucket = (each.connector.source for each in load(found[Role.READER].content).datasets["Event"].sources)
        assert (kafka.name, kafka.sasl_plain_password, bucket.aws_secret_access_key) == ("k", "***", "***")
        assert kafka.sasl_plain_username == Secret(arn="login")["user"]
        assert load(found[Role.ADMIN].content) == committed


ELSEWHERE = ("planted-option", "planted-registry", "planted-private-key", "planted-header")


def _planted_elsewhere() -> list[Dataset]:
    kafka = Kafka(
        name="k",
        bootstrap_servers="b:9092",
        security_protocol="PLAINTEXT",
        sasl_mechanism="PLAIN",
        options={"ssl.key.password": ELSEWHERE[0], "ssl.ca.location": Secret(arn="ca")},
    )
    registry = Avro(registry="confluent", url="http://r", username="u", password=ELSEWHERE[1])
    warehouse = BigQuery(name="w", project_id="p", dataset_id="d", service_account_key={"private_key": ELSEWHERE[2]})
    target = HTTP(name="h", host="http://t", healthz="/").path("in", headers={"Authorization": ELSEWHERE[3]})

    @source(kafka.topic("a", registry), disorder="1d", cdc="append")
    @source(warehouse.table("t", cursor="at"), disorder="1d", cdc="append", every="1h")
    @dataset
    class Event:
        user: int
        at: datetime

    @sink(target, cdc="debezium")
    @dataset
    class Chosen:
        user: int
        at: datetime

        @pipeline
        @inputs(Event)
        def chosen(cls, events: Dataset) -> Dataset:
            return events.filter(lambda rows: rows["user"] > 0)

    return [Event, Chosen]


def test_a_reader_gets_no_options_keys_headers_or_registry_passwords(tmp_path: Path) -> None:
    """Credentials in mappings, in formats and beside the source are hidden as those of the source are."""
    with served(tmp_path, requires_token=True) as (http, deployment):
        committed = check_commit(_planted_elsewhere(), [])
        deployment.catalog.commit("main", "with credentials", dump(committed))
        for role in Role:
            token = Tokens(deployment.catalog).create(role.label, role)
            answer = http.get("/api/v1/commit", headers=bearer(token))
            assert [each.encode() in answer.content for each in ELSEWHERE] == [role == Role.ADMIN] * 4
            found = load(answer.content).datasets
            (topic,) = [each.connector for each in found["Event"].sources if hasattr(each.connector, "topic")]
            assert topic.source.options["ssl.ca.location"] == Secret(arn="ca")
            assert [name for name, _ in found["Chosen"].sinks[0].connector.headers] == ["Authorization"]
