"""Apply the tiling of a deployment to the operators of its datasets."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace

from umbel.definitions.records import DatasetDefinition
from umbel.operators.aggregate import ContinuousAggregation
from umbel.operators.operator import Operator
from umbel.windowing.tiling import Tiling


def tiled(datasets: Iterable[DatasetDefinition], tiling: Tiling) -> Iterator[DatasetDefinition]:
    """Yield datasets whose continuous windows use a tiling.

    Their state ids differ from those of any other tiling.

    Args:
        datasets: as committed, with the default tiling.
        tiling: of the deployment.
    """
    if tiling == Tiling():
        yield from datasets
        return
    done: dict[int, Operator] = {}
    for each in datasets:
        yield each if each.output is None else replace(each, output=_tiled(each.output, tiling, done))


def _tiled(operator: Operator, tiling: Tiling, done: dict[int, Operator]) -> Operator:
    if id(operator) not in done:
        parents = tuple(_tiled(each, tiling, done) for each in operator.parents)
        with warnings.catch_warnings():  # warnings of the definition, already reported when it was created
            warnings.simplefilter("ignore")
            made = operator
            if any(new is not old for new, old in zip(parents, operator.parents, strict=True)):
                made = replace(made, parents=parents)
            if isinstance(made, ContinuousAggregation):
                made = replace(made, tiling=tiling)
        done[id(operator)] = made
    return done[id(operator)]
