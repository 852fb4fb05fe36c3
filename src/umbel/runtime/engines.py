"""The engine that answers for a branch: its definitions, the state of its datasets, and what it has erased."""

from __future__ import annotations

from umbel.plan.definitions import Definitions
from umbel.plan.graph import Branch
from umbel.query.erasure import Erased, Erasing
from umbel.query.execute import QueryEngine
from umbel.query.lookups import History, Lookups
from umbel.state.port import Store


def engine_of(definitions: Definitions, graph: Branch, store: Store, history: History, erased: Erased) -> QueryEngine:
    """Return what answers queries on a branch.

    Args:
        definitions: what is asked about.
        graph: the datasets of the branch.
        store: where their state is.
        history: where the changes behind a terminal aggregate are read from.
        erased: what the branch has erased.
    """
    lookups = Lookups(graph, store, history)
    return QueryEngine(definitions, Erasing(lookups, erased) if erased else lookups)
