"""What a commit checks (api §2.5–2.7, §3, §6.3, §13)."""

import sys
from datetime import datetime
from typing import Any, Optional

import pytest

from tests.unit.refusals import Cases, check_refused
from umbel.aggregates import Count
from umbel.api.commit import check_commit
from umbel.api.dataset import Dataset, dataset
from umbel.api.extractor import extractor
from umbel.api.feature import feature as F
from umbel.api.featureset import Featureset, featureset
from umbel.api.field import field
from umbel.api.inputs import inputs, outputs
from umbel.api.metadata import meta
from umbel.api.pipeline import pipeline
from umbel.connectors import S3, Kafka, Webhook, sink, source
from umbel.definitions.env import EVERY
from umbel.definitions.records import Definitions, leaves
from umbel.definitions.serde import dump
from umbel.expr import col
from umbel.types.windows import Continuous

refused = Cases()
OWNER = meta(owner="a@b.c")
WEB = Webhook(name="w")
TOPIC = Kafka(name="k", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN").topic("t")
LAKE = S3(name="s").bucket("b", prefix="p", format="delta")
FOREVER = Continuous("forever")


def events(version: int = 1, extra: bool = False, **options: Any) -> Dataset:
    annotations = {"uid": int, "amount": float, **({"extra": int} if extra else {}), "t": datetime}
    return OWNER(
        dataset(version=version, **options)(
            type("Events", (), {"__annotations__": annotations, "__module__": __name__})
        )
    )


EVENTS = events()


def table(**decorations: Any) -> Dataset:
    @OWNER
    @dataset(index=True)
    class Users:
        uid: int = field(key=True)
        name: Optional[str]
        t: datetime

    return Users


USERS = table()


def totals(source_of: Dataset = EVENTS, version: int = 1, threshold: int = 0, tags: tuple[str, ...] = ()) -> Dataset:
    @meta(owner="a@b.c", tags=tags)
    @dataset(index=True, version=version)
    class Totals:
        uid: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(source_of)
        def counted(cls, rows):
            return rows.filter(lambda df: df["amount"] > threshold).groupby("uid").aggregate(n=Count(window=FOREVER))

    return Totals


@OWNER
@featureset
class Request:
    uid: int


@OWNER
@featureset
class Features:
    uid: int = F(Request.uid)
    name: str = F(USERS.name, default="?")


# what comes of a commit


def test_definitions() -> None:
    fed = source(WEB.endpoint("e"), disorder="1d", cdc="append")(EVENTS)
    drained = sink(TOPIC, cdc="debezium")(totals())
    found = check_commit([fed, drained, USERS], [Features, Request], env="prod")
    assert list(found.datasets) == ["Events", "Totals", "Users"]
    assert list(found.featuresets) == ["Features", "Request"]
    one, two = found.datasets["Events"], found.datasets["Totals"]
    assert (one.output, one.ingestion, one.sources[0].connector.kind) == (None, "upsert", "webhook")
    assert two.output is not None
    assert (two.inputs, two.online, two.offline, two.sinks[0].cdc) == (("Events",), True, True, "debezium")
    assert [leaf.appends for leaf in leaves(two.output)] == [True]
    assert two.meta.owner == "a@b.c"
    assert [each.name for each in found.featuresets["Features"].extractors] == ["_alias_uid", "_lookup_name"]


def test_environments_select() -> None:
    fed = source(WEB.endpoint("a"), disorder="1d", cdc="append", env="a")(EVENTS)
    fed = source(WEB.endpoint("b"), disorder="1d", cdc="append", env="~a")(fed)

    def endpoints(env: str | None) -> list[str]:
        return [each.connector.endpoint for each in check_commit([fed], [], env).datasets["Events"].sources]  # type: ignore[attr-defined]

    assert endpoints("a") == ["a"]
    assert endpoints("other") == ["b"]
    assert endpoints(None) == ["b", "a"]


def test_environments_leave_no_trace_in_a_commit() -> None:
    def committed(env: str | list[str], other: str) -> Definitions:
        fed = source(WEB.endpoint("a"), disorder="1d", cdc="append", env=env, sample=0.5)(events())
        drained = sink(TOPIC, cdc="debezium", env=env)(several(env, other))
        return check_commit([fed, drained], [twice(env)], "here")

    found = committed("here", "~here")
    assert dump(found) == dump(committed(["here", "also"], "elsewhere"))
    selected: list[Any] = [found.datasets["Events"].sources[0], found.datasets["Several"].sinks[0]]
    selected.extend(found.featuresets["Twice"].extractors)
    assert {each.env for each in selected} == {EVERY}
    assert (selected[0].declared, found.datasets["Several"].pipelines) == (None, ())


def several(one: Any, two: Any) -> Dataset:
    @OWNER
    @dataset
    class Several:
        uid: int
        t: datetime

        @pipeline(env=one)
        @inputs(EVENTS)
        def first(cls, rows):
            return rows.filter(col("uid") > 1).select("uid")

        @pipeline(env=two)
        @inputs(EVENTS)
        def second(cls, rows):
            return rows.filter(col("uid") > 2).select("uid")

    return Several


def test_pipelines_of_an_environment() -> None:
    def output(env: str | None) -> Any:
        return check_commit([EVENTS, several("a", "b")], [], env).datasets["Several"].output

    assert output("a").pipeline == "Several.first"
    assert output("b").pipeline == "Several.second"
    assert output("c") is None
    assert len(output(None).parents) == 2


def test_cdc_decides_how_rows_are_meant() -> None:
    for cdc, ingestion in {"upsert": "upsert", "debezium": "debezium"}.items():
        fed = source(WEB.endpoint("e"), disorder="1d", cdc=cdc)(USERS)
        assert check_commit([fed], []).datasets["Users"].ingestion == ingestion
    hudi = S3(name="s").bucket("b", prefix="p", format="hudi")
    for conn, cdc in ((LAKE, "native"), (hudi, "native"), (TOPIC, "debezium")):
        native = source(conn, disorder="1d", cdc=cdc)(USERS)
        assert check_commit([native], []).datasets["Users"].ingestion == "debezium"


def test_a_source_in_one_environment_and_a_pipeline_in_another() -> None:
    both = source(WEB.endpoint("e"), disorder="1d", cdc="append", env="prod")(several("dev", "test"))
    prod, dev = (check_commit([EVENTS, both], [], env).datasets["Several"] for env in ("prod", "dev"))
    assert (len(prod.sources), prod.output) == (1, None)
    assert dev.sources == ()
    assert dev.output is not None
    check_refused(lambda: check_commit([EVENTS, both], []), ValueError, ("'Several'", "a source and a pipeline"))


def test_a_module_may_have_an_owner() -> None:
    space = {"__name__": "elsewhere", "__owner__": "m@b.c", "dataset": dataset, "datetime": datetime}
    exec("@dataset\nclass D:\n    t: datetime\n", space)
    found: Any = space["D"]
    assert check_commit([found], []).datasets["D"].meta.owner == "m@b.c"
    assert check_commit([meta(owner="own@b.c")(found)], []).datasets["D"].meta.owner == "own@b.c"


def test_what_is_deleted_is_not_committed() -> None:
    gone = meta(owner="a@b.c", deleted=True)
    found = check_commit([EVENTS, gone(USERS)], [gone(Features), Request])
    assert (list(found.datasets), list(found.featuresets)) == (["Events"], ["Request"])
    before = check_commit([EVENTS, USERS], [Request])
    after = check_commit([gone(USERS)], [], before=before)
    assert (list(after.datasets), list(after.featuresets)) == (["Events"], ["Request"])


def test_incremental_commits_keep_the_rest() -> None:
    before = check_commit([EVENTS, USERS], [Features, Request])
    after = check_commit([totals()], [], before=before)
    assert list(after.datasets) == ["Events", "Users", "Totals"]
    assert list(after.featuresets) == ["Features", "Request"]
    assert after.datasets["Users"] is before.datasets["Users"]


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        (totals(), totals(), True),
        (totals(tags=("a",)), totals(tags=("b",)), True),
        (totals(), totals(threshold=1), False),
        (totals(), totals(version=2, threshold=1), True),
        (totals(version=2), totals(), False),
        (totals(), totals(events(version=2)), True),
        (events(), events(extra=True), False),
        (events(), events(history="1d"), False),
        (events(), events(version=2, extra=True), True),
    ],
)
def test_what_has_changed_needs_a_higher_version(old: Dataset, new: Dataset, fits: bool) -> None:
    before = check_commit([EVENTS, old] if old.__name__ != "Events" else [old], [])
    if fits:
        check_commit([new], [], before=before)
    else:
        check_refused(lambda: check_commit([new], [], before=before), ValueError, (f"'{new.__name__}'", "version"))
    datasets = [EVENTS, new] if new.__name__ != "Events" else [new]
    assert new.__name__ in check_commit(datasets, []).datasets


def test_a_signature_ignores_sources_and_a_fingerprint_does_not_ignore_versions() -> None:
    fed = source(WEB.endpoint("e"), disorder="1d", cdc="append")(EVENTS)
    one, two = (check_commit([each], []).datasets["Events"] for each in (EVENTS, fed))
    assert (one.signature, one.fingerprint) == (two.signature, two.fingerprint)
    later = check_commit([events(version=2)], []).datasets["Events"]
    assert later.signature == one.signature
    assert later.fingerprint != one.fingerprint


# what is refused


def refuse(
    name: str, datasets: list[Any], featuresets: list[Any], error: type[Exception], *texts: str, **options: Any
) -> None:
    refused.add(name, lambda: check_commit(datasets, featuresets, **options), error, *texts)


@dataset
class Unowned:
    t: datetime


@featureset
class Nobodys:
    a: int


def fed(dataset_: Dataset, cdc: str = "append", **options: Any) -> Dataset:
    return source(WEB.endpoint("e"), disorder="1d", cdc=cdc, **options)(dataset_)


refuse("no owner", [Unowned], [], Exception, "'Unowned'", "must have an owner")
refuse("no owner of features", [], [Nobodys], Exception, "'Nobodys'", "must have an owner")
refuse("no dataset", [Request], [], TypeError, "'Request'", "Featureset")
refuse("no featureset", [], [EVENTS], TypeError, "'Events'", "Dataset")
refuse("no object", [3], [], TypeError, "3", "int")
refuse("twice", [EVENTS, events()], [], ValueError, "'Events'", "twice")
refuse("append with keys", [fed(USERS)], [], ValueError, "'Users'", "append")
refuse("upsert without keys", [fed(EVENTS, "upsert")], [], ValueError, "'Events'", "upsert")
refuse("source and pipeline", [EVENTS, fed(totals(), "upsert")], [], ValueError, "'Totals'", "'counted'")
refuse("pipelines without env", [EVENTS, several(None, "a")], [], ValueError, "'Several'", "'first'", "env")
refuse("pipelines share an env", [EVENTS, several(["a", "b"], "b")], [], ValueError, "'first'", "'second'", "env b")
refuse("pipelines share the rest", [EVENTS, several("~a", "b")], [], ValueError, "'Several'", "env b")
refuse("sink on a source", [sink(TOPIC, cdc="debezium")(fed(EVENTS))], [], ValueError, "'Events'", "sink")
refuse("missing input", [totals()], [], ValueError, "'Events'", "'Totals.counted'")
refuse("missing dataset", [], [Features, Request], ValueError, "'Users'", "_lookup_name")
refuse("env", [EVENTS], [], ValueError, "~a", env="~a")
refuse("many faults", [Unowned, fed(USERS)], [Nobodys], ValueError, "3 faults", "Unowned", "Users", "Nobodys")


def test_preproc_is_selected_with_its_source() -> None:
    bad = fed(EVENTS, env="a", preproc={"zz": 1})
    assert check_commit([bad], [], env="b").datasets["Events"].sources == ()
    check_refused(lambda: check_commit([bad], [], env="a"), ValueError, ("'Events'", "'zz'"))


@refused(TypeError, "'Twice.a'", "'Twice'", "'one' and 'two'")
def extracted_twice() -> None:
    check_commit([], [twice(None)])


def twice(env: Any) -> Featureset:
    @OWNER
    @featureset
    class Twice:
        a: int
        b: int

        @extractor(env=env)
        @inputs("b")
        @outputs("a")
        def one(cls, ts, b):
            return b

        @extractor(env="there")
        @inputs("b")
        @outputs("a")
        def two(cls, ts, b):
            return b

    return Twice


def test_other_environments_may_extract_otherwise() -> None:
    found = check_commit([], [twice("here")], env="here").featuresets["Twice"]
    assert [each.name for each in found.extractors] == ["one"]


@refused(Exception, "circle", "Round.a", "Round.b")
def circle_of_features() -> None:
    @OWNER
    @featureset
    class Round:
        a: int = F(col("b") + 1)
        b: int = F(col("a") + 1)

    check_commit([], [Round])


@refused(ValueError, "circle", "Events -> Events")
def circle_of_datasets() -> None:
    below = totals()

    @OWNER
    @dataset(version=2)
    class Events:
        uid: int
        amount: float
        t: datetime

        @pipeline
        @inputs(EVENTS)
        def p(cls, rows):
            return rows

    @OWNER
    @dataset
    class Other:
        uid: int
        amount: float
        t: datetime

        @pipeline
        @inputs(Events)
        def p(cls, rows):
            return rows

    assert below.num_pipelines() == 1
    check_commit([Events, Other, below], [])


@refused(ValueError, "'Totals'", "version 1", "'Events'", "version 2")
def stale_input() -> None:
    check_commit([events(version=2, extra=True)], [], before=check_commit([EVENTS, totals()], []))


@refused(Exception, "'Request'", "superset", "uid")
def features_removed() -> None:
    @OWNER
    @featureset
    class Request:
        other: int

    check_commit([], [Request], before=Definitions({}, check_commit([], [globals()["Request"]]).featuresets))


@refused(ValueError, "cannot travel", "'handle'")
def function_that_cannot_travel() -> None:
    handle = sys.__stdout__

    @OWNER
    @dataset
    class D:
        uid: int
        t: datetime

        @pipeline
        @inputs(EVENTS)
        def p(cls, rows):
            return rows.filter(lambda df: df["uid"] > handle.fileno()).select("uid")

    check_commit([EVENTS, D], [])


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)
