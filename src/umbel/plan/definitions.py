"""Definitions: what a commit contains, checked and frozen. Runners and the query engine use these records only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.expr import Expr
from umbel.operators.fingerprint import fingerprint
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Operator
from umbel.operators.userfunction import UserFunction
from umbel.plan.making import Constant, Evaluated, Made, Reference
from umbel.types.dtypes import DType
from umbel.types.schema import Schema

__all__ = [
    "Constant",
    "Evaluated",
    "Reference",
]
UPSERT, DEBEZIUM = "upsert", "debezium"


@dataclass(frozen=True, slots=True)
class Metadata:
    """What people say about an object; no part of its identity."""

    owner: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    deprecated: bool = False
    deleted: bool = False


class Connector(Protocol):
    """Where rows come from or go to."""

    @property
    def kind(self) -> str:
        """The class of source, in lower case: `webhook`, `kafka`, `s3`, ..."""

    @property
    def source_name(self) -> str:
        """The name its source was given."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Keep a share of the rows, the same ones every time.

    Args:
        rate: between 0 and 1.
        using: the columns whose values decide.
    """

    rate: float
    using: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SourceDefinition:
    """One source of a dataset. Durations are microseconds.

    Args:
        connector: where the rows come from.
        disorder: how much older than the newest a row may be.
        cdc: "append", "upsert", "debezium" or "native".
        every: the polling period.
        since: rows before it are ignored.
        until: rows at or after it are ignored.
        preproc: how columns are made, by name.
        where: which rows are taken.
        idleness: of a bounded source: after how long without rows it is at its end.
        sample: which share of the rows is taken.
        place: `file:line` of the definition.
    """

    connector: Connector
    disorder: int
    cdc: str
    every: int
    since: datetime | None = None
    until: datetime | None = None
    preproc: tuple[tuple[str, Made], ...] = ()
    where: Evaluated | None = None
    idleness: int | None = None
    sample: Sampling | None = None
    place: str = field(default="", compare=False)

    @property
    def is_bounded(self) -> bool:
        """Whether it comes to an end."""
        return self.idleness is not None


@dataclass(frozen=True, kw_only=True)
class SinkDefinition:
    """One sink of a dataset.

    Args:
        connector: where the changes go.
        cdc: the form of the changes, None for the sink's own.
        every: the period in microseconds, None for at once.
        how: "incremental".
        renames: pairs of the dataset's column and the sink's.
        since: changes before it are not sent.
        until: changes at or after it are not sent.
        place: `file:line` of the definition.
    """

    connector: Connector
    cdc: str | None = None
    every: int | None = None
    how: str = "incremental"
    renames: tuple[tuple[str, str], ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation: its function's name and all its arguments."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def mostly(self) -> float:
        """The share of rows that must pass."""
        found = self.arguments.get("mostly")
        return 1.0 if found is None else float(found)

    @property
    def columns(self) -> tuple[str, ...]:
        """What it looks at."""
        given = self.arguments
        single = [str(given[name]) for name in ("column", "column_A", "column_B") if name in given]
        return (*single, *map(str, given.get("column_list", ())))


@dataclass(frozen=True, slots=True)
class Expectations:
    """What is expected of a dataset's rows; rows that fail are counted, never refused."""

    name: str
    version: int
    expected: tuple[Expectation, ...]


@dataclass(frozen=True, kw_only=True)
class DatasetDefinition:
    """A dataset as committed.

    Args:
        name: unique on its branch.
        version: from 1.
        schema: its columns, their roles and types.
        history: how long its history is kept, in microseconds.
        online: whether the latest rows can be looked up by key.
        offline: whether rows can be looked up as of any time.
        sources: the selected sources.
        output: the last operator of the selected pipelines, None when its rows come from sources alone.
        sinks: the selected sinks.
        expectations: of its rows.
        erase_keys: the keys by which rows can be erased.
        ingestion: of a keyed dataset with sources: "upsert" or "debezium".
        meta: of the dataset.
        field_meta: of its fields, by name.
        place: `file:line` of the definition.
    """

    name: str
    version: int
    schema: Schema
    history: int
    online: bool = False
    offline: bool = False
    sources: tuple[SourceDefinition, ...] = ()
    output: Operator | None = None
    sinks: tuple[SinkDefinition, ...] = ()
    expectations: Expectations | None = None
    erase_keys: tuple[str, ...] = ()
    ingestion: str = UPSERT
    meta: Metadata = Metadata()
    field_meta: Mapping[str, Metadata] = field(default_factory=dict)
    place: str = ""

    @property
    def dtypes(self) -> dict[str, DType]:
        """Every column's type, in order."""
        return self.schema.dtypes

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the definition with its inputs' versions; metadata, sources and sinks take no part."""
        return fingerprint(self.name, self.version, self.schema, self.history, self.output and self.output.id)

    @cached_property
    def signature(self) -> str:
        """What must not change within a version: name, history, fields, pipelines."""
        return fingerprint(self.name, self.schema, self.history, self.erase_keys, _signature(self.output))

    def check_erase_keys(self, columns: Sequence[str]) -> None:
        """Refuse columns that are not all of its erase keys and nothing else."""
        expected = self.erase_keys
        wrong = [each for each in columns if each not in expected] or [each for each in expected if each not in columns]
        if wrong or not expected:
            raise InvalidValue(
                f"erase on dataset '{self.name}': field '{(wrong or ['(none)'])[0]}': the columns must be its erase keys "
                f"{list(expected)}, found {list(columns)}",
                hint="field(key=True, erase_key=True) marks erase keys; give all of them and nothing else",
            )

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The datasets its pipelines read."""
        return tuple(dict.fromkeys(leaf.dataset for leaf in leaves(self.output)))


def leaves(operator: Operator | None) -> Iterable[Leaf]:
    """Yield the datasets an operator reads."""
    if isinstance(operator, Leaf):
        yield operator
    elif operator is not None:
        for parent in operator.parents:
            yield from leaves(parent)


def _signature(operator: Operator | None) -> str:
    if operator is None or isinstance(operator, Leaf):
        return operator.dataset if operator else ""
    parents = tuple(_signature(parent) for parent in operator.parents)
    return fingerprint(type(operator).__name__, operator.parameters, parents)


@dataclass(frozen=True, kw_only=True)
class FeatureDefinition:
    """A feature of a featureset."""

    name: str
    featureset: str
    dtype: DType
    meta: Metadata = Metadata()
    place: str = ""

    @property
    def fqn(self) -> str:
        """`Featureset.feature`."""
        return f"{self.featureset}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class ExtractorDefinition:
    """How features are computed from others.

    Args:
        name: unique in its featureset.
        featureset: where it is defined.
        inputs: fully qualified names, in the order of the arguments.
        outputs: fully qualified names.
        datasets: those it may look up.
        version: from 0.
        meta: what people say about it.
        place: `file:line` of the definition.
    """

    name: str
    featureset: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    datasets: tuple[str, ...] = ()
    version: int = 0
    meta: Metadata = field(default=Metadata(), metadata={"identity": False})
    place: str = field(default="", metadata={"identity": False})


@dataclass(frozen=True, kw_only=True)
class FunctionExtractor(ExtractorDefinition):
    """The user's function.

    Args:
        function: called with the timestamps and one series per input.
    """

    function: UserFunction


@dataclass(frozen=True, kw_only=True)
class LookupExtractor(ExtractorDefinition):
    """A field of a dataset's row.

    Args:
        field: the dataset's field.
        keys: the dataset's key fields, in the order of `inputs`.
        default: instead of null; None for none.
        is_list: whether lists of keys give a list.
    """

    field: str
    keys: tuple[str, ...]
    default: Any = None
    is_list: bool = False

    @property
    def dataset(self) -> str:
        """The dataset looked up."""
        return self.datasets[0]


@dataclass(frozen=True, kw_only=True)
class AliasExtractor(ExtractorDefinition):
    """Another feature's value.

    Args:
        default: instead of null; None for none.
    """

    default: Any = None


@dataclass(frozen=True, kw_only=True)
class ExpressionExtractor(ExtractorDefinition):
    """An expression over features of the same featureset.

    Args:
        expression: its columns are the bare names of the inputs.
    """

    expression: Expr


@dataclass(frozen=True, kw_only=True)
class FeaturesetDefinition:
    """A featureset as committed."""

    name: str
    features: tuple[FeatureDefinition, ...]
    extractors: tuple[ExtractorDefinition, ...] = ()
    meta: Metadata = Metadata()
    place: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the definition; metadata takes no part."""
        return fingerprint(self.name, [(each.name, each.dtype) for each in self.features], self.extractors)

    def feature(self, name: str) -> FeatureDefinition:
        """Return the feature of that name."""
        for each in self.features:
            if each.name == name:
                return each
        known = [each.name for each in self.features]
        raise UnknownName(f"featureset '{self.name}' has no feature '{name}'{did_you_mean(name, known)}")


@dataclass(frozen=True, slots=True)
class Definitions:
    """Everything that is committed on a branch, by name.

    Args:
        datasets: in the order given.
        featuresets: in the order given.
        env: the environment whose sources, pipelines and extractors were selected.
    """

    datasets: Mapping[str, DatasetDefinition]
    featuresets: Mapping[str, FeaturesetDefinition]
    env: str | None = None
