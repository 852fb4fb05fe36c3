"""Arguments of connectors: unknown ones, secrets, paths, positions (api §3.1)."""

import warnings
from datetime import datetime

import pytest

from tests.unit.refusals import refusal
from umbel.api.commit import check_commit
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
    sink,
    source,
)
from umbel.datasets import Count, Dataset, dataset, pipeline
from umbel.dtypes import Continuous
from umbel.integrations import Secret
from umbel.lib import inputs

__owner__ = "team@example.com"

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
    with pytest.warns(UserWarning), refusal(ValueError, "name: missing", at=False):
        kind(**SOURCES[kind], nam="x")
    with refusal(ValueError, "name: expected str", at=False):
        kind(**{**known, "name": 3})


def test_formats_and_aggregates_refuse_them() -> None:
    with refusal(ValueError, "delimeter", "did you mean 'delimiter'", at=False):
        CSV(delimeter=";")
    with refusal(ValueError, "registery", at=False):
        Avro(registery="confluent", url="u")
    with pytest.raises(ValueError, match="windw"):
        Count(windw=Continuous("1d"))


@pytest.mark.parametrize("wrong", ["||", "", "é", '"', "\n", "\r", "ab"])
def test_a_delimiter_is_one_character_that_separates(wrong) -> None:
    with refusal(ValueError, "CSV: delimiter", repr(wrong), at=False):
        CSV(delimiter=wrong)


@pytest.mark.parametrize("headers", [[], (), ["a", 1], ["a", None], ["a", "b", "a"], ("", "")])
def test_headers_are_different_names(headers) -> None:
    with refusal(ValueError, "CSV: headers", at=False):
        CSV(headers=headers)


def test_usual_formats_of_text_are_taken() -> None:
    assert [CSV(delimiter=each).delimiter for each in ",;|\t \1"] == list(",;|\t \1")
    assert CSV(headers=("a", "b c", "")).headers == ("a", "b c", "")


def test_hosts_and_certificates_are_texts_or_secrets() -> None:
    secret = Secret(arn="arn:x", path=["a"])
    made = HTTP(name="h", host=secret["host"], healthz="/h", ca_cert=Certificate(cert=secret))
    assert (made.host.path, made.ca_cert.cert) == (("a", "host"), secret)
    assert HTTP(name="h", host="https://x", healthz="/h", ca_cert=Certificate("pem")).ca_cert.cert == "pem"
    for bad in ({"host": 3}, {"ca_cert": 3}, {"healthz": secret}):
        with refusal(ValueError, next(iter(bad)), at=False):
            HTTP(**{"name": "h", "host": "x", "healthz": "/h", **bad})
    with refusal(ValueError, "cert", at=False):
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
    with refusal(ValueError, "invalid part", at=False):
        S3Connector.parse_path(bad)


def test_the_position_of_kinesis_comes_first() -> None:
    streams = Kinesis(name="k", role_arn="r")
    for kind in ("json", "csv"):
        with refusal(ValueError, "newest", at=False):
            streams.stream("a", "newest", kind)
        with refusal(TypeError, "init_position", at=False):
            streams.stream("a", [1], kind)
    with refusal(AttributeError, "json", "csv", at=False):
        streams.stream("a", "latest", "csv")
