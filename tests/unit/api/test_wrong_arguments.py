"""Wrong arguments of declarations and commits are errors with a remedy: which is wrong, which there are, the nearest."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from umbel import MockClient
from umbel.connectors import HTTP, S3, Iceberg, Kafka, Kinesis, Mongo, Postgres, PubSub, Webhook, sink, source
from umbel.datasets import dataset, field, index, pipeline
from umbel.errors import InvalidType, InvalidValue, UmbelError
from umbel.featuresets import extractor, feature, featureset

__owner__ = "shop@example.com"
web = Webhook(name="web")
SOURCE: Any = source
SINK: Any = sink
COMMIT: Any = MockClient.commit
FIELD: Any = field
KAFKA: Any = Kafka(name="k", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
POSTGRES: Any = Postgres(name="p", host="h", db_name="d", username="u", password="p")
MONGO: Any = Mongo(name="m", host="h", db_name="d", username="u", password="p")
BUCKETS: Any = S3(name="s")
KINESIS: Any = Kinesis(name="k", role_arn="r")
LAKE: Any = Iceberg(name="i", uri="u")
http = HTTP(name="http", host="http://localhost", healthz="/h")


class Body:
    uid: int
    at: datetime


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "source()": (lambda: SOURCE(), r"source: 'conn', 'disorder', 'cdc' missing"),
    "source, cdc": (lambda: SOURCE(web.endpoint("e"), disorder="1d", cd="append"), r"is 'cd' meant to be 'cdc'\?"),
    "source, every": (
        lambda: SOURCE(web.endpoint("e"), disorder="1d", cdc="append", evry="1h"),
        r"source: unknown argument 'evry'; did you mean 'every'\?",
    ),
    "source, twice": (lambda: SOURCE(web.endpoint("e"), "1d", "append", conn=web), "source: 'conn' is passed twice"),
    "source, many": (lambda: SOURCE(*range(20)), "source: at most 13 arguments by position, found 20"),
    "sink()": (lambda: SINK(), "sink: 'conn' missing"),
    "sink": (lambda: SINK(http.path("/x"), cdc="debezium", renamed={}), r"'renamed'; did you mean 'renames'\?"),
    "sink, renames": (lambda: SINK(http.path("/x"), cdc="debezium", renames=3), "renames must be a dict, found 3"),
    "dataset": (lambda: dataset(indx=True)(Body), r"dataset: unknown argument 'indx'; did you mean 'index'\?"),
    "dataset, history": (lambda: dataset(history=3)(Body), "dataset 'Body': history: invalid duration 3"),
    "index": (lambda: index(onlin=True), r"index: unknown argument 'onlin'; did you mean 'online'\?"),
    "pipeline": (lambda: pipeline(evn="a"), r"pipeline: unknown argument 'evn'; did you mean 'env'\?"),
    "field": (lambda: FIELD(kye=True), r"field: unknown argument 'kye'; did you mean 'key'\?"),
    "field, many": (lambda: FIELD(True, False, False, True), "field: at most 3 arguments by position, found 4"),
    "feature": (lambda: feature(defualt=3), r"feature: unknown argument 'defualt'; did you mean 'default'\?"),
    "featureset": (lambda: featureset(), "featureset: 'cls' missing"),
    "extractor": (lambda: extractor(dep=[]), r"extractor: unknown argument 'dep'; did you mean 'deps'\?"),
    "commit()": (lambda: COMMIT(MockClient()), "commit: 'message' missing"),
    "commit": (lambda: COMMIT(MockClient(), "m", dataset=[]), r"'dataset'; did you mean 'datasets'\?"),
    "commit, many": (lambda: COMMIT(MockClient(), *range(9)), "commit: at most 7 arguments by position, found 9"),
    "endpoint": (lambda: web.endpoint(), "endpoint: 'endpoint' missing"),
    "topic, number": (lambda: KAFKA.topic(3), r"Kafka 'k': topic must be a text, found 3"),
    "topic, list": (lambda: KAFKA.topic(["a", "b"]), r"topic must be a text, found \['a', 'b'\]"),
    "table, none": (lambda: POSTGRES.table(None, cursor="at"), r"table must be a text, found None"),
    "cursor": (lambda: POSTGRES.table("t", cursor=3), r"Postgres 'p', table 't': cursor must be a text, found 3"),
    "bucket, prefix": (lambda: BUCKETS.bucket("b", prefix=3), r"S3 's': prefix must be a text, found 3"),
    "stream": (lambda: KINESIS.stream(None, "latest"), r"stream_arn must be a text, found None"),
    "lake": (lambda: LAKE.table(3), r"Iceberg 'i': table must be a text, found 3"),
    "endpoint, none": (lambda: web.endpoint(None), "an endpoint is a text, found None"),
}
VALUES: dict[str, tuple[Callable[[], Any], str]] = {
    "topic": (lambda: KAFKA.topic(" "), r"Kafka 'k': topic is empty"),
    "table": (lambda: POSTGRES.table(""), r"Postgres 'p': table is empty"),
    "collection": (lambda: MONGO.collection(""), r"Mongo 'm': table is empty"),
    "bucket": (lambda: BUCKETS.bucket("", prefix="x"), r"S3 's': bucket_name is empty"),
    "queue": (
        lambda: PubSub(name="q", project_id="p", service_account_key={}).topic(""),
        r"PubSub 'q': topic_id is empty",
    ),
    "source, every": (
        lambda: SOURCE(web.endpoint("e"), disorder="1d", cdc="append", every=""),
        "every: invalid duration ''",
    ),
    "commit, preview": (lambda: COMMIT(MockClient(), "m", preview="no"), "commit: preview must be True or False"),
}


@pytest.mark.parametrize(
    ("call", "message", "kind"),
    [*((*each, InvalidType) for each in CALLS.values()), *((*each, InvalidValue) for each in VALUES.values())],
    ids=[*CALLS, *(f"{name} value" for name in VALUES)],
)
def test_a_wrong_argument_has_a_remedy(call: Callable[[], Any], message: str, kind: type[UmbelError]) -> None:
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.value.hint
    assert str(caught.value.raised_at).startswith(__file__), "the line of the call"


def test_an_older_spelling_is_reported_where_it_is() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        feature(id=3)
    assert [each.filename for each in found] == [__file__]
