"""User extractors in a child process.

Their lookups are requests to the parent process, which answers the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import polars as pl

from umbel.api.lookup import answer_outside
from umbel.api.secrets import provide_secrets
from umbel.isolation import child
from umbel.query.extractor_groups import GroupCall
from umbel.query.functions import Computed, ExtractorCall, ExtractorLookups, FunctionStep, LookedUp
from umbel.query.rows import Fields
from umbel.query.session import QuerySession

MODULES = ("pandas", "umbel.query.isolated", "umbel.types.pandas", "umbel.api.featureset", "umbel.api.extractor")
"""The modules imported before child processes are forked."""
LOOKUP, DATASET, SECRET = "lookup", "dataset", "secret"


@dataclass(frozen=True, slots=True)
class IsolatedStep:
    """A step that runs in a child process.

    Without a call it only loads the function.
    """

    step: FunctionStep

    def __call__(self, call: ExtractorCall | None) -> list[Computed]:
        if call is None:
            self.step.function.load()
            return []
        lookups = ExtractorLookups(_Session(), self.step.title, self.step.datasets, self.step.function)
        answer_outside(lambda: lookups)  # threads that the extractor starts do not have its context
        provide_secrets(_Secrets())
        return self.step.compute(call, _Session())


@dataclass(frozen=True, slots=True)
class IsolatedGroup:
    """A call of several extractors in one child process.

    The process has called each of them before.
    """

    call: GroupCall

    def __call__(self, functions: Sequence[IsolatedStep]) -> list[Computed]:
        columns, found = dict(self.call.columns), list[Computed]()
        for function, requested in zip(functions, self.call.requested, strict=True):
            arguments = {each.fqn: columns[each.source] for each in function.step.arguments}
            computed = function(ExtractorCall(self.call.at, arguments, requested))
            for fqn, column, _ in computed:
                columns.setdefault(fqn, column)
            found += computed
        return found


class _Session:
    """A proxy for the query session of the parent process."""

    def lookup(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of each instant, with a found mask."""
        found: tuple[pl.DataFrame, pl.Series] = child.ask((LOOKUP, dataset, keys, at, fields))
        return found

    def dataset(self, name: str) -> LookedUp:
        """Return the part of a dataset definition that lookups need."""
        found: LookedUp = cloudpickle.loads(child.ask((DATASET, name)))
        return found


class _Secrets:
    def get(self, name: str) -> str:
        return str(child.ask((SECRET, name)))


def answered(session: QuerySession, question: tuple[str, Any]) -> Any:
    """Answer a child process's request to the query session."""
    kind, *rest = question
    if kind == LOOKUP:
        return session.lookup(*rest)
    if kind == DATASET:
        # by value: classes of structs that come from a script or a notebook have no module to be found in
        return cloudpickle.dumps(LookedUp.of(session.dataset(*rest)))
    from umbel.api.secrets import secrets

    return secrets.get(*rest)
