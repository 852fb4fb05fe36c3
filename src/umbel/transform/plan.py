"""Plans: configurations compiled for the types of a sample of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from umbel.transform.analysis import analysed
from umbel.transform.configuration import Configuration, FieldDocument
from umbel.transform.leaves import Leaves, RecordLeaf, identity
from umbel.transform.native import ColumnKind, Native, NotNative, holds, instant_texts
from umbel.transform.paths import FieldPath
from umbel.transform.records import EXPLODE, FILTER
from umbel.transform.steps.code import CustomCodeStep


@dataclass(frozen=True)
class PlannedDocument:
    """A document, compiled to columns or left to Python.

    Args:
        document: the document.
        native: its values in the plan, as JSON has them; None if it runs as Python.
        leaf: the leaf with its source, if it runs as Python.
        keeps: the conditions of its filters in the plan.
        reason: why it runs as Python, for people.
    """

    document: FieldDocument
    native: Native | None
    leaf: str = ""
    keeps: tuple[Native, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Plan:
    """A compiled configuration.

    Args:
        configuration: the configuration.
        documents: how each of its documents runs.
        leaves: the columns to read.
        constants: values computed once per batch, by column.
        stages: columns computed before the values, each stage of those before it.
        reason: why no document can run in the plan; empty if some can.
    """

    configuration: Configuration
    documents: tuple[PlannedDocument, ...]
    leaves: Mapping[RecordLeaf, str] = field(default_factory=dict)
    constants: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    stages: tuple[tuple[pl.Expr, ...], ...] = ()
    reason: str = ""

    @property
    def is_native(self) -> bool:
        """True if the whole configuration is one Polars plan, without Python."""
        has_targets = any(each.document.target is not None for each in self.documents)
        return (
            has_targets
            and not self.configuration.passthrough
            and all(each.native is not None for each in self.documents)
        )

    @property
    def needs_records(self) -> bool:
        """True if the whole records are read."""
        python = [each for each in self.documents if each.native is None]
        codes = [applied.step.python() for each in python for applied in each.document.steps]
        return self.configuration.passthrough or any(code is not None and code.reads_record for code in codes)

    @property
    def fit(self) -> pl.Expr:
        """The condition under which all values of a row are proven."""
        natives = [each.native for each in self.documents if each.native is not None]
        fits = [fit for each in (*natives, *self.keeps) for fit in each.fits]
        return holds(*{identity(each): each for each in fits}.values())

    @property
    def keeps(self) -> list[Native]:
        """The conditions of all filters in the plan."""
        return [keep for each in self.documents for keep in each.keeps]

    @property
    def keep(self) -> pl.Expr:
        """The condition under which a row is kept."""
        return holds(*(each.expr for each in self.keeps))


def compiled(configuration: Configuration, kinds: Callable[[FieldPath], ColumnKind | None]) -> Plan:
    """Return the plan of a configuration.

    Args:
        configuration: the configuration.
        kinds: returns the type of the values at a path, None if they have none in common.
    """
    if reason := one_by_one(configuration):
        return Plan(
            configuration,
            tuple(PlannedDocument(each, None, reason=reason) for each in configuration.documents),
            reason=reason,
        )
    leaves = Leaves(kinds)
    documents = tuple(_document(each, leaves) for each in configuration.documents)
    return Plan(configuration, documents, leaves.found, leaves.constants, _stages(leaves.computed.values()))


def _stages(computed: Iterable[tuple[str, pl.Expr]]) -> tuple[tuple[pl.Expr, ...], ...]:
    """Return computed columns in stages, each of columns that read only those of earlier stages."""
    stages: list[list[pl.Expr]] = []
    depths: dict[str, int] = {}
    for name, expr in computed:
        depth = max((depths.get(each, 0) for each in expr.meta.root_names()), default=0)
        depths[name] = depth + 1
        stages[depth : depth + 1] = [[*(stages[depth] if depth < len(stages) else []), expr.alias(name)]]
    return tuple(map(tuple, stages))


def one_by_one(configuration: Configuration) -> str:
    """Return why a configuration runs record by record; empty if it need not."""
    for document in configuration.documents:
        for applied in document.steps:
            code = applied.step.python()
            if applied.step.name == EXPLODE:
                return "explode makes several records of one"
            if code is not None and code.may_mutate:
                return f"the code of line {applied.code_line} may change the record in place, or imports a module"
    return ""


def _document(document: FieldDocument, leaves: Leaves) -> PlannedDocument:
    trial = Leaves(leaves.kinds, dict(leaves.found), dict(leaves.constants), dict(leaves.computed))
    try:
        value, keeps = _lowered(document, trial)
    except NotNative as reason:
        leaf = leaves.name(RecordLeaf(document.source, None))
        return PlannedDocument(document, None, leaf, reason=str(reason))
    leaves.found, leaves.constants, leaves.computed = trial.found, trial.constants, trial.computed
    return PlannedDocument(document, value, keeps=keeps)


def _lowered(document: FieldDocument, leaves: Leaves) -> tuple[Native, tuple[Native, ...]]:
    value, keeps = None, []
    for applied in document.steps:
        step = applied.step
        if isinstance(step, CustomCodeStep):
            if value is not None:
                raise NotNative("custom_code after other steps")
            value = analysed(step.body, document.source, leaves)
            continue
        value = leaves.column(document.source) if value is None else value
        if step.name == FILTER:
            keeps.append(step.native(value))
        elif value.kind is not ColumnKind.NULL or step.takes_null:
            value = step.native(value.shared())
    value = leaves.column(document.source) if value is None else value
    return written(value), tuple(keeps)


def written(value: Native) -> Native:
    """Return values as JSON has them: instants as RFC 3339."""
    if value.kind is not ColumnKind.INSTANT:
        return value
    value = value.shared()
    return value.then(instant_texts(value.expr), ColumnKind.TEXT, value.expr.dt.year() >= 1000)


def nested(values: Sequence[tuple[tuple[Any, ...], pl.Expr]]) -> list[pl.Expr]:
    """Return columns with the values nested by the paths of their fields."""
    groups: dict[str, list[tuple[tuple[Any, ...], pl.Expr]]] = {}
    for parts, expr in values:
        groups.setdefault(parts[0], []).append((parts[1:], expr))
    return [
        (inner[0][1] if not inner[0][0] else pl.struct(nested(inner))).alias(name) for name, inner in groups.items()
    ]
