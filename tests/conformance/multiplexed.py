"""All cases at once, in one deployment: each case's datasets get names of their own, and one job runs them all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tests.conformance.case import Case, Log, Row, Step
from tests.conformance.engines import plain
from tests.deployed import Deployed
from umbel.api.commit import check_commit
from umbel.connectors import Webhook
from umbel.definitions.records import DatasetDefinition, Definitions, SourceDefinition
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Operator
from umbel.query.answer import Answer
from umbel.query.execute import checked_fields
from umbel.query.lookups import Lookups
from umbel.runtime.commit import commit
from umbel.runtime.deployment import BUDGET
from umbel.runtime.history import replayed
from umbel.testing.tables import table

CENTURY = 100 * 365 * 86_400_000_000
CaughtUp = Callable[[Mapping[str, int]], None]


def fits(case: Case) -> bool:
    """Return whether a case can be run here: on datasets alone, fed where sources feed them."""
    derived = {name for name, each in check_commit(case.datasets, case.featuresets).datasets.items() if each.output}
    logged = {step.dataset for step in case.steps if isinstance(step, Log)}
    return not case.featuresets and not logged & derived


def renamed(case: Case, prefix: str) -> dict[str, DatasetDefinition]:
    """Return the datasets of a case under other names, those without pipelines fed by a webhook."""
    found = {}
    for dataset in check_commit(case.datasets, ()).datasets.values():
        name, output = prefix + dataset.name, dataset.output and renamed_operator(dataset.output, prefix)
        cdc = "upsert" if dataset.schema.is_keyed else "append"
        source = SourceDefinition(connector=Webhook(name="web").endpoint(name), disorder=CENTURY, cdc=cdc, every=0)
        found[name] = replace(dataset, name=name, output=output, sources=() if output else (source,))
    return found


def renamed_operator(operator: Operator, prefix: str) -> Operator:
    """Return an operator over datasets of other names."""
    if isinstance(operator, Leaf):
        return replace(operator, dataset=prefix + operator.dataset)
    return replace(operator, parents=tuple(renamed_operator(parent, prefix) for parent in operator.parents))


class Playing:
    """A case being played.

    Args:
        deployed: where.
        case: what.
        prefix: of the names of its datasets.
    """

    def __init__(self, deployed: Deployed, case: Case, prefix: str) -> None:
        self.case, self.failure = case, None
        self.datasets = renamed(case, prefix)
        self.logged = Counter[str]()
        self._deployed, self._prefix, self._steps = deployed, prefix, list(case.steps)

    def feed(self) -> bool:
        """Do the next step if it is one that feeds rows; return whether it was."""
        if not self._steps or not isinstance(self._steps[0], Log):
            return False
        self._steps.pop(0).run(self)
        return True

    def check(self) -> None:
        """Do the steps up to the next that feeds rows."""
        while self._steps and not isinstance(self._steps[0], Log):
            self._check(self._steps.pop(0))

    def forward(self) -> None:
        """Do all steps that feed rows, and forget the checks between them."""
        while any(isinstance(step, Log) for step in self._steps):
            if not self.feed():
                self._steps.pop(0)

    def _check(self, step: Step) -> None:
        try:
            step.run(self)
        except Exception as error:
            self.failure = self.failure or error

    # ---- what steps ask for

    def log(self, dataset: str, rows: Sequence[Row]) -> None:
        self._deployed.log(self._prefix + dataset, rows)
        self.logged[self._prefix + dataset] += len(rows)

    def table(self, dataset: str) -> list[Row]:
        name = self._prefix + dataset
        return self._plain(name, table(self, name))

    def lookup(self, dataset: str, keys: Sequence[Row], at: Sequence[datetime]) -> list[tuple[Row, bool]]:
        name = self._prefix + dataset
        frame, found = self._deployed.lookup_frame(name, keys, at)
        return list(zip(self._plain(name, frame), found, strict=True))

    def _plain(self, name: str, frame: pl.DataFrame) -> list[Row]:
        types = checked_fields(self.datasets[name], None)
        return plain(Answer({field: frame.get_column(field) for field in types}, types).to_pandas())

    # ---- what tables are made from

    @property
    def graph(self) -> Any:
        return self._deployed.deployment.graph(self._deployed.deployment.catalog.revision())

    @property
    def lookups(self) -> Lookups:
        return Lookups(self.graph, self._deployed.deployment.store, partial(replayed, self._deployed.deployment))

    def changes(self, dataset: str) -> Any:
        return self._deployed.deployment.changes.read(self.graph.outputs[dataset])

    def history(self, dataset: str) -> Any:
        return replayed(self._deployed.deployment, self.graph.outputs[dataset])


def begin(folder: Path, cases: Sequence[Case], budget: int = BUDGET) -> tuple[Deployed, list[Playing]]:
    """Return a deployment, with so many bytes of input per batch, and what is to be played on it."""
    deployed = Deployed(folder, budget=budget)
    return deployed, [Playing(deployed, case, f"C{number}") for number, case in enumerate(cases)]


def put_in_force(deployed: Deployed, playing: Sequence[Playing], *, sources_only: bool = False) -> None:
    """Commit the datasets of all cases, or only those with sources."""
    found = {name: each for one in playing for name, each in one.datasets.items() if each.sources or not sources_only}
    commit(deployed.deployment, Definitions(found, {}))


def logged(playing: Sequence[Playing]) -> dict[str, int]:
    """Return how many rows each dataset was fed."""
    return dict(sum((one.logged for one in playing), Counter[str]()))


def in_rounds(playing: Sequence[Playing], caught_up: CaughtUp) -> None:
    """Play all cases side by side: what feeds rows as it comes, checks when all of it has been seen."""
    while sum(one.feed() for one in random.sample(list(playing), len(playing))):
        caught_up(logged(playing))
        for one in playing:
            one.check()
