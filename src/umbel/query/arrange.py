"""Arranging: from the extractors a query needs to the fewest steps that do their work.

Extractors are put in levels, each depending on lower ones only. Within a level all lookups on a dataset become one,
and all expressions of a featureset are evaluated together. An alias without default is only another name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Any

import polars as pl

from umbel.errors import NotSupported
from umbel.plan.definitions import (
    AliasExtractor,
    DatasetDefinition,
    ExpressionExtractor,
    ExtractorDefinition,
    FunctionExtractor,
    LookupExtractor,
)
from umbel.query.encode import Writers, writers
from umbel.query.functions import Argument, FunctionStep, Returned
from umbel.query.resolve import Catalogue, resolve
from umbel.query.session import Mode, indexed
from umbel.query.steps import NOW, AliasStep, ExpressionStep, Formula, LookupStep, Pick, Probe, Step
from umbel.types.dtypes import DType, List


@dataclass(frozen=True, slots=True)
class Plan:
    """How a query is answered.

    Args:
        inputs: the features given, with their types.
        outputs: the features wanted, with their types, in order.
        sources: for each output the column that holds it.
        writers: for each output what makes JSON of its values.
        steps: what to do.
        extractors: whose work that is.
    """

    inputs: Mapping[str, DType]
    outputs: Mapping[str, DType]
    sources: tuple[str, ...]
    writers: Writers
    steps: tuple[Step, ...]
    extractors: tuple[ExtractorDefinition, ...]


class _Level:
    """The work of one level, as it is collected."""

    def __init__(self, arranger: Arranger) -> None:
        self._arranger = arranger
        self._picks: dict[str, dict[tuple[tuple[str, ...], bool], list[Pick]]] = defaultdict(lambda: defaultdict(list))
        self._formulas: dict[str, list[ExpressionExtractor]] = defaultdict(list)
        self._others: list[Step] = []

    @singledispatchmethod
    def add(self, extractor: ExtractorDefinition) -> None:
        """Add an extractor's work."""
        raise NotSupported(f"extractor {type(extractor).__name__} has no step")

    @add.register
    def _(self, extractor: LookupExtractor) -> None:
        keys = dict(zip(extractor.keys, self._arranger.names(extractor.inputs), strict=True))
        ordered = tuple(keys[name] for name in self._arranger.key_fields(extractor.dataset))
        self._picks[extractor.dataset][ordered, extractor.is_list].append(self._arranger.pick(extractor))

    @add.register
    def _(self, extractor: AliasExtractor) -> None:
        (source,), (fqn,) = self._arranger.names(extractor.inputs), extractor.outputs
        default = one(extractor.default, self._arranger.dtype(fqn))
        if default is not None:
            self._others.append(AliasStep(fqn, source, default))

    @add.register
    def _(self, extractor: ExpressionExtractor) -> None:
        self._formulas[extractor.featureset].append(extractor)

    @add.register
    def _(self, extractor: FunctionExtractor) -> None:
        self._others.append(self._arranger.function(extractor))

    def steps(self) -> Iterable[Step]:
        """Yield the steps of the level."""
        for dataset, probes in self._picks.items():
            found = tuple(Probe(keys, tuple(picks), is_list) for (keys, is_list), picks in probes.items())
            yield LookupStep(dataset, self._arranger.key_fields(dataset), found)
        for extractors in self._formulas.values():
            yield self._arranger.expressions(extractors)
        yield from self._others


class Arranger:
    """Turns resolved extractors into steps.

    Args:
        catalogue: the committed features.
        datasets: what is committed.
        mode: which index must exist.
    """

    def __init__(self, catalogue: Catalogue, datasets: Mapping[str, DatasetDefinition], mode: Mode) -> None:
        self._catalogue, self._datasets, self._mode = catalogue, datasets, mode
        self._same: dict[str, str] = {}

    def plan(self, inputs: Sequence[str], outputs: Sequence[str]) -> Plan:
        """Return how to get the outputs from the inputs.

        Args:
            inputs: names of features.
            outputs: names of features and featuresets.
        """
        given, wanted = self._catalogue.given(inputs), self._catalogue.expanded(outputs)
        extractors = resolve(self._catalogue, given, wanted)
        steps = tuple(self._steps(extractors, given))
        return Plan(
            {fqn: self.dtype(fqn) for fqn in given},
            {fqn: self.dtype(fqn) for fqn in wanted},
            tuple(self.names(wanted)),
            writers({fqn: self.dtype(fqn) for fqn in wanted}),
            steps,
            tuple(extractors),
        )

    def _steps(self, extractors: Iterable[ExtractorDefinition], given: Iterable[str]) -> Iterable[Step]:
        depth = dict.fromkeys(given, 0)
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
        """Yield the columns that hold features: an alias shares that of what it stands for."""
        return (self._same.get(fqn, fqn) for fqn in features)

    def dtype(self, fqn: str) -> DType:
        """Return the type of a feature."""
        return self._catalogue.feature(fqn).dtype

    def key_fields(self, dataset: str) -> tuple[str, ...]:
        """Return the key fields of a dataset that is to be looked up."""
        return tuple(indexed(self._datasets, dataset, self._mode).schema.key_names)

    def pick(self, extractor: LookupExtractor) -> Pick:
        """Return what a lookup extractor reads."""
        (fqn,) = extractor.outputs
        declared = self.dtype(fqn)
        element = declared.base.of if extractor.is_list and isinstance(declared.base, List) else declared
        return Pick(fqn, extractor.field, declared.polars(), one(extractor.default, element))

    def expressions(self, extractors: Sequence[ExpressionExtractor]) -> ExpressionStep:
        """Return the evaluation of expressions over one featureset."""
        reads = {
            fqn.partition(".")[2]: (self.dtype(fqn), source)
            for extractor in extractors
            for fqn, source in zip(extractor.inputs, self.names(extractor.inputs), strict=True)
        }
        types = {name: dtype for name, (dtype, _) in reads.items()}
        formulas = tuple(self._formula(extractor, types) for extractor in extractors)
        return ExpressionStep({name: source for name, (_, source) in reads.items()}, types, formulas)

    def _formula(self, extractor: ExpressionExtractor, types: Mapping[str, DType]) -> Formula:
        feature = self._catalogue.feature(extractor.outputs[0])
        value = extractor.expression.polars(types, now=pl.col(NOW))
        return Formula(feature.fqn, feature.dtype, extractor.expression, value)

    def function(self, extractor: FunctionExtractor) -> FunctionStep:
        """Return the call of a user's extractor."""
        taken = zip(extractor.inputs, self.names(extractor.inputs), strict=True)
        arguments = tuple(Argument(fqn, source, self.dtype(fqn)) for fqn, source in taken)
        returns = tuple(Returned(fqn, fqn.partition(".")[2], self.dtype(fqn)) for fqn in extractor.outputs)
        return FunctionStep(
            extractor.featureset, extractor.name, extractor.function, arguments, returns, extractor.datasets
        )


def one(value: Any, dtype: DType) -> pl.Series | None:
    """Return a default as a column of one value, None for no default."""
    return None if value is None else dtype.ingest([value]).values
