"""§2.1, §3.2, §3.3 amended: `@source`, `@sink` and `@meta` stand above or below `@dataset`, in any order and mixed."""

import itertools
import warnings
from datetime import datetime, timezone

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.api.commit import check_commit
from umbel.api.dataset import Dataset as Made
from umbel.api.dataset import record_of
from umbel.connectors import Kafka, Postgres, Webhook, eval, ref, sink, source
from umbel.datasets import Dataset, dataset, field, index, pipeline
from umbel.dtypes import struct
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import desc, inputs, meta, outputs
from umbel.sources import source as old_source
from umbel.testing import MockClient, mock

__owner__ = "module@example.com"
T = datetime(2024, 1, 1, tzinfo=timezone.utc)
W = Webhook(name="w")
K = Kafka(
    name="k",
    bootstrap_servers="b:9092",
    security_protocol="PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_plain_username="u",
    sasl_plain_password="p",
)
META = meta(owner="me@example.com", tags=["t"], description="people")
ONE = source(W.endpoint("one"), disorder="1d", cdc="upsert")
TWO = source(W.endpoint("two"), disorder="2d", cdc="upsert", preproc={"name": ref("n")})


def people() -> type:
    class People:
        # whose it is
        uid: int = field(key=True)
        name: str
        t: datetime

    return People


ORDERS = list(itertools.permutations([META, ONE, TWO, dataset(index=True)]))


def _described(made: Made) -> tuple[object, ...]:
    record = record_of(made)
    sources = sorted(str(each.connector) for each in record.sources)
    return record.name, record.schema, record.online, record.offline, record.meta, sources, made._body.owner


@pytest.mark.parametrize("order", ORDERS, ids=range(len(ORDERS)))
def test_any_order_makes_the_same_dataset(order) -> None:
    made = people()
    for decorator in reversed(order):
        made = decorator(made)
    expected = META(ONE(TWO(dataset(index=True)(people()))))
    assert isinstance(made, Made)
    assert _described(made) == _described(expected)
    client = MockClient()
    assert client.commit(message="m", datasets=[made]).status_code == 200
    client.log("w", "one", pd.DataFrame({"uid": [1], "name": ["a"], "t": [T]}))
    client.log("w", "two", pd.DataFrame({"uid": [2], "n": ["b"], "t": [T]}))
    assert client.get_dataset_df("People")["name"].tolist() == ["a", "b"]


def test_those_below_count_as_applied_first() -> None:
    above = ONE(TWO(dataset(people())))
    below = dataset(ONE(TWO(people())))
    mixed = ONE(dataset(TWO(people())))
    expected = [each.connector.endpoint for each in record_of(above).sources]
    for made in (below, mixed):
        assert [each.connector.endpoint for each in record_of(made).sources] == expected
    assert record_of(meta(owner="b@x.yz")(dataset(meta(owner="a@x.yz")(people())))).meta.owner == "b@x.yz"


@source(W.endpoint("Bare"), disorder="1d", cdc="append")
@dataset
@meta(owner="bare@example.com")
class Bare:
    # a comment
    a: int
    t: datetime


@dataset
@source(W.endpoint("Below"), disorder="1d", cdc="append", where=eval(col("a") > 0))
class Below:
    # a comment
    a: int
    t: datetime


@meta(owner="sink@example.com")
@dataset
@sink(K.topic("out"), cdc="debezium")
@sink(K.topic("out2"), cdc="debezium")
class Sunk:
    a: int
    t: datetime

    @pipeline
    @inputs(Below)
    def p(cls, rows: Dataset):
        return rows


@mock
def test_written_as_users_write_it(client) -> None:
    client.commit(message="m", datasets=[Bare, Below, Sunk])
    client.log("w", "Below", pd.DataFrame({"a": [-1, 2], "t": [T, T]}))
    assert client.get_dataset_df("Sunk")["a"].tolist() == [2]
    assert desc(Bare.a) == desc(Below.a) == "a comment"
    assert [each.connector.topic for each in record_of(Sunk).sinks] == ["out", "out2"]
    assert record_of(Sunk).meta.owner == "sink@example.com"
    assert record_of(Bare).meta.owner == "bare@example.com"


class TestNested:
    """Classes inside of classes and functions."""

    @dataset(index=True)
    @source(W.endpoint("Inner"), disorder="1d", cdc="upsert")
    class Inner:
        k: int = field(key=True)
        t: datetime

    @mock
    def test_nested(self, client) -> None:
        client.commit(message="m", datasets=[self.Inner])
        client.log("w", "Inner", pd.DataFrame({"k": [1], "t": [T]}))
        _, found = self.Inner.lookup(pd.Series([T]), k=pd.Series([1]))
        assert found.tolist() == [True]


def test_index_above_sources_below() -> None:
    @index
    @meta(owner="i@example.com")
    @dataset
    @ONE
    class People:
        uid: int = field(key=True)
        name: str
        t: datetime

    assert record_of(People).online
    assert len(record_of(People).sources) == 1
    with refusal(ValueError, "above @dataset", at=False):
        dataset(index(people()))


def test_older_source_below_dataset() -> None:
    pg = Postgres(name="p", host="h", db_name="d", username="u", password="x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)

        @dataset
        @old_source(pg.table("t"), lateness="3h", tier="prod")
        class Old:
            uid: int = field(key=True)
            t: datetime

        @dataset
        @old_source(W.endpoint("x"))
        class Keyless:
            uid: int
            at: datetime

        with pytest.raises(TypeError, match="unknown argument 'latenes'"):
            old_source(W.endpoint("x"), latenes="3h")
    (fed,) = record_of(Old).sources
    assert (fed.cdc, fed.connector.cursor, fed.disorder, set(fed.env.names)) == (
        "upsert",
        "t",
        3 * 3600 * 10**6,
        {"prod"},
    )
    assert record_of(Keyless).sources[0].cdc == "append"


def test_checks_that_need_fields_take_place_when_the_dataset_exists() -> None:
    renaming = sink(_snowflake().table("t"), how="incremental", renames={"nope": "x"})
    noted = renaming(people())  # nothing is known of the fields yet
    with refusal(ValueError, "People", "nope", at=False):
        dataset(noted)
    made = dataset(source(W.endpoint("e"), disorder="1d", cdc="append")(people()))
    with refusal(ValueError, "People", "append"):
        check_commit([made], [])
    made = dataset(source(W.endpoint("e"), disorder="1d", cdc="upsert", preproc={"zip": 1})(people()))
    with refusal(ValueError, "People", "zip"):
        check_commit([made], [])


def _snowflake():
    from umbel.connectors import Snowflake

    return Snowflake(
        name="s", account="a", db_name="d", username="u", password="p", warehouse="w", schema="s", role="r"
    )


def test_elsewhere_they_are_refused() -> None:
    with pytest.raises(TypeError, match="featureset 'Some'"):

        @featureset
        @ONE
        class Some:
            a: int = F()

    with pytest.raises(TypeError, match="struct 'Point'"):

        @ONE
        @struct
        class Point:
            x: int

    with pytest.raises(ValueError, match="@source and @sink are for datasets"):

        @struct
        @ONE
        class Place:
            x: int

    class Base(ONE(people())):
        extra: int

    with pytest.raises(ValueError, match="inherits from class 'People', which has @source"):
        dataset(Base)
    with pytest.raises(TypeError, match="needs a dataset, found 3"):
        ONE(3)


@pytest.mark.parametrize(
    ("above", "below", "text"),
    [
        (inputs("a"), extractor, "@inputs must be below @extractor of 'made'"),
        (outputs("a"), extractor(version=2), "@outputs must be below @extractor of 'made'"),
    ],
)
def test_inputs_and_outputs_stand_below(above, below, text) -> None:
    def made(cls, ts):
        return ts

    with pytest.raises(TypeError, match=text):
        above(below(made))
