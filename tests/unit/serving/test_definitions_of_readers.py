"""Credentials written in definitions are shown only to who may commit."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.unit.serving.test_gate import bearer, served
from umbel.api.commit import check_commit
from umbel.catalog.tokens import Role, Tokens
from umbel.connectors import S3, Kafka, source
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
