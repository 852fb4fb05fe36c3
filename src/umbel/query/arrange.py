"""Query planning: arrange the resolved extractors into the fewest steps.

Extractors are grouped into levels, each depending on lower ones only. Within a level all lookups on a dataset become one,
and all expressions of a featureset are evaluated together. An alias without default only renames a column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

import polars as pl

from umbel.definitions.records import (
    AliasExtractor,
    DatasetDefinition,
    ExpressionExtractor,
    ExtractorDefinition,
    FunctionExtractor,
    LookupExtractor,
)
from umbel.errors import NotSupported
from umbel.expr.tree import scope_of
from umbel.query.encode import Writers, writers
from umbel.query.extractor_groups import grouped
from umbel.query.functions import Argument, FunctionStep, Returned
from umbel.query.resolve import Catalogue, resolve
from umbel.query.session import QueryMode, indexed
from umbel.query.steps import NOW, AliasStep, ExpressionStep, KeyLookup, LookupStep, NamedExpression, Projection, Step
from umbel.types.dtypes import DType, List


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The plan of a query: steps from input features to requested features.

    Args:
        inputs: the input features, with their types.
        outputs: the requested features, with their types, in order.
        sources: the column of each output.
        writers: the JSON encoder of each output.
        steps: the steps, in execution order.
        extractors: the extractors the steps run.
    """

    inputs: Mapping[str, DType]
    outputs: Mapping[str, DType]
    sources: Mapping[str, str]
    writers: Writers
    steps: tuple[Step, ...]
    extractors: tuple[ExtractorDefinition, ...]
    is_rowwise: bool = field(init=False)
    """True if every row of the answer is computed from that row alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_rowwise", all(step.is_rowwise for step in self.steps))


class _Level:
    """The extractors of one level, while they are collected."""

    def __init__(self, arranger: Arranger) -> None:
        self._arranger = arranger
        self._projections: dict[str, dict[tuple[tuple[str, ...], bool], list[Projection]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._expressions: dict[str, list[ExpressionExtractor]] = defaultdict(list)
        self._others: list[Step] = []

    @singledispatchmethod
    def add(self, extractor: ExtractorDefinition) -> None:
        """Add an extractor."""
        raise NotSupported(f"extractor {type(extractor).__name__} has no step")

    @add.register
    def _(self, extractor: LookupExtractor) -> None:
        keys = dict(zip(extractor.keys, self._arranger.names(extractor.inputs), strict=True))
        ordered = tuple(keys[name] for name in self._arranger.key_fields(extractor.dataset))
        self._projections[extractor.dataset][ordered, extractor.is_list].append(self._arranger.projection(extractor))

    @add.register
    def _(self, extractor: AliasExtractor) -> None:
        (source,), (fqn,) = self._arranger.names(extractor.inputs), extractor.outputs
        default = one(extractor.default, self._arranger.dtype(fqn))
        if default is not None:
            self._others.append(AliasStep(fqn, source, default))

    @add.register
    def _(self, extractor: ExpressionExtractor) -> None:
        self._expressions[extractor.featureset].append(extractor)

    @add.register
    def _(self, extractor: FunctionExtractor) -> None:
        self._others.append(self._arranger.function(extractor))

    def steps(self) -> Iterable[Step]:
        """Yield the steps of the level."""
        for dataset, lookups in self._projections.items():
            found = tuple(
                KeyLookup(keys, tuple(projections), is_list) for (keys, is_list), projections in lookups.items()
            )
            yield LookupStep(dataset, self._arranger.key_fields(dataset), found)
        for extractors in self._expressions.values():
            yield self._arranger.expressions(extractors)
        yield from self._others


class Arranger:
    """Converts resolved extractors to steps.

    Args:
        catalogue: the committed features.
        datasets: the committed datasets.
        mode: the index lookups use.
    """

    def __init__(self, catalogue: Catalogue, datasets: Mapping[str, DatasetDefinition], mode: QueryMode) -> None:
        self._catalogue, self._datasets, self._mode = catalogue, datasets, mode
        self._same: dict[str, str] = {}

    def plan(self, inputs: Sequence[str], outputs: Sequence[str]) -> QueryPlan:
        """Return the plan that computes the outputs from the inputs.

        Args:
            inputs: names of features.
            outputs: names of features and featuresets.
        """
        provided, requested = self._catalogue.provided(inputs), self._catalogue.expanded(outputs)
        extractors = resolve(self._catalogue, provided, requested)
        steps = tuple(grouped(self._steps(extractors, provided)))
        sources = dict(zip(requested, self.names(requested), strict=True))
        return QueryPlan(
            {fqn: self.dtype(fqn) for fqn in provided},
            {fqn: self.dtype(fqn) for fqn in requested},
            sources,
            writers({fqn: self.dtype(fqn) for fqn in requested}),
            steps,
            tuple(extractors),
        )

    def _steps(self, extractors: Iterable[ExtractorDefinition], provided: Iterable[str]) -> Iterable[Step]:
        depth = dict.fromkeys(provided, 0)
        levels: dict[int, _Level] = defaultdict(lambda: _Level(self))
        for extractor in extractors:
            self._note_alias(extractor, depth)
            level = 1 + max((depth[name] for name in self.names(extractor.inputs)), default=0)
            for fqn in extractor.outputs:
                depth.setdefault(fqn, level)
            levels[level].add(extractor)
        for level in sorted(levels):
            yield from levels[level].steps()

    def _note_alias(self, extractor: ExtractorDefinition, depth: Mapping[str, int]) -> None:
        if isinstance(extractor, AliasExtractor) and extractor.default is None and extractor.outputs[0] not in depth:
            self._same[extractor.outputs[0]] = next(iter(self.names(extractor.inputs)))

    def names(self, features: Iterable[str]) -> Iterable[str]:
        """Yield the columns of features; an alias shares its target's column."""
        return (self._same.get(fqn, fqn) for fqn in features)

    def dtype(self, fqn: str) -> DType:
        """Return the type of a feature."""
        return self._catalogue.feature(fqn).dtype

    def key_fields(self, dataset: str) -> tuple[str, ...]:
        """Return the key fields of a dataset to look up."""
        return tuple(indexed(self._datasets, dataset, self._mode).schema.key_names)

    def projection(self, extractor: LookupExtractor) -> Projection:
        """Return the field a lookup extractor reads."""
        (fqn,) = extractor.outputs
        declared = self.dtype(fqn)
        element = declared.base.of if extractor.is_list and isinstance(declared.base, List) else declared
        return Projection(fqn, extractor.field, declared.polars(), one(extractor.default, element))

    def expressions(self, extractors: Sequence[ExpressionExtractor]) -> ExpressionStep:
        """Return the step that evaluates expressions over one featureset."""
        reads = {
            fqn.partition(".")[2]: (self.dtype(fqn), source)
            for extractor in extractors
            for fqn, source in zip(extractor.inputs, self.names(extractor.inputs), strict=True)
        }
        types = {name: dtype for name, (dtype, _) in reads.items()}
        expressions = [self._named(extractor, types) for extractor in extractors]
        return ExpressionStep.of({name: source for name, (_, source) in reads.items()}, types, expressions)

    def _named(self, extractor: ExpressionExtractor, types: Mapping[str, DType]) -> NamedExpression:
        feature = self._catalogue.feature(extractor.outputs[0])
        expression = extractor.expression
        scope = scope_of(types, pl.col(NOW), [expression])
        compiled = scope.compile(expression) if scope.steps is None else None
        return NamedExpression(feature.fqn, feature.dtype, expression, compiled)

    def function(self, extractor: FunctionExtractor) -> FunctionStep:
        """Return the step that calls a user's extractor."""
        taken = zip(extractor.inputs, self.names(extractor.inputs), strict=True)
        arguments = tuple(Argument(fqn, source, self.dtype(fqn)) for fqn, source in taken)
        returns = tuple(Returned(fqn, fqn.partition(".")[2], self.dtype(fqn)) for fqn in extractor.outputs)
        return FunctionStep(
            extractor.featureset, extractor.name, extractor.function, arguments, returns, extractor.datasets
        )


def one(value: Any, dtype: DType) -> pl.Series | None:
    """Return a default as a column with one value, None for no default."""
    return None if value is None else dtype.ingest([value]).values
