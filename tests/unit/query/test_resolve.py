"""Resolution: the fewest extractors, in order; what is given is never computed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.query.definitions import featureset, function
from umbel.errors import InvalidValue, UnknownName
from umbel.query.resolve import Catalogue, resolve
from umbel.types.dtypes import Int


def catalogue(edges: dict[str, list[str]], extra: tuple[str, ...] = ()) -> Catalogue:
    """One featureset F; `edges` maps an extractor's outputs ("b" or "b,c") to its inputs."""
    names = dict.fromkeys(itertools.chain(*(k.split(",") for k in edges), *edges.values(), extra))
    made = [
        function(f"make_{outputs}", max, [f"F.{i}" for i in inputs], [f"F.{o}" for o in outputs.split(",")])
        for outputs, inputs in edges.items()
    ]
    return Catalogue({"F": featureset("F", dict.fromkeys(names, Int()), *made)})


def ran(found):
    return [each.name.removeprefix("make_") for each in found]


def test_only_what_is_needed_runs_in_order():
    known = catalogue({"d": ["b", "c"], "b": ["a"], "c": ["b"], "e": ["d"]})
    assert ran(resolve(known, ["F.a"], ["F.d"])) == ["b", "c", "d"]


def test_provided_features_are_not_computed():
    known = catalogue({"d": ["b", "c"], "b": ["a"], "c": ["b"]})
    assert ran(resolve(known, ["F.b"], ["F.d", "F.b"])) == ["c", "d"]
    assert ran(resolve(known, ["F.d"], ["F.d"])) == []


def test_an_extractor_of_several_features_runs_once():
    known = catalogue({"b,c": ["a"]})
    assert ran(resolve(known, ["F.a"], ["F.b", "F.c"])) == ["b,c"]
    assert ran(resolve(known, ["F.a", "F.b"], ["F.b", "F.c"])) == ["b,c"]


def test_no_extractor():
    known = catalogue({"d": ["b"], "b": ["a"]})
    with pytest.raises(InvalidValue, match=r"No extractor found for feature F\.a .*F\.d"):
        resolve(known, [], ["F.d"])


def test_a_chain_longer_than_the_stack():
    known = catalogue({f"f{n + 1}": [f"f{n}"] for n in range(3000)})
    assert ran(resolve(known, ["F.f0"], ["F.f3000"])) == [f"f{n + 1}" for n in range(3000)]
    with pytest.raises(InvalidValue, match=r"No extractor found for feature F\.f0 \(needed by F\.f1 <- F\.f2 <-"):
        resolve(known, [], ["F.f3000"])


def test_an_input_ends_the_search():
    known = catalogue({"b": ["c"], "c": ["b"]})
    assert ran(resolve(known, ["F.c"], ["F.b"])) == ["b"]


def test_featuresets_stand_for_their_features():
    known = catalogue({"b": ["a"]})
    assert known.expanded(["F"]) == ("F.b", "F.a")
    assert known.expanded(["F.a", "F", "F.b"]) == ("F.a", "F.b")
    with pytest.raises(InvalidValue, match=r"'F' is a featureset.*F\.b, F\.a"):
        known.provided(["F"])


def test_unknown_names():
    known = catalogue({"total": ["a"]})
    with pytest.raises(InvalidValue, match="has no feature 'totl'; did you mean 'total'"):
        known.expanded(["F.totl"])
    with pytest.raises(InvalidValue, match="featureset 'G' is not committed"):
        known.expanded(["G.a"])
    with pytest.raises(UnknownName, match="featureset 'G' is not committed"):
        known.expanded(["G"])


@given(data=st.data())
def test_minimal_and_ordered(data):
    """Against a naive search: the extractors found are exactly those whose removal breaks the query."""
    size = data.draw(st.integers(2, 8))
    edges = {}
    for i in range(1, size):
        earlier = st.lists(st.integers(0, i - 1).map(lambda n: f"f{n}"), min_size=1, max_size=3, unique=True)
        edges[f"f{i}"] = data.draw(earlier)
    provided = data.draw(st.lists(st.sampled_from([f"f{i}" for i in range(size)]), unique=True))
    known = catalogue(edges, ("f0",))
    expected = f"F.f{size - 1}"
    reachable = _reachable(edges, set(provided))
    if expected.removeprefix("F.") not in reachable:
        with pytest.raises(InvalidValue, match="No extractor"):
            resolve(known, [f"F.{n}" for n in provided], [expected])
        return
    order = ran(resolve(known, [f"F.{n}" for n in provided], [expected]))
    done = set(provided)
    for name in order:
        assert set(edges[name]) <= done, "computed before its inputs"
        done.add(name)
    assert not set(order) & set(provided)
    for left_out in order:
        rest = {k: v for k, v in edges.items() if k in order and k != left_out}
        assert expected.removeprefix("F.") not in _reachable(rest, set(provided)), "not needed"


def _reachable(edges, start):
    known = set(start)
    while new := {k for k, v in edges.items() if k not in known and set(v) <= known}:
        known |= new
    return known
