"""The fluent operators: which arguments are refused (api §4, §13)."""

import warnings
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.unit.api.streams import FOREVER, Cities, Events, Users, built
from tests.unit.refusals import Cases, check_refused
from umbel.aggregates import Average, Count, Distinct, ExpDecaySum, FirstK, LastK, Max, Min, Quantile, Sum
from umbel.api.dataset import Dataset
from umbel.errors import NotSupported
from umbel.expr import col
from umbel.types.windows import Hopping, Session, Tumbling

refused = Cases()


def refuse(
    name: str, body: Callable[..., Any], datasets: tuple[Dataset, ...], error: type[Exception], *texts: str
) -> None:
    refused.add(name, lambda: built(body, *datasets), error, *texts)


def deep() -> Any:
    return sum((col("amount") for _ in range(1500)), col("amount"))


E, U, EU, UC = (Events,), (Users,), (Events, Users), (Users, Cities)
refuse("filter: neither", lambda e: e.filter(3), E, ValueError, "filter", "D.p", "3")
refuse("filter: unknown", lambda e: e.filter(col("zz") > 1), E, ValueError, "filter", "D.p", "zz")
refuse("filter: not bool", lambda e: e.filter(col("uid")), E, TypeError, "found int", "D.p")
refuse("assign: no type", lambda e: e.assign(n=col("uid")), E, TypeError, "'n'", "astype")
refuse("assign: a value", lambda e: e.assign(n=3), E, ValueError, "'n'", "3")
refuse("assign: both forms", lambda e: e.assign("n", int, len, m=col("uid").astype(int)), E, TypeError, "assign")
refuse("filter: too deep", lambda e: e.filter(deep() > 1), E, ValueError, "filter in pipeline 'D.p'", "1501 operators")
refuse("assign: too deep", lambda e: e.assign(n=deep().astype(float)), E, ValueError, "D.p", "'n'", "1500 operators")
refuse("assign: deep, no type", lambda e: e.assign(n=deep()), E, ValueError, "D.p", "'n'", "1500 operators")
refuse("assign: nothing", lambda e: e.assign(), E, TypeError, "assign")
refuse("assign: arity", lambda e: e.assign("n", int), E, TypeError, "2 arguments")
refuse(
    "assign: wrong type",
    lambda e: e.assign(n=col("amount").astype(int)),
    E,
    TypeError,
    "'n'",
    "expected int",
    "found float",
    'col("amount")',
    "D.p",
)
refuse("assign: key", lambda u: u.assign("uid", int, len), U, ValueError, "'uid'", "key")
refuse(
    "aggregate: two names",
    lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER, into_field="m")),
    E,
    ValueError,
    "D.p",
    "'n'",
    "into_field='m'",
)
refuse("transform: no function", lambda e: e.transform(3), E, ValueError, "transform", "3")
refuse("transform: no timestamp", lambda e: e.transform(len, schema={"uid": int}), E, TypeError, "'t'")
refuse("drop: both styles", lambda e: e.drop("uid", columns=["at"]), E, ValueError, "not both")
refuse("drop: nothing", lambda e: e.drop(), E, ValueError, "uid, amount")
refuse("drop: no name", lambda e: e.drop(3), E, ValueError, "3")
refuse("select: unknown", lambda e: e.select("zz"), E, ValueError, "'zz'", "D.p")
refuse("select: key left out", lambda u: u.select("city"), U, ValueError, "'uid'")
refuse("dropnull: empty", lambda e: e.dropnull(columns=[]), E, ValueError, "no columns")
refuse("explode: keyed", lambda u: u.explode("city"), U, TypeError, "'uid'", "D.p")
refuse("latest: no groupby", lambda e: e.latest(), E, AttributeError, "'latest'", 'groupby("uid").latest(...)', "D.p")
refuse("aggregate: no groupby", lambda e: e.aggregate(n=Count(window=FOREVER)), E, AttributeError, "groupby", "D.p")
refuse("union: no dataset", lambda e: e + 3, E, TypeError, "3")
refuse("union: keyed", lambda u, v: u + v, (Users, Users), TypeError, "'uid'")
refuse("changelog: neither", lambda u: u.changelog(), U, ValueError, "delete=", "insert=")
refuse("changelog: both", lambda u: u.changelog(delete="a", insert="b"), U, ValueError, "delete=")
refuse("changelog: keyless", lambda e: e.changelog(delete="a"), E, TypeError, "keyed")
refuse("dedup: keyed", lambda u: u.dedup("city"), U, ValueError, "'uid'")
refuse("dedup: unknown", lambda e: e.dedup("zz"), E, ValueError, "'zz'")
refuse("dedup: timestamp", lambda e: e.dedup("t"), E, ValueError, "'t'")
refuse("dedup: empty", lambda e: e.dedup(by=[]), E, ValueError, "no columns")
refuse("dedup: lookback", lambda e: e.dedup("uid", window=Tumbling("1h", lookback="1h")), E, ValueError, "lookback")
refuse("dedup: hopping", lambda e: e.dedup("uid", window=Hopping("1h", "1h")), E, TypeError, "Hopping")
refuse("dedup: continuous", lambda e: e.dedup("uid", window=FOREVER), E, TypeError, "Continuous")
refuse(
    "join: intermediate", lambda e, u: e.join(u.drop("at"), "left", on=["uid"]), EU, ValueError, "intermediate", "Users"
)
refuse("join: left column", lambda e, u: e.join(u, "left", left_on=["zz"], right_on=["uid"]), EU, ValueError, "join in")
refuse("join: no dataset", lambda e: e.join(3, "left", on=["uid"]), E, TypeError, "3")
refuse("join: no input", lambda e: e.join(Cities, "left", on=["uid"]), E, ValueError, "Cities")
refuse(
    "join: keyless right", lambda u, e: u.join(e, "left", on=["uid"]), (Users, Events), ValueError, "Events", "no key"
)
refuse("join: how", lambda e, u: e.join(u, "outer", on=["uid"]), EU, ValueError, "'outer'", "Users")
refuse("join: other keys", lambda e, u: e.join(u, "left", on=["amount"]), EU, ValueError, "'amount'", "'uid'", "Users")
refuse("join: on and left_on", lambda e, u: e.join(u, "left", on=["uid"], left_on=["uid"]), EU, ValueError, "not both")
refuse("join: no on", lambda e, u: e.join(u, "left"), EU, ValueError, "on=", "Users")
refuse("join: only left_on", lambda e, u: e.join(u, "left", left_on=["uid"]), EU, ValueError, "right_on=")
refuse("join: on is text", lambda e, u: e.join(u, "left", on="uid"), EU, ValueError, "'uid'", "list")
refuse(
    "join: lengths", lambda e, u: e.join(u, "left", left_on=["uid", "at"], right_on=["uid"]), EU, ValueError, "length"
)
refuse("join: unknown left", lambda e, u: e.join(u, "left", left_on=["zz"], right_on=["uid"]), EU, ValueError, "'zz'")
refuse(
    "join: types",
    lambda e, u: e.join(u, "left", left_on=["amount"], right_on=["uid"]),
    EU,
    TypeError,
    "'amount'",
    "float",
    "int",
)
refuse(
    "join: optional key",
    lambda e, c: e.join(c, "left", left_on=["note"], right_on=["city"]),
    (Events, Cities),
    TypeError,
    "'note'",
    "Optional[str]",
    "str",
)
refuse("join: clash", lambda e, u: e.join(u, "left", on=["uid"]), EU, ValueError, "'at'", "Events", "Users")
refuse("join: unknown field", lambda e, u: e.join(u, "left", on=["uid"], fields=["zz"]), EU, ValueError, "'zz'")
refuse("join: key as field", lambda e, u: e.join(u, "left", on=["uid"], fields=["uid"]), EU, ValueError, "'uid'")
refuse("union: types", lambda e: e + e.assign("amount", int, len), E, ValueError, "amount", "int", "float", "D.p")
refuse("rename: empty", lambda e: e.rename({}), E, ValueError, "rename", "D.p")
refuse("rename: unknown", lambda e: e.rename({"zz": "y"}), E, ValueError, "zz", "D.p", "amount")
refuse("rename: two to one", lambda e: e.rename({"uid": "z", "amount": "z"}), E, ValueError, "than one", "'z'", "D.p")
refuse("rename: existing", lambda e: e.rename({"uid": "note"}), E, ValueError, "note", "D.p")
refuse("drop: key", lambda u: u.drop("uid"), U, ValueError, "'uid'", "D.p", "city, at")
refuse("drop: timestamp", lambda e: e.drop("t"), E, ValueError, "'t'", "D.p", "amount")
refuse("drop: unknown", lambda e: e.drop(["zz"]), E, ValueError, "zz", "D.p", "amount")
refuse("select: nothing", lambda e: e.select(), E, ValueError, "D.p")
refuse("dropnull: not optional", lambda e: e.dropnull("amount"), E, ValueError, "'amount'", "D.p")
refuse("dropnull: timestamp", lambda e: e.dropnull("t"), E, ValueError, "'t'", "D.p")
refuse("dropnull: unknown", lambda e: e.dropnull("zz"), E, ValueError, "zz", "D.p")
refuse("dropnull: nothing optional", lambda c: c.dropnull(), (Cities,), ValueError, "D.p")
refuse("explode: twice", lambda e: e.explode("uid", "uid"), E, ValueError, "'uid'", "twice", "D.p")
refuse("explode: unknown", lambda e: e.explode("zz"), E, ValueError, "zz", "D.p")
refuse("explode: no list", lambda e: e.explode("amount"), E, (TypeError, ValueError), "'amount'", "float", "D.p")
refuse("filter: optional", lambda e: e.filter(col("note") == "x"), E, TypeError, "Optional[bool]", "D.p")
refuse("assign: compile", lambda e: e.assign(n=(col("tags") + 1).astype(int)), E, ValueError, "'n'", "str", "D.p")
refuse("assign: key by expression", lambda u: u.assign(uid=col("uid").astype(int)), U, ValueError, "'uid'", "D.p")
refuse("assign: timestamp", lambda e: e.assign(t=col("t").astype(datetime)), E, ValueError, "'t'", "D.p")
refuse(
    "transform: key",
    lambda u: u.transform(len, schema={"uid": str, "city": str, "ut": datetime}),
    U,
    TypeError,
    "'uid'",
    "int",
    "str",
    "D.p",
)
for bad, text in {
    ("1d",): "pair",
    ("1d", None): "None",
    ("1d", "forever"): "forever",
    ("1d", "2x"): "2x",
    "1d": "pair",
}.items():
    refuse(f"join: within {bad}", lambda e, u, bad=bad: e.join(u, "left", on=["uid"], within=bad), EU, ValueError, text)  # type: ignore[misc]
refuse("groupby: nothing", lambda e: e.groupby(), E, ValueError, "key")
refuse("groupby: twice", lambda e: e.groupby("uid", "uid").latest(), E, ValueError, "'uid'", "twice", "D.p")
refuse("groupby: unknown", lambda e: e.groupby("zz").aggregate(n=Count(window=FOREVER)), E, ValueError, "'zz'")
refuse("groupby: window", lambda e: e.groupby("uid", window=FOREVER).aggregate(), E, TypeError, "Continuous")
refuse(
    "groupby: forever", lambda e: e.groupby("uid", window=Hopping("forever", "1h")).aggregate(), E, TypeError, "forever"
)
for where in ("groupby", "aggregate"):
    many = Hopping("2y", "1s")
    refuse(
        f"aggregate: too many windows, in {where}",
        lambda e, in_groupby=where == "groupby", many=many: (  # type: ignore[misc]
            e.groupby("uid", window=many).aggregate(n=Count())
            if in_groupby
            else e.groupby("uid").aggregate(n=Count(window=many))
        ),
        E,
        ValueError,
        "63,072,000",
        "100,000",
        "D.p",
    )
refuse(
    "groupby: window on keyed",
    lambda u: u.groupby("city", window=Tumbling("1h")).aggregate(n=Count()),
    U,
    ValueError,
    "1h",
    "'uid'",
)
refuse(
    "groupby: window and along",
    lambda e: e.groupby("uid", window=Tumbling("1h")).aggregate(n=Count(), along="at"),
    E,
    ValueError,
    "'at'",
)
refuse(
    "groupby: two windows",
    lambda e: e.groupby("uid", window=Tumbling("1h")).aggregate(n=Count(window=Tumbling("2h"))),
    E,
    ValueError,
    "1h",
    "2h",
)
refuse("groupby: window and first", lambda e: e.groupby("uid", window=Tumbling("1h")).first(), E, ValueError, "1h")
refuse("groupby: window and latest", lambda e: e.groupby("uid", window=Tumbling("1h")).latest(), E, ValueError, "1h")
refuse("first: keyed", lambda u: u.groupby("city").first(), U, TypeError, "'uid'", "D.p")
refuse("latest: keyed", lambda u: u.groupby("city").latest(), U, TypeError, "'uid'")
refuse("latest: unknown", lambda e: e.groupby("zz").latest(), E, ValueError, "'zz'")
refuse("aggregate: nothing", lambda e: e.groupby("uid").aggregate(), E, TypeError, "aggregate")
refuse(
    "aggregate: no name", lambda e: e.groupby("uid").aggregate(Count(window=FOREVER)), E, ValueError, "Count", "name"
)
refuse("aggregate: no aggregate", lambda e: e.groupby("uid").aggregate(n=3), E, ValueError, "'n'", "3")
refuse(
    "aggregate: reserved", lambda e: e.groupby("uid").aggregate(using=Count(window=FOREVER)), E, ValueError, "'using'"
)
refuse("aggregate: named emit", lambda e: e.groupby("uid").aggregate(emit=Count(window=FOREVER)), E, ValueError, "emit")
refuse(
    "aggregate: named along", lambda e: e.groupby("uid").aggregate(along=Count(window=FOREVER)), E, ValueError, "along"
)
refuse(
    "aggregate: emit",
    lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER), emit="late"),
    E,
    ValueError,
    "'eager'",
    "'final'",
    "late",
)
refuse(
    "aggregate: along and final",
    lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER), emit="final", along="at"),
    E,
    ValueError,
    "along",
)
refuse(
    "aggregate: decay and final",
    lambda e: e.groupby("uid").aggregate(n=ExpDecaySum(of="amount", half_life="1h", window=FOREVER), emit="final"),
    E,
    ValueError,
    "ExpDecaySum",
)
refuse(
    "aggregate: decay in a groupby with a window",
    lambda e: e.groupby("uid", window=Tumbling("1d")).aggregate(n=ExpDecaySum(of="amount", half_life="1h")),
    E,
    NotSupported,
    "ExpDecaySum",
    "leave the window of the groupby out",
)
refuse(
    "aggregate: along type",
    lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER), along="uid"),
    E,
    ValueError,
    "'uid'",
)
refuse(
    "aggregate: along unknown",
    lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER), along="zz"),
    E,
    ValueError,
    "'zz'",
)
refuse(
    "aggregate: mixed windows",
    lambda e: e.groupby("uid").aggregate(a=Count(window=FOREVER), b=Count(window=Tumbling("1h"))),
    E,
    ValueError,
    "D.p",
    "Continuous",
    "Tumbling",
)
refuse(
    "aggregate: lookbacks",
    lambda e: e.groupby("uid").aggregate(a=Count(window=Tumbling("1h", lookback="1h")), b=Count(window=Tumbling("2h"))),
    E,
    ValueError,
    "lookback",
)
refuse("aggregate: no window", lambda e: e.groupby("uid").aggregate(n=Count()), E, ValueError, "window")
refuse(
    "aggregate: keyed", lambda u: u.groupby("city").aggregate(n=Count(window=Tumbling("1h"))), U, ValueError, "along"
)
refuse(
    "terminal: filter",
    lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER)).filter(col("n") > 1),
    E,
    ValueError,
    "filter",
    "terminal",
    "D.p",
)
refuse(
    "terminal: decay",
    lambda e: e.groupby("uid").aggregate(n=ExpDecaySum(of="amount", half_life="1h", window=FOREVER)).drop("n"),
    E,
    ValueError,
    "drop",
    "terminal",
)


def aggregated(name: str, make: Callable[[], Any], error: type[Exception], *texts: str) -> None:
    refuse(f"aggregate: {name}", lambda e: e.groupby("uid").aggregate(x=make()), E, error, *texts)


aggregated("sum of text", lambda: Sum(of="note", window=FOREVER), TypeError, "'note'", "str", "D.p")
aggregated("average of text", lambda: Average(of="note", window=FOREVER), TypeError, "'note'", "str")
aggregated("min of text", lambda: Min(of="note", window=FOREVER), TypeError, "'note'", "str")
aggregated("unknown column", lambda: Sum(of="zz", window=FOREVER), ValueError, "zz")
aggregated(
    "distinct of datetimes", lambda: Distinct(of="at", unordered=True, window=FOREVER), TypeError, "at", "datetime"
)
aggregated("distinct in order", lambda: Distinct(of="uid", unordered=False, window=FOREVER), ValueError, "unordered")
aggregated("unique and exact", lambda: Count(of="uid", unique=True, window=FOREVER), ValueError, "unique")
aggregated("unique of nothing", lambda: Count(unique=True, approx=True, window=FOREVER), ValueError, "of")
aggregated("count without nulls", lambda: Count(of="uid", dropnull=True, window=FOREVER), ValueError, "uid")
aggregated(
    "last without nulls",
    lambda: LastK(of="uid", limit=2, dedup=False, dropnull=True, window=FOREVER),
    ValueError,
    "uid",
)
aggregated(
    "first without nulls",
    lambda: FirstK(of="uid", limit=2, dedup=False, dropnull=True, window=FOREVER),
    TypeError,
    "uid",
)
aggregated("default of another type", lambda: Max(of="uid", default=1.5, window=FOREVER), TypeError, "1.5", "int")
aggregated("quantile above one", lambda: Quantile(of="uid", p=2, approx=True, window=FOREVER), ValueError, "2")
aggregated("exact quantile", lambda: Quantile(of="uid", p=0.5, window=FOREVER), ValueError, "approx")
aggregated("half-life", lambda: ExpDecaySum(of="uid", half_life="1x", window=FOREVER), ValueError, "1x")
aggregated("session", lambda: Count(window=Session("1d")), ValueError, "Session")
aggregated("misspelt argument", lambda: Sum(off="uid", window=FOREVER), ValueError, "off")
refuse(
    "aggregate: along a number",
    lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER), along=5),
    E,
    ValueError,
    "D.p",
    "5",
)
for window in (None, Tumbling("1d")):
    refuse(
        f"groupby: optional key, {window}",
        lambda e, window=window: e.groupby("uid", "note", window=window).aggregate(n=Count(window=FOREVER)),
        E,
        TypeError,
        "'note'",
        "Optional[str]",
    )
refuse("first: optional key", lambda e: e.groupby("uid", "note").first(), E, TypeError, "'note'", "Optional[str]")
for method in ("filter", "assign", "dedup", "agregate", "groupby", "join"):
    refuse(
        f"groupby: {method} after it",
        lambda e, method=method: getattr(e.groupby("uid"), method)(),
        E,
        AttributeError,
        method,
        "first",
    )


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        check_refused(define, error, texts)
