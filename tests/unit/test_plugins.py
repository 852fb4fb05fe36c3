"""Registries: classes of umbel and of installed packages, by names that only one thing has."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extending.install import declare
from umbel import plugins
from umbel.aggregates.aggregate import AGGREGATES
from umbel.api.grouped import Grouped
from umbel.api.node import Building, Node
from umbel.connectors import CONNECTORS
from umbel.definitions import serde
from umbel.definitions.wire import umbel_pb2 as wire
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue, PackageError, UnknownName
from umbel.operators.dropnull import DropNull
from umbel.operators.filter import Filter
from umbel.operators.leaf import Leaf
from umbel.operators.operator import OPERATORS
from umbel.types import dtypes
from umbel.types.schema import Schema

OPERATOR = """
from dataclasses import dataclass
from umbel.operators.operator import RowWise
@dataclass(frozen=True, eq=False, kw_only=True)
class {name}(RowWise):
    times: int = 1
    def output(self, *inputs): return inputs[0]
    def apply(self, rows): return rows
class Beside(RowWise):
    def output(self, *inputs): return inputs[0]
    def apply(self, rows): return rows
def stray(): ...
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with one module and entry points of a group."""

    def add(package: str, text: str = "", group: str = "umbel.operators", **entries: str) -> None:
        module = package.replace("-", "_")
        site = declare(
            tmp_path / package, package, group, {k: f"{module}{v}" for k, v in entries.items()}, {module: text}
        )
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(site)

    return add


def node() -> Node:
    """Return the rows of a dataset in a pipeline."""
    columns = Schema((), (("k", dtypes.Int()), ("x", dtypes.Optional(dtypes.Int()))), "t")
    return Node(Leaf(dataset="E", version=1, columns=columns), Building("D.p"))


def test_own_classes_are_found_by_scanning() -> None:
    assert OPERATORS.find("DropNull") is DropNull
    assert {"average", "count", "quantile"} <= set(AGGREGATES.names())
    assert {"kafka", "files", "webhook"} <= set(CONNECTORS.names())
    with pytest.raises(UnknownName, match=r"no operator is called 'filtre'; did you mean 'filter'"):
        OPERATORS.find("filtre")


def test_an_operator_of_a_package_is_a_method_of_nodes(install: Install) -> None:
    install("more-ops", OPERATOR.format(name="Repeat"), repeat=":Repeat")
    found = node().repeat(times=3)
    assert (type(found.operator).__name__, found.operator.times) == ("Repeat", 3)
    with pytest.raises(InvalidType, match=r"repeat in pipeline 'D\.p'.*'time'") as refused:
        node().repeat(time=3)
    assert refused.value.hint == "its fields: times"
    assert type(found.repeat(times=1).operator) is OPERATORS.find("repeat")


def test_unknown_and_internal_operators() -> None:
    with pytest.raises(
        InvalidAttribute, match=r"pipeline 'D\.p': there is no operator 'filtre'; did you mean 'filter'"
    ):
        _ = node().filtre
    with pytest.raises(InvalidAttribute, match="'reorder' is added by umbel itself"):
        _ = node().reorder
    assert not hasattr(node(), "__wrapped__")


def test_a_name_of_umbel_cannot_be_taken(install: Install) -> None:
    install("my-filter", OPERATOR.format(name="Filter"), filter=":Filter")
    both = r"two .* called 'Filter': umbel\.operators\.filter\.Filter and package 'my-filter' 1\.0 \(my_filter:Filter\)"
    with pytest.raises(PackageError, match=both):
        OPERATORS.find("filter")
    import my_filter

    with pytest.raises(PackageError, match=both):
        serde._name(my_filter.Filter)
    assert serde._name(Filter) == "operators.filter.Filter"  # it works as before
    assert node().filter(lambda df: df["k"] > 0).operator.kind == "filter"


@pytest.mark.parametrize("name", ["Join", "GroupBy", "Schema", "Then", "Operator", "Building", "Aggregate", "Lambda"])
def test_a_name_that_means_something_else_in_a_pipeline_is_refused(install: Install, name: str) -> None:
    install("odd-names", OPERATOR.format(name=name), op=f":{name}")
    refusal = (
        rf"package 'odd-names' 1\.0 \(odd_names:{name}\) is called '{name}', but '{name.lower()}' has another meaning"
    )
    with pytest.raises(PackageError, match=refusal) as refused:
        OPERATORS.find(name)
    assert refused.value.code == "package"
    assert "rename the class" in str(refused.value)
    assert [each for each in plugins.problems("umbel.operators") if "odd-names" in each]
    kind = getattr(__import__("odd_names"), name)
    with pytest.raises(PackageError, match=refusal):
        serde._name(kind)


def test_every_name_in_use_on_the_rows_of_a_pipeline_is_taken() -> None:
    used = {each for each in {*dir(node()), *vars(Grouped)} if not each.startswith("_")}
    assert used <= OPERATORS.reserved | set(OPERATORS.own)


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    for package in ("one-repeat", "other-repeat"):
        install(package, OPERATOR.format(name="Repeat"), repeat=":Repeat")
    with pytest.raises(PackageError, match=r"'Repeat': package 'one-repeat' 1\.0 .* and package 'other-repeat' 1\.0"):
        node().repeat()


@pytest.mark.parametrize(
    "text", ["raise RuntimeError('no licence')", "import a_module_that_is_missing", "raise SystemExit(3)"]
)
def test_a_broken_package_is_named_and_takes_nothing_down(
    install: Install, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    install("broken-ops", text, repeat=":Repeat")
    install("good-ops", OPERATOR.format(name="Twice"), twice=":Twice")
    assert type(node().twice().operator).__name__ == "Twice"
    with pytest.raises(PackageError, match=r"package 'broken-ops' 1\.0 \(broken_ops:Repeat\) cannot be loaded"):
        node().repeat()
    import good_ops

    name = serde._name(good_ops.Twice)
    assert serde._found(name) is good_ops.Twice
    with caplog.at_level(logging.WARNING):
        assert good_ops.Twice in OPERATORS.every()
    assert "broken-ops" in caplog.text
    assert [each for each in plugins.problems("umbel.operators") if "broken-ops" in each]


def test_only_registered_classes_can_be_sent_and_read(install: Install) -> None:
    install("more-ops", OPERATOR.format(name="Repeat"), repeat=":Repeat")
    import more_ops

    assert serde._name(more_ops.Repeat) == "more-ops/more_ops:Repeat"
    with pytest.raises(
        PackageError, match=r"'more_ops\.Beside' cannot be sent: no installed package registers it"
    ) as refused:
        serde._name(more_ops.Beside)
    assert '[project.entry-points."umbel.operators"] beside = "more_ops:Beside"' in str(refused.value.hint)
    for name, value in (("__module__", "__main__"), ("__qualname__", "made.<locals>.Beside")):
        with pytest.raises(PackageError) as refused:  # as in a notebook, or within a function
            serde._name(type("Beside", (more_ops.Beside,), {name: value}))
        assert 'beside = "your_package.module:Beside"' in str(refused.value.hint)
        assert "move it to the top of a module of a package" in str(refused.value.hint)
    for name in ("Beside", "stray", "Nothing", "RowWise"):
        with pytest.raises(
            PackageError, match=rf"'more_ops:{name}', which package 'more-ops' 1\.0 .* does not register"
        ):
            serde._found(f"more-ops/more_ops:{name}")
    with pytest.raises(PackageError, match="does not register"):
        serde._found("more-ops/antigravity:Any")
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "name",
    [
        "testing.client.MockClient",
        "spark.session.Anything",
        "cli.checks.Finding",
        "errors.UmbelError",
        "operators.operator.Schema",
        "operators.filter.Nothing",
        "",
    ],
)
def test_modules_of_umbel_with_no_definitions_are_not_read(name: str) -> None:
    with pytest.raises(InvalidValue):
        serde._found(name)


def test_a_commit_cannot_have_a_module_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("trap/trap:Any", "umbel/trap:Any", "trap.Any"):
        record = wire.Record(type=name)
        with pytest.raises((PackageError, InvalidValue)):
            serde.load(wire.Definitions(datasets=[record]).SerializeToString())
    assert "trap" not in sys.modules


def test_an_entry_point_of_another_kind_is_refused(install: Install) -> None:
    install("odd-ops", OPERATOR.format(name="Repeat"), stray=":stray")
    with pytest.raises(
        PackageError, match=r"\(odd_ops:stray\) is registered as operator, and is no class derived from"
    ):
        OPERATORS.find("stray")


def test_umbels_own_operators_have_one_spelling() -> None:
    """Those that a pipeline adds in another way, or never, are no methods: their checks would be skipped."""
    for name in ("merge", "asofjoin", "tablejoin", "emittedaggregation", "reorder"):
        assert OPERATORS.find(name).is_internal, name
