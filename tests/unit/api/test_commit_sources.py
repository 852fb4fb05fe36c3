"""What a commit checks of preproc, where and sample (api §3.2)."""

from datetime import datetime
from typing import Any, Optional

import pytest

from tests.unit.refusals import Cases, check_refused
from umbel.api.commit import check_commit
from umbel.api.dataset import dataset
from umbel.api.field import field
from umbel.api.metadata import meta
from umbel.connectors import S3, Avro, Kafka, Kinesis, PubSub, Sample, eval, ref, source
from umbel.definitions.preproc import ConstantColumn, Evaluated, ReferenceColumn
from umbel.definitions.records import Sampling
from umbel.expr import col
from umbel.types.annotations import between

refused = Cases()
OWNER = meta(owner="a@b.c")
COLUMNS = {"uid": int, "amount": float, "note": Optional[str], "few": between(int, 1, 4), "t": datetime}
NOTED = OWNER(dataset(type("Noted", (), {"__annotations__": COLUMNS, "__module__": __name__})))
KAFKA = Kafka(name="k", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
NESTED = KAFKA.topic("t")


def refuse_source(name: str, error: type[Exception], *texts: str, conn: Any = NESTED, **options: Any) -> None:
    made = source(conn, disorder="1d", cdc="append", **options)(NOTED)
    refused.add(name, lambda: check_commit([made], []), error, "'Noted'", *texts)


refuse_source("preproc: no column", ValueError, "'zz'", preproc={"zz": 1})
refuse_source("preproc: timestamp", ValueError, "'t'", "timestamp", preproc={"t": eval(lambda df: df["x"])})
refuse_source("preproc: type", TypeError, "'uid'", "expected int", "found float", preproc={"uid": eval(col("amount"))})
refuse_source("preproc: promotion", TypeError, "'amount'", "found int", preproc={"amount": eval(col("uid"))})
refuse_source(
    "preproc: optional", TypeError, "Optional[str]", preproc={"uid": eval(col("x"), schema={"x": Optional[str]})}
)
refuse_source(
    "preproc: astype",
    TypeError,
    "'uid'",
    "float",
    preproc={"uid": eval((col("uid2") + 1).astype(float), schema={"uid2": int})},
)
refuse_source("preproc: unknown", ValueError, "zz", preproc={"uid": eval(col("zz"))})
refuse_source("preproc: made by preproc", ValueError, "few", preproc={"uid": eval(col("few")), "few": 2})
refuse_source("preproc: constant", ValueError, "'uid'", "int", "'x'", preproc={"uid": "x"})
refuse_source("preproc: constant out of range", ValueError, "'few'", "9", preproc={"few": 9})
refuse_source(
    "preproc: astype of another type", TypeError, "'uid'", "int", "float",
    preproc={"uid": eval((col("amount") * 1.5).astype(int))},
)  # fmt: skip
refuse_source("where: unknown", ValueError, "where", "nothing", where=eval(col("nothing") > 1))
refuse_source("where: type", TypeError, "where", "expected bool", "found int", where=eval(col("uid")))
refuse_source("where: optional", TypeError, "where", "Optional[bool]", where=eval(col("note") == "x"))
refuse_source("where: nothing", TypeError, "where", "3", where=3)
refuse_source("sample: preproc", ValueError, "'uid'", "preproc", sample=Sample(0.5, ["uid"]), preproc={"uid": 1})
refuse_source("sample: timestamp", ValueError, "'t'", "timestamp", sample=Sample(0.5, ["t"]))
refuse_source("sample: unknown", ValueError, "'zz'", sample=Sample(0.5, ["zz"]))
refuse_source(
    "sample: nothing left",
    ValueError,
    "no columns",
    sample=0.5,
    preproc={"uid": 1, "amount": 1.0, "note": None, "few": 1},
)


def keyed() -> Any:
    columns = {"k": int, "a": int, "t": datetime}
    body = {"__annotations__": columns, "__module__": __name__, "k": field(key=True)}
    return OWNER(dataset(index=True)(type("Keyed", (), body)))


@refused(ValueError, "'Keyed'", "no columns")
def sample_without_keys() -> None:
    check_commit([source(NESTED, disorder="1d", cdc="upsert", preproc={"k": 1}, sample=0.5)(keyed())], [])


def test_keyed_rows_are_sampled_by_their_keys() -> None:
    fed = source(NESTED, disorder="1d", cdc="upsert", sample=1)(keyed())
    assert check_commit([fed], []).datasets["Keyed"].sources[0].sample == Sampling(1.0, ("k",))


NESTING = (
    S3(name="s").bucket("b", prefix="p", format="json"),
    KAFKA.topic("t", format=Avro(registry="confluent", url="u")),
    Kinesis(name="k", role_arn="r").stream("a", "latest", "json"),
    PubSub(name="p", project_id="p", service_account_key={}).topic("t", "json"),
)


@pytest.mark.parametrize("conn", NESTING, ids=lambda each: each.kind)
def test_nested_data_may_be_referred_to(conn: Any) -> None:
    fed = source(conn, disorder="1d", cdc="append", preproc={"uid": ref("x[y][z]")})(NOTED)
    (found,) = check_commit([fed], []).datasets["Noted"].sources
    assert found.preproc == (("uid", ReferenceColumn(("x", "y", "z"))),)


def test_preproc_where_and_sample_as_they_are_committed() -> None:
    made = source(
        NESTED,
        disorder="1d",
        cdc="append",
        preproc={"uid": ref("a[b]"), "note": "x", "few": eval(col("few2"), schema={"few2": int}), "amount": eval(abs)},
        where=eval((col("uid") > col("limit")).astype(bool), schema={"limit": int}),
        sample=0.5,
    )(OWNER(dataset(type("Noted", (), {"__annotations__": {**COLUMNS, "kept": int}, "__module__": __name__}))))
    (found,) = check_commit([made], []).datasets["Noted"].sources
    preproc = dict(found.preproc)
    assert (preproc["uid"], preproc["note"]) == (ReferenceColumn(("a", "b")), ConstantColumn("x"))
    limited, where = preproc["few"], found.where
    assert isinstance(limited, Evaluated)
    assert where is not None
    assert [name for name, _ in limited.reads] == ["few2"]
    assert [name for name, _ in where.reads] == ["limit", "uid"]
    assert found.sample == Sampling(0.5, ("kept",))


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)
