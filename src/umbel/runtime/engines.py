"""The query engine of a branch: definitions, dataset state and erasures."""

from __future__ import annotations

from umbel.definitions.records import Definitions
from umbel.graph.graph import Branch
from umbel.query.completeness import Completeness
from umbel.query.erasure import Erased, Erasing
from umbel.query.execute import QueryEngine
from umbel.query.lookups import History, Lookups
from umbel.query.session import Caller
from umbel.state.port import Store


def engine_of(
    definitions: Definitions,
    graph: Branch,
    store: Store,
    history: History,
    erased: Erased,
    caller: Caller,
    known: Completeness,
) -> QueryEngine:
    """Return the query engine of a branch.

    Args:
        definitions: the definitions to query.
        graph: the datasets of the branch.
        store: their state.
        history: reads the changes behind a terminal aggregate.
        erased: the keys erased on the branch.
        caller: calls the users' extractors.
        known: tells from which instants on answers are right.
    """
    lookups = Lookups(graph, store, history, known)
    return QueryEngine(definitions, Erasing(lookups, erased) if erased else lookups, caller)
