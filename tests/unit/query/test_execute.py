"""Execution: lookups, aliases, expressions and user functions give the requested features, as of the requested instants."""

from __future__ import annotations

from datetime import timedelta

import pandas as pd
import polars as pl
import pytest

from tests.unit.query.definitions import JAN, alias, dataset, engine, expression, featureset, function, lookup
from umbel.errors import InvalidValue, UmbelError, UnknownName
from umbel.expr import col, now
from umbel.query.execute import repeated
from umbel.query.functions import ExtractorFailed
from umbel.query.session import QueryMode
from umbel.query.steps import PARALLEL
from umbel.types.dtypes import Bool, Float, Int, List, Optional, Str

DAY = timedelta(days=1)
USERS = dataset("Users", {"uid": Int()}, {"v": Int(), "s": Optional(Str())})
ROWS = {
    "Users": [
        {"uid": 1, "v": 10, "s": "a", "t": JAN},
        {"uid": 1, "v": 11, "s": "b", "t": JAN + 2 * DAY},
        {"uid": 2, "v": 20, "s": None, "t": JAN},
    ]
}
KEYED = {"uid": Int(), "v": Optional(Int()), "s": Str()}
USER = featureset(
    "User",
    KEYED,
    lookup("User.v", "Users.v", {"uid": "User.uid"}),
    lookup("User.s", "Users.s", {"uid": "User.uid"}, default="d"),
)


def ask(made, inputs, outputs, columns, at=None):
    """Query offline when instants are given; columns are lists of values."""
    queries = made[0]
    mode = QueryMode.ONLINE if at is None else QueryMode.OFFLINE
    plan = queries.plan(inputs, outputs, mode)
    height = len(at) if at is not None else len(next(iter(columns.values())))
    provided = {name: plan.inputs[name].ingest(values).values for name, values in columns.items()}
    if at is None:
        answer = queries.online(plan, provided, height)
    else:
        answer = queries.offline(plan, provided, pl.Series(at, dtype=pl.Datetime("us", "UTC")))
    return {name: column.to_list() for name, column in answer.columns.items()}


def test_lookups_with_and_without_default():
    made = engine([USERS], [USER], ROWS)
    found = ask(made, ["User.uid"], ["User.v", "User.s"], {"User.uid": [1, 2, 3]})
    assert found == {"User.v": [11, 20, None], "User.s": ["b", "d", "d"]}
    assert made[1].calls == [("online", "Users", 3)], "one lookup for all features of a dataset"


def test_each_row_as_of_its_own_instant():
    made = engine([USERS], [USER], ROWS)
    at = [JAN - DAY, JAN, JAN + DAY, JAN + 2 * DAY]
    found = ask(made, ["User.uid"], ["User.v", "User.s"], {"User.uid": [1] * 4}, at)
    assert found == {"User.v": [None, 10, 10, 11], "User.s": ["d", "a", "a", "b"]}
    assert made[1].calls == [("offline", "Users", 4)]


def test_outputs_in_the_requested_order_with_featuresets_expanded_and_inputs_on_request():
    made = engine([USERS], [USER], ROWS)
    assert list(ask(made, ["User.uid"], ["User.s", "User"], {"User.uid": [1]})) == ["User.s", "User.uid", "User.v"]


def test_two_rows_of_one_dataset_are_one_lookup():
    pair = featureset(
        "Pair",
        {"a": Int(), "b": Int(), "va": Optional(Int()), "vb": Int()},
        lookup("Pair.va", "Users.v", {"uid": "Pair.a"}),
        lookup("Pair.vb", "Users.v", {"uid": "Pair.b"}, default=-1),
    )
    made = engine([USERS], [pair], ROWS)
    found = ask(made, ["Pair.a", "Pair.b"], ["Pair.va", "Pair.vb"], {"Pair.a": [1, 3], "Pair.b": [9, 2]})
    assert found == {"Pair.va": [11, None], "Pair.vb": [-1, 20]}
    assert made[1].calls == [("online", "Users", 4)]


def test_keys_are_paired_by_name():
    seen = dataset("Seen", {"x": Int(), "y": Int()}, {"n": Int()})
    rows = {"Seen": [{"x": 1, "y": 2, "n": 12, "t": JAN}]}
    keyed = featureset(
        "F",
        {"x": Int(), "y": Int(), "n": Optional(Int())},
        lookup("F.n", "Seen.n", {"y": "F.y", "x": "F.x"}),
    )
    assert ask(engine([seen], [keyed], rows), ["F.x", "F.y"], ["F.n"], {"F.x": [1, 2], "F.y": [2, 1]}) == {
        "F.n": [12, None]
    }


def test_aliases_share_the_lookup_of_what_they_stand_for():
    other = featureset(
        "Other",
        {"uid": Int(), "s": Optional(Str()), "name": Str()},
        alias("Other.uid", "User.uid"),
        lookup("Other.s", "Users.s", {"uid": "Other.uid"}),
        alias("Other.name", "Other.s", default="?"),
    )
    made = engine([USERS], [USER, other], ROWS)
    outputs = ["User.v", "Other.uid", "Other.s", "Other.name"]
    found = ask(made, ["User.uid"], outputs, {"User.uid": [1, 2]})
    assert found == {"User.v": [11, 20], "Other.uid": [1, 2], "Other.s": ["b", None], "Other.name": ["b", "?"]}
    assert made[1].calls == [("online", "Users", 2)]


def test_provided_features_win():
    both = featureset(
        "F",
        {"a": Int(), "b": Int(), "c": Int(), "d": Int()},
        function("make", lambda ts, a: pd.DataFrame({"b": a + 1, "c": a + 2}), ["F.a"], ["F.b", "F.c"]),
        expression("F.d", col("b") + col("c"), ["F.b", "F.c"]),
    )
    made = engine([], [both])
    assert ask(made, ["F.a", "F.b"], ["F.b", "F.c", "F.d"], {"F.a": [1], "F.b": [100]}) == {
        "F.b": [100],
        "F.c": [3],
        "F.d": [103],
    }
    assert ask(made, ["F.a"], ["F.d"], {"F.a": [1]}) == {"F.d": [5]}


def test_a_provided_alias_is_not_the_other_feature():
    pair = featureset(
        "F", {"a": Int(), "b": Int(), "c": Int()}, alias("F.b", "F.a"), expression("F.c", col("b"), ["F.b"])
    )
    assert ask(engine([], [pair]), ["F.a", "F.b"], ["F.c"], {"F.a": [1], "F.b": [2]}) == {"F.c": [2]}


def test_expressions():
    features = {"a": Int(), "b": Optional(Float()), "half": Float(), "sum": Optional(Float()), "age": Int()}
    made = engine(
        [],
        [
            featureset(
                "F",
                features,
                expression("F.half", col("a") / 2, ["F.a"]),
                expression("F.sum", col("a") + col("b"), ["F.a", "F.b"]),
                expression("F.age", now().dt.since_epoch("day"), []),
            )
        ],
    )
    provided = {"F.a": [1, 2], "F.b": [0.5, None]}
    found = ask(made, list(provided), ["F.half", "F.sum", "F.age"], provided, [JAN, JAN + DAY])
    days = (JAN.timestamp()) // 86400
    assert found == {"F.half": [0.5, 1.0], "F.sum": [1.5, None], "F.age": [days, days + 1]}


def test_an_expression_that_fails_is_named():
    made = engine(
        [],
        [
            featureset(
                "F",
                {"a": Int(), "b": Int(), "fine": Int()},
                expression("F.fine", col("a") + 1, ["F.a"]),
                expression("F.b", lit_over(col("a")), ["F.a"]),
            )
        ],
    )
    with pytest.raises(InvalidValue, match=r"F\.b = .*failed to evaluate"):
        ask(made, ["F.a"], ["F.fine", "F.b"], {"F.a": [0]})


@pytest.mark.parametrize("rows", [1, 100, PARALLEL])
def test_an_int_that_wraps_around_is_an_error_and_no_number(rows):
    features = {"a": Int(), "more": Int(), "twice": Int()}
    sums = expression("F.more", col("a") + 1, ["F.a"]), expression("F.twice", col("a") * 2, ["F.a"])
    made = engine([], [featureset("F", features, *sums)])
    values = list(range(rows))
    found = ask(made, ["F.a"], ["F.more", "F.twice"], {"F.a": values})
    assert found == {"F.more": [each + 1 for each in values], "F.twice": [each * 2 for each in values]}
    values[-1] = 2**62
    with pytest.raises(InvalidValue, match=rf"F\.twice = .*does not fit in 64 bits.*first row {rows - 1}\)"):
        ask(made, ["F.a"], ["F.more", "F.twice"], {"F.a": values})
    values[-1] = 2**63 - 1
    with pytest.raises(InvalidValue, match=rf"F\.more = .*does not fit in 64 bits.*first row {rows - 1}\)"):
        ask(made, ["F.a"], ["F.more", "F.twice"], {"F.a": values})


def lit_over(expr):
    return 7 // expr


def test_lists_of_keys():
    many = featureset(
        "Many",
        {"uid": List(Int()), "v": List(Optional(Int())), "s": List(Str())},
        lookup("Many.v", "Users.v", {"uid": "Many.uid"}, is_list=True),
        lookup("Many.s", "Users.s", {"uid": "Many.uid"}, is_list=True, default="-"),
    )
    made = engine([USERS], [many], ROWS)
    provided = {"Many.uid": [[1, 3, 2], [], [1]]}
    found = ask(made, ["Many.uid"], ["Many.v", "Many.s"], provided, [JAN, JAN, JAN + 3 * DAY])
    assert found == {"Many.v": [[10, None, 20], [], [11]], "Many.s": [["a", "-", "-"], [], ["b"]]}
    assert made[1].calls == [("offline", "Users", 4)]


def test_lists_of_keys_of_different_lengths():
    seen = dataset("Seen", {"x": Int(), "y": Int()}, {"n": Int()})
    many = featureset(
        "Many",
        {"x": List(Int()), "y": List(Int()), "n": List(Optional(Int()))},
        lookup("Many.n", "Seen.n", {"x": "Many.x", "y": "Many.y"}, is_list=True),
    )
    made = engine([seen], [many], {"Seen": []})
    with pytest.raises(InvalidValue, match=r"row 1, Many\.x has 2 and Many\.y has 1"):
        ask(made, ["Many.x", "Many.y"], ["Many.n"], {"Many.x": [[1], [1, 2]], "Many.y": [[1], [1]]})


def test_functions_get_named_series_and_the_instants():
    def check(ts, a, b):
        assert (a.name, b.name) == ("F.a", "F.b")
        assert str(ts.dtype) == "datetime64[ns, UTC]"
        assert (str(a.dtype), str(b.dtype)) == ("Int64", "string")
        return (ts.dt.day + a).rename("c")

    made = engine(
        [], [featureset("F", {"a": Int(), "b": Str(), "c": Int()}, function("f", check, ["F.a", "F.b"], ["F.c"]))]
    )
    provided = {"F.a": [1, 2], "F.b": ["x", "y"]}
    assert ask(made, list(provided), ["F.c"], provided, [JAN, JAN + DAY]) == {"F.c": [2, 4]}


def output_of(returned, dtype=None, outputs=("c",)):
    features = {"a": Int(), **dict.fromkeys(outputs, dtype or Int())}
    made = function("f", lambda ts, a: returned, ["F.a"], [f"F.{name}" for name in outputs])
    return ask(
        engine([], [featureset("F", features, made)]), ["F.a"], [f"F.{name}" for name in outputs], {"F.a": [1, 2]}
    )


def test_rows_are_matched_by_position_unless_the_index_says_which_they_are():
    assert output_of(pd.Series([5, 6], index=[7, 3], name="c")) == {"F.c": [5, 6]}
    assert output_of(pd.Series([5, 6], index=[1, 0], name="c")) == {"F.c": [6, 5]}


@pytest.mark.parametrize(
    ("returned", "dtype", "message"),
    [
        (pd.Series([1, 2]), Int(), "without a name"),
        ([1, 2], Int(), "returned list, expected a Series"),
        (pl.Series("c", [1, 2]), Int(), "returned polars.Series, expected a Series"),
        (pd.Series(["x", "y"], name="c"), Int(), r"returned invalid schema: feature 'c': expected int, found texts"),
        (pd.Series([1, 2], name="c"), Str(), r"returned invalid schema: feature 'c': expected str, found numbers"),
        (pd.Series([1.5, 2.5], name="c"), Int(), r"returned invalid schema: feature 'c': expected int, got 1.5"),
        (pd.Series([None, 2], name="c"), Int(), "returned invalid schema: feature 'c': null"),
        (pd.Series([True, False], name="c"), Float(), "returned invalid schema: feature 'c': expected float"),
        (pd.Series([1, 2], name="c"), Bool(), "returned invalid schema: feature 'c': expected bool"),
        (pd.Series([1, 2], name="other"), Int(), r"returned invalid schema: missing features \['c'\]"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["c", "c"]), Int(), r"invalid schema: more than one column .* \['c'\]"),
        (
            pd.DataFrame([[1, 2], [3, 4]], columns=["c", "F.c"]),
            Int(),
            r"invalid schema: more than one column .* \['c'\]",
        ),
        (pd.Series([1, 2, 3], name="c"), Int(), r"3 values of feature F\.c, but there are 2 of F\.a"),
    ],
)
def test_what_an_extractor_may_not_return(returned, dtype, message):
    with pytest.raises(ExtractorFailed, match=f"Extractor f in F .*{message}"):
        output_of(returned, dtype)


def test_all_errors_of_an_extractor_are_listed():
    with pytest.raises(ExtractorFailed, match=r"feature 'c': .*; feature 'd': "):
        output_of(pd.DataFrame({"c": ["x", "y"], "d": [None, 1]}), Int(), ("c", "d"))


def test_integers_beside_nulls_are_what_pandas_makes_of_them():
    assert output_of(pd.Series([1.0, None], name="c"), Optional(Int())) == {"F.c": [1, None]}
    assert output_of(pd.Series([1, 2], name="c"), Float()) == {"F.c": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("broken"), "broken"),
        (KeyError("broken"), "KeyError: 'broken'"),
        (KeyError(), "KeyError"),
        (ZeroDivisionError("broken"), "broken"),
    ],
)
def test_what_an_extractor_raises_is_wrapped(error, text):
    def fail(ts, a):
        raise error

    made = engine([], [featureset("F", {"a": Int(), "c": Int()}, function("f", fail, ["F.a"], ["F.c"]))])
    with pytest.raises(UmbelError, match=f"^Extractor f in F failed to run with error: {text}") as caught:
        ask(made, ["F.a"], ["F.c"], {"F.a": [1]})
    assert caught.value.__cause__ is error
    assert isinstance(caught.value, ValueError) == isinstance(error, ValueError)


def test_missing_indices_are_distinguished():
    for options, mode, message in [
        ({"online": False, "offline": False}, QueryMode.ONLINE, "define an index on dataset Users"),
        ({"online": False}, QueryMode.ONLINE, "no online index"),
        ({"offline": False}, QueryMode.OFFLINE, "no offline index"),
    ]:
        bare = dataset("Users", {"uid": Int()}, {"v": Int(), "s": Optional(Str())}, **options)
        with pytest.raises(InvalidValue, match=message):
            engine([bare], [USER])[0].plan(["User.uid"], ["User.v"], mode)


def test_a_dataset_that_is_not_committed():
    with pytest.raises(InvalidValue, match="dataset 'Users' is not committed"):
        engine([], [USER])[0].plan(["User.uid"], ["User.v"], QueryMode.ONLINE)


def test_plans_are_cached():
    queries = engine([USERS], [USER], ROWS)[0]
    assert queries.plan(["User.uid"], ["User.v"], QueryMode.ONLINE) is queries.plan(
        ["User.uid"], ["User.v"], QueryMode.ONLINE
    )


def test_answers_in_pandas_and_json():
    queries = engine([USERS], [USER], ROWS)[0]
    plan = queries.plan(["User.uid"], ["User"], QueryMode.ONLINE)
    answer = queries.online(plan, {"User.uid": pl.Series([1, 3])}, 2)
    frame = answer.to_pandas()
    assert [str(dtype) for dtype in frame.dtypes] == ["Int64", "Int64", "string"]
    assert frame["User.v"].tolist() == [11, pd.NA]
    assert list(frame.index) == [0, 1]
    assert answer.to_json() == {"User.uid": [1, 3], "User.v": [11, None], "User.s": ["b", "d"]}
    assert queries.online(plan, {"User.uid": pl.Series([], dtype=pl.Int64)}, 0).to_pandas().empty


def test_lookup():
    queries = engine([USERS], [USER], ROWS)[0]
    keys = pl.DataFrame({"uid": [1, 3]})
    answer, found = queries.lookup("Users", keys)
    assert answer.to_polars().select("uid", "v", "s").rows() == [(1, 11, "b"), (3, None, None)]
    assert found.to_list() == [True, False]
    answer, found = queries.lookup("Users", keys, repeated(JAN, 2), ["v"])
    assert answer.to_polars().rows() == [(10,), (None,)]
    with pytest.raises(UnknownName, match="'Usrs' is not committed; did you mean 'Users'"):
        queries.lookup("Usrs", keys)
    with pytest.raises(InvalidValue, match="no field 'w'"):
        queries.lookup("Users", keys, fields=["w"])
