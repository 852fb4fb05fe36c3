"""Definitions: the frozen records of what decorators declare and commits contain.

Decorators make them, with the environments that select them; `umbel.definitions.selection` makes the content of a commit out of
them. Runners and the query engine use these records only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from umbel.definitions.arguments import DataConnector
from umbel.definitions.env import EVERY, Selector
from umbel.definitions.preproc import DeclaredColumns, Evaluated, IncomingRows, Made
from umbel.definitions.shares import is_share
from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.expr import Expr
from umbel.functions.fingerprint import fingerprint
from umbel.functions.user_function import UserFunction
from umbel.operators.leaf import Leaf, leaves
from umbel.operators.operator import Operator
from umbel.types.dtypes import DType
from umbel.types.schema import Schema

UPSERT, DEBEZIUM = "upsert", "debezium"
INSERTING = frozenset({"append", "native"})  # without keys: all but inserts of a native source is refused
HISTORY = 2 * 365 * 86_400_000_000  # the default history retention of a dataset: two years, in µs


@dataclass(frozen=True, slots=True)
class Metadata:
    """User-provided description of an object; not part of its fingerprint."""

    owner: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    deprecated: bool = False
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Sampling:
    """Deterministic sampling of rows.

    Args:
        rate: the share of rows, between 0 and 1.
        using: the columns hashed to decide.
    """

    rate: float
    using: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SourceDefinition:
    """One source of a dataset, with durations in µs.

    Args:
        connector: the location of the rows.
        disorder: the maximum lag of a row behind the newest timestamp.
        cdc: "append", "upsert", "debezium" or "native".
        every: the polling period.
        since, until: rows before `since`, and from `until` on, are ignored.
        preproc: column builders by name.
        where: the condition on ingested rows.
        idleness: for a bounded source, the time without rows after which it has ended.
        sample: the sampling of the rows.
        location, env: `file:line` of the definition, and the environments that select it.
        declared: preproc, where and sample before the source is selected: only then are they checked.
        position: the name under which its position is stored, in a commit; empty for its index.
        transform: makes its rows of those that come in, before preproc.
    """

    connector: DataConnector
    disorder: int
    cdc: str
    every: int
    since: datetime | None = None
    until: datetime | None = None
    preproc: tuple[tuple[str, Made], ...] = ()
    where: Evaluated | None = None
    idleness: int | None = None
    sample: Sampling | None = None
    location: str = field(default="", compare=False)
    env: Selector = field(default=EVERY, compare=False)
    declared: DeclaredColumns | None = field(default=None, compare=False)
    position: str = field(default="", compare=False)
    transform: IncomingRows | None = field(default=None, metadata={"identity": "where set"})

    @property
    def is_bounded(self) -> bool:
        """Return True if the source ends."""
        return self.idleness is not None


@dataclass(frozen=True, kw_only=True)
class SinkDefinition:
    """One sink of a dataset.

    Args:
        connector: the destination of the changes.
        cdc: the form of the changes, None for the sink's own.
        every: the period in µs, None for immediate delivery.
        how, refused: "incremental"; and "wait" if refused rows hold the sink up, None if they become dead letters.
        renames: pairs of the dataset's column and the sink's.
        since, until: changes before `since`, and from `until` on, are not sent.
        location, env: `file:line` of the definition, and the environments that select it.
    """

    connector: DataConnector
    cdc: str | None = None
    every: int | None = None
    how: str = "incremental"
    renames: tuple[tuple[str, str], ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    refused: str | None = field(default=None, metadata={"identity": "where set"})
    location: str = field(default="", compare=False)
    env: Selector = field(default=EVERY, compare=False)


@dataclass(frozen=True, kw_only=True)
class PipelineDefinition:
    """A declared pipeline: the operator that computes its dataset's rows."""

    name: str
    output: Operator
    env: Selector = EVERY
    meta: Metadata = Metadata()
    location: str = ""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation: the name of its function and all its arguments."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def mostly(self) -> float:
        """The share of rows that must pass; 1.0 where what was committed is no share."""
        found = self.arguments.get("mostly")
        return float(found) if is_share(found) else 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it checks."""
        provided = self.arguments
        single = [str(provided[name]) for name in ("column", "column_A", "column_B") if name in provided]
        return (*single, *map(str, provided.get("column_list", ())))


@dataclass(frozen=True, slots=True)
class Expectations:
    """The expectations of a dataset's rows.

    Failing rows are counted, never refused.
    """

    name: str
    version: int
    expected: tuple[Expectation, ...]


@dataclass(frozen=True, kw_only=True)
class DatasetDefinition:
    """A dataset, as declared or as committed.

    Args:
        name: unique on its branch.
        version: from 1.
        schema: its columns, their roles and types.
        history: the history retention, in µs.
        online, offline: True if the latest rows, or rows as of any time, can be looked up by key.
        sources, sinks: in a commit the selected ones.
        pipelines: as declared; none in a commit.
        output: in a commit the last operator of the selected pipelines, None if its rows are from sources alone.
        expectations: of its rows.
        erase_keys: the keys by which rows can be erased.
        ingestion: of a keyed dataset with sources: "upsert" or "debezium".
        feed: the name of its rows, in a commit, where another branch reads its sources otherwise; empty for the first.
        meta, field_meta: of the dataset, and of its fields by name.
        location: `file:line` of the definition.
    """

    name: str
    version: int
    schema: Schema
    history: int
    online: bool = False
    offline: bool = False
    sources: tuple[SourceDefinition, ...] = ()
    pipelines: tuple[PipelineDefinition, ...] = ()
    output: Operator | None = None
    sinks: tuple[SinkDefinition, ...] = ()
    expectations: Expectations | None = None
    erase_keys: tuple[str, ...] = ()
    ingestion: str = UPSERT
    feed: str = field(default="", compare=False)
    meta: Metadata = Metadata()
    field_meta: Mapping[str, Metadata] = field(default_factory=dict)
    location: str = ""

    @property
    def dtypes(self) -> dict[str, DType]:
        """The type of every column, in order."""
        return self.schema.dtypes

    @property
    def is_terminal(self) -> bool:
        """Return True if values of a declared dataset depend on the query instant.

        No pipeline can read it.
        """
        return any(each.output.is_terminal for each in self.pipelines)

    def leaf(self) -> Leaf:
        """Return the plan node for a declared dataset's changes."""
        fed = all(each.cdc in INSERTING for each in self.sources)
        appends = not self.schema.is_keyed and fed and all(each.output.inserts_only for each in self.pipelines)
        return Leaf(dataset=self.name, version=self.version, columns=self.schema, appends=appends)

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the definition with its inputs' versions.

        Metadata, sources and sinks are not part of it.
        """
        return fingerprint(self.name, self.version, self.schema, self.history, self.output and self.output.id)

    @cached_property
    def signature(self) -> str:
        """The content that is immutable within a version: name, history, fields, pipelines."""
        return fingerprint(self.name, self.schema, self.history, self.erase_keys, operator_signature(self.output))

    def check_erase_keys(self, columns: Sequence[str]) -> None:
        """Refuse columns other than exactly the dataset's erase keys."""
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


def operator_signature(operator: Operator | None) -> str:
    """Return a digest of an operator and all before it, without versions of datasets."""
    if operator is None or isinstance(operator, Leaf):
        return operator.dataset if operator else ""
    parents = tuple(operator_signature(parent) for parent in operator.parents)
    return fingerprint(operator.identity, operator.parameters, parents)


@dataclass(frozen=True, kw_only=True)
class FeatureDefinition:
    """A feature of a featureset."""

    name: str
    featureset: str
    dtype: DType
    meta: Metadata = Metadata()
    location: str = ""

    @property
    def fqn(self) -> str:
        """`Featureset.feature`."""
        return f"{self.featureset}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class ExtractorDefinition:
    """The computation of features from other features.

    Args:
        name: unique in its featureset.
        featureset: the featureset that defines it.
        inputs: fully qualified names, in the order of the arguments.
        outputs: fully qualified names.
        datasets: the datasets it may look up.
        version: from 0.
        meta: user-provided metadata.
        location, env: `file:line` of the definition, and the environments that select it.
    """

    name: str
    featureset: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    datasets: tuple[str, ...] = ()
    version: int = 0
    meta: Metadata = field(default=Metadata(), metadata={"identity": False})
    location: str = field(default="", metadata={"identity": False})
    env: Selector = field(default=EVERY, compare=False)


@dataclass(frozen=True, kw_only=True)
class FunctionExtractor(ExtractorDefinition):
    """An extractor that calls the user's function.

    Args:
        function: called with the timestamps and one series per input.
    """

    function: UserFunction


@dataclass(frozen=True, kw_only=True)
class LookupExtractor(ExtractorDefinition):
    """An extractor that reads a field of a dataset's row.

    Args:
        field: the dataset's field.
        keys: the dataset's key fields, in the order of `inputs`.
        default: the value that replaces null; None for no default.
        is_list: True if lists of keys are looked up, giving lists.
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
    """An extractor that copies another feature's value.

    Args:
        default: the value that replaces null; None for no default.
    """

    default: Any = None


@dataclass(frozen=True, kw_only=True)
class ExpressionExtractor(ExtractorDefinition):
    """An extractor that evaluates an expression over features of the same featureset.

    Args:
        expression: its columns are the bare names of the inputs.
    """

    expression: Expr


@dataclass(frozen=True, kw_only=True)
class FeaturesetDefinition:
    """A featureset, as declared or as committed: there with the selected extractors."""

    name: str
    features: tuple[FeatureDefinition, ...]
    extractors: tuple[ExtractorDefinition, ...] = ()
    meta: Metadata = Metadata()
    location: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the definition, without metadata."""
        return fingerprint(self.name, [(each.name, each.dtype) for each in self.features], self.extractors)

    def feature(self, name: str) -> FeatureDefinition:
        """Return the feature with a name."""
        if name not in self.by_name:
            raise UnknownName(f"featureset '{self.name}' has no feature '{name}'{did_you_mean(name, self.by_name)}")
        return self.by_name[name]

    @cached_property
    def by_name(self) -> Mapping[str, FeatureDefinition]:
        """The features by name."""
        return {each.name: each for each in self.features}


@dataclass(frozen=True, slots=True)
class Definitions:
    """The committed content of a branch, by name.

    Args:
        datasets, featuresets: in commit order.
        env: the environment whose sources, pipelines and extractors were selected.
    """

    datasets: Mapping[str, DatasetDefinition]
    featuresets: Mapping[str, FeaturesetDefinition]
    env: str | None = None
