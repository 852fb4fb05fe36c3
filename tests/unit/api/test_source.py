"""`@source` and `@sink` (api §3.2, §3.3, §15)."""

import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Optional

import pandas as pd
import pytest

import umbel.sources
from tests.unit.refusals import Cases, check_refused, refusal
from umbel.api.dataset import Dataset, dataset, record_of
from umbel.api.field import field
from umbel.api.metadata import meta
from umbel.connectors import (
    CSV,
    HTTP,
    S3,
    Avro,
    BigQuery,
    Kafka,
    Mongo,
    MySQL,
    Postgres,
    Ref,
    Sample,
    SnapshotData,
    Snowflake,
    Webhook,
    eval,
    ref,
    sink,
    source,
)
from umbel.expr import col
from umbel.testing import MockClient, log

__owner__ = "team@example.com"
refused = Cases()
WEB = Webhook(name="w").endpoint("e")
MYSQL = MySQL(name="m", host="h", db_name="d", username="u", password="x")
POSTGRES = Postgres(name="p", host="h", db_name="d", username="u", password="x")
BROKER = Kafka(name="k", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
FILES = S3(name="s")
SNOW = Snowflake(name="s", account="a", db_name="d", username="u", password="p", warehouse="w", schema="s", role="r")
MONGO = Mongo.get("m").collection("c", cursor="x")
SERVER = HTTP(name="h", host="x", healthz="/h")


def stream() -> Dataset:
    @dataset
    class Stream:
        a: int
        t: datetime

    return Stream


def table() -> Dataset:
    @dataset
    class Table:
        k: int = field(key=True)
        t: datetime

    return Table


def test_sources_stack_in_the_order_they_are_written() -> None:
    @source(WEB, disorder="1d", cdc="append", env="prod")
    @meta(owner="a@b.c")
    @source(
        FILES.bucket("b", prefix="p"),
        disorder="2h",
        cdc="append",
        every="10m",
        since=datetime(2024, 1, 1),
        until=datetime(2025, 1, 1, tzinfo=UTC),
        preproc={"a": 3},
        bounded=True,
        idleness="1h",
        where=lambda df: df["a"] > 1,
        sample=0.5,
    )
    @dataset
    class D:
        a: int
        t: datetime

    first, second = record_of(D).sources
    assert (first.connector.kind, first.disorder, first.every) == ("webhook", 86_400_000_000, 1_800_000_000)
    assert (first.env.selects("prod"), first.env.selects("dev"), first.idleness) == (True, False, None)
    assert (second.every, second.idleness) == (600_000_000, 3_600_000_000)
    assert (second.since, second.until) == (datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
    assert second.declared is not None
    assert second.declared.sample == Sample(0.5)  # type: ignore[attr-defined]
    assert first.location.startswith(__file__)
    assert record_of(D).meta.owner == "a@b.c"


@pytest.mark.parametrize(
    ("name", "path"),
    [("a", ("a",)), ("a b", ("a b",)), ("a[b]", ("a", "b")), ("a[b][c d]", ("a", "b", "c d"))],
)
def test_ref(name: str, path: tuple[str, ...]) -> None:
    assert ref(name).path == path


def test_the_older_spelling() -> None:
    with pytest.warns(DeprecationWarning, match="older") as report:
        keyed = umbel.sources.source(POSTGRES.table("t"), every="1m", cursor="at", lateness="2h", tier="prod")(table())
    text = "\n".join(str(each.message) for each in report)
    assert all(part in text for part in ("lateness", "disorder", "tier", "env", "cursor", "umbel.connectors"))
    (found,) = record_of(keyed).sources
    assert (found.cdc, found.disorder, found.every) == ("upsert", 7_200_000_000, 60_000_000)
    assert found.connector.cursor == "at"  # type: ignore[attr-defined]
    assert found.env.selects("prod")
    assert not found.env.selects("dev")
    with pytest.warns(DeprecationWarning, match="umbel.sources"):
        keyless = umbel.sources.source(WEB, disorder="1d", preproc={"a": 1})(stream())
    assert record_of(keyless).sources[0].cdc == "append"


def test_sinks() -> None:
    made = sink(BROKER.topic("t"), cdc="debezium", env="~dev")(table())
    made = sink(SNOW.table("t"), how="incremental", renames={"k": "key"}, every="1h")(made)
    made = sink(SERVER.path("e"), cdc="debezium", how="incremental")(made)
    made = sink(FILES.bucket("b", prefix="p", format="delta"), how="incremental", since=datetime(2024, 1, 1))(made)
    lake, server, snow, topic = record_of(made).sinks
    assert [each.connector.kind for each in (lake, server, snow, topic)] == ["s3", "http", "snowflake", "kafka"]
    assert (dict(snow.renames), snow.every) == ({"k": "key"}, 3_600_000_000)
    assert lake.since == datetime(2024, 1, 1, tzinfo=UTC)
    assert not topic.env.selects("dev")


def feed(**options: Any) -> Callable[[], Dataset]:
    arguments = {"conn": WEB, "disorder": "1d", "cdc": "append", **options}
    return lambda: source(**arguments)(stream())


def drain(**options: Any) -> Callable[[], Dataset]:
    return lambda: sink(**options)(table())


refused.add("bare source", feed(conn=Webhook(name="w")), TypeError, "Webhook 'w'", "endpoint")
refused.add("bare kafka", feed(conn=BROKER), TypeError, "Kafka 'k'", "topic")
refused.add("bare postgres", feed(conn=POSTGRES), TypeError, "Postgres 'p'", "table", "cursor")
refused.add("no connector", feed(conn="kafka"), TypeError, "'kafka'")
refused.add("number", feed(conn=5), TypeError, "5")
refused.add("http", feed(conn=SERVER.path("e")), TypeError, "HTTPConnector", "'h'")
refused.add("no cursor", feed(conn=POSTGRES.table("t")), TypeError, "cursor", "'t'")
refused.add("no snowflake cursor", feed(conn=SNOW.table("t")), ValueError, "Snowflake 's'", "cursor")
refused.add("cdc", feed(cdc="log"), ValueError, "'log'", "'debezium'")
refused.add("delta", feed(conn=FILES.bucket("b", prefix="p", format="delta")), ValueError, "native", "append")
refused.add("disorder", feed(disorder="1x"), ValueError, "disorder", "1x")
refused.add("disorder type", feed(disorder=3), TypeError, "disorder")
refused.add("every", feed(every="1x"), ValueError, "every", "1x")
refused.add("since", feed(since="2024"), TypeError, "since", "2024")
refused.add("until", feed(until=3), TypeError, "until")
refused.add("since > until", feed(since=datetime(2025, 1, 1), until=datetime(2024, 1, 1)), ValueError, "since", "until")
refused.add("bounded", feed(bounded=True), AttributeError, "idleness")
refused.add("idleness", feed(idleness="1h"), AttributeError, "bounded")
refused.add("sample", feed(sample=1.5), ValueError, "1.5")
refused.add("negative sample", feed(sample=-0.1), ValueError, "-0.1")
refused.add("sample of a class", feed(sample=Sample), ValueError, "sample")
refused.add("empty using", lambda: Sample(0.5, using=[]), ValueError, "using")
refused.add("using that is no list", lambda: Sample(0.5, using=3), TypeError, "using", "3")
refused.add("using that is text", lambda: Sample(0.5, using="a"), TypeError, "using", "'a'")
refused.add("env", feed(env=["a", "~b"]), ValueError, "env", "~b")
for bad in ("", "~", "a b", ["a", ""], " "):  # type: ignore[assignment]
    refused.add(f"env {bad!r}", feed(env=bad), ValueError, "invalid env")
refused.add("lateness", feed(lateness="1d"), TypeError, "lateness", "disorder")
refused.add("tier", feed(tier="a"), TypeError, "tier", "env")
refused.add("cursor", feed(cursor="a"), TypeError, "cursor")
refused.add(
    "on a class", lambda: source(WEB, disorder="1d", cdc="append")(int), TypeError, "@source needs a dataset", "int"
)
refused.add("ref nested", feed(preproc={"a": ref("x[y]")}), ValueError, "x[y]", "Webhook 'w'")
for name, flat in {"csv": FILES.bucket("b", prefix="p"), "table": POSTGRES.table("t", "c"), "mongo": MONGO}.items():
    refused.add(f"ref nested in {name}", feed(conn=flat, preproc={"a": ref("x[y]")}), ValueError, "'a'", "x[y]")
refused.add("ref made by hand", feed(preproc={"a": Ref("x[y")}), ValueError, "x[y", "'a'")
refused.add("ref empty", lambda: ref(" "), ValueError, "ref")
refused.add("ref without text", lambda: ref(""), ValueError, "ref")
refused.add("ref nothing", lambda: ref("[a]"), ValueError, "[a]")
for bad in ("a[b", "a]b", "a]b[", "a[b]c", "a[[b]]", "a[]"):
    refused.add(f"ref {bad}", lambda bad=bad: ref(bad), ValueError, bad, "brackets")
refused.add("eval", lambda: eval(3), TypeError, "3")
refused.add("sink: bare", drain(conn=BROKER), ValueError, "Kafka 'k'", "topic")
refused.add("sink: bare s3", drain(conn=FILES), ValueError, "S3 's'", "bucket")
refused.add("sink: nothing", drain(conn="k"), ValueError, "'k'")
refused.add("sink: webhook", drain(conn=WEB), ValueError, "WebhookConnector")
refused.add("sink: table", drain(conn=MYSQL.table("t")), ValueError, "MySQLTable", "MySQL")
refused.add("sink: cursor", drain(conn=POSTGRES.table("t", "c")), ValueError, "table 't'", "cursor")
big = BigQuery(name="b", project_id="p", dataset_id="d", service_account_key={})
refused.add("sink: bigquery", drain(conn=big.table("t")), ValueError, "BigQuery 'b'")
topic, path, lake, snow = (
    BROKER.topic("t"),
    SERVER.path("e"),
    FILES.bucket("b", prefix="p", format="delta"),
    SNOW.table("t"),
)
for name, connector in {"kafka": topic, "http": path}.items():
    base: dict[str, Any] = {"conn": connector, "cdc": "debezium"}
    refused.add(f"sink {name}: no cdc", drain(conn=connector), ValueError, "debezium")
    refused.add(f"sink {name}: cdc", drain(conn=connector, cdc="upsert"), ValueError, "debezium", "upsert")
    refused.add(f"sink {name}: every", drain(**base, every="1d"), ValueError, "every")
    refused.add(f"sink {name}: how", drain(**base, how="recreate"), ValueError, "incremental", "recreate")
    refused.add(f"sink {name}: renames", drain(**base, renames={"k": "x"}), ValueError, "renames")
    refused.add(f"sink {name}: since", drain(**base, since=datetime(2024, 1, 1)), ValueError, "since")
    refused.add(f"sink {name}: until", drain(**base, until=datetime(2024, 1, 1)), ValueError, "until")
avro = Avro(registry="confluent", url="u")
refused.add(
    "sink kafka: format", drain(conn=BROKER.topic("t", format=avro), cdc="debezium"), ValueError, "format", "json"
)
refused.add("sink s3: cdc", drain(conn=lake, cdc="debezium", how="incremental"), ValueError, "cdc")
refused.add("sink s3: how", drain(conn=lake, how=SnapshotData("done", 2)), ValueError, "incremental")
refused.add("sink s3: recreate", drain(conn=lake, how="recreate"), ValueError, "how")
refused.add("sink s3: no how", drain(conn=lake), ValueError, "incremental")
refused.add(
    "sink s3: format", drain(conn=FILES.bucket("b", prefix="p", format=CSV()), how="incremental"), ValueError, "delta"
)
own = S3(name="s", role_arn="a").bucket("b", prefix="p", format="delta")
refused.add("sink s3: role", drain(conn=own, how="incremental"), ValueError, "role")
refused.add("sink snowflake: cdc", drain(conn=snow, cdc="upsert", how="incremental"), ValueError, "cdc")
refused.add("sink snowflake: cursor", drain(conn=SNOW.table("t", "at"), how="incremental"), ValueError, "cursor")
refused.add("sink snowflake: how", drain(conn=snow, how="recreate"), ValueError, "recreate")
refused.add(
    "sink: unknown column", drain(conn=snow, how="incremental", renames={"zz": "y"}), ValueError, "Table", "'zz'"
)
for naming, reason in (
    ({"k": "t"}, "two fields would be the column 't'"),
    ({"k": "x", "t": "x"}, "two fields would be the column 'x'"),
    ({"k": ""}, "column 'k' cannot be named ''"),
    ({"k": 5}, "column 'k' cannot be named 5"),
):
    refused.add(f"sink: {reason}", drain(conn=snow, how="incremental", renames=naming), ValueError, "Table", reason)
refused.add("sink on a class", lambda: sink(topic, cdc="debezium")(int), TypeError, "@sink needs a dataset")


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)


def test_disorder_and_cdc_are_needed() -> None:
    with pytest.raises(TypeError, match="disorder"):
        source(WEB, cdc="append")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="cdc"):
        source(WEB, disorder="1d")  # type: ignore[call-arg]
    assert eval(col("a")).schema is None


def keyless(**options: object) -> Dataset:
    @source(WEB, disorder="14d", cdc="append", **options)
    @dataset
    class D:
        a: int
        b: Optional[float]
        c: str
        t: datetime

    return D


def test_the_older_spelling_still_feeds_a_dataset() -> None:
    from umbel.dtypes import Dict, Option
    from umbel.lib.schema import Option as Option2
    from umbel.sources import Postgres as OldPostgres
    from umbel.sources import source as old_source

    assert Option2 is Option
    postgres = OldPostgres(name="p", host="h", db_name="d", username="u", password="p")
    with pytest.warns(DeprecationWarning) as report:

        @old_source(postgres.table("user"), every="1m", cursor="update_time", lateness="1d", tier="prod")
        @dataset
        class User:
            uid: int = field(key=True)
            tags: Dict[int]
            nick: Option[str]
            update_time: datetime

    text = " ".join(str(each.message) for each in report)
    for word in ("lateness", "disorder", "tier", "env", "cursor", "umbel.connectors"):
        assert word in text
    assert report[0].filename == __file__
    client = MockClient()
    assert client.commit("m", datasets=[User], env="prod").status_code == 200
    log(User, pd.DataFrame({"uid": [1], "tags": [{"a": 1}], "nick": [None], "update_time": [datetime(2024, 1, 1)]}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert old_source(OldPostgres.get("p").table("t"), lateness="1h")(keyless())
    for old, new in (("lateness", "disorder"), ("tier", "env"), ("cursor", "table")):
        with refusal(TypeError, old, new):
            source(WEB, cdc="append", disorder="1d", **{old: "1d"})


def test_a_sink_names_the_wrong_duration() -> None:
    with refusal(ValueError, "every", "zz"):
        sink(S3(name="s").bucket("b", prefix="p", format="delta"), how="incremental", every="zz")
