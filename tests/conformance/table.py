"""What is proven and by which cases, as a page of the documentation: `python -m tests.conformance.table` writes it.

Nothing of it is written by hand: operators, aggregates, windows and expressions are those of the plans the cases commit; that
rows are retracted or late is what an aggregation gets to see when a case is played.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

import umbel.operators
from tests.conformance.case import Case
from tests.conformance.cases import CASES
from tests.conformance.engines import InProcess
from tests.conformance.multiplexed import fits
from umbel import aggregates
from umbel.aggregates import Aggregate
from umbel.api.commit import check_commit
from umbel.expr import Expr
from umbel.expr.call import Call
from umbel.expr.registry import FUNCTIONS
from umbel.operators.aggregate import Aggregation
from umbel.operators.index import Index
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Operator
from umbel.operators.reorder import Reorder
from umbel.plugins import is_own
from umbel.types.schema import WEIGHT
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
UNIT_TESTS = Path(__file__).parents[1] / "unit" / "expr"
ENGINES = ("in process", "streaming", "batch")
INSERTS, RETRACTIONS, LATE = MODES = ("insert-only", "with retractions", "late data")
WINDOWS = ("Continuous", "Continuous forever", "Tumbling", "Hopping", "Hopping forever", "Session")
REFUSED = "refused when it is defined"
REASONS = {
    "Merge": "several pipelines of a dataset are for different environments: tests/unit/api",
    ("ExpDecaySum", "Session"): REFUSED,
    "getitem": REFUSED,
}

Proofs = dict[Any, dict[str, list[str]]]


def operators(operator: Operator) -> Iterator[Operator]:
    """Yield an operator and all it reads."""
    yield operator
    for parent in operator.parents:
        yield from operators(parent)


def outputs(case: Case) -> list[Operator]:
    """Return the last operator of every pipeline of a case."""
    definitions = check_commit(case.datasets, case.featuresets).datasets.values()
    return [each.output for each in definitions if each.output is not None]


def kinds() -> list[str]:
    """Return the names of umbel's operators: other tests may have some of their own."""
    for module in pkgutil.iter_modules(umbel.operators.__path__):
        importlib.import_module(f"umbel.operators.{module.name}")
    concrete = (each for each in _concrete(Operator) if is_own(each))
    return sorted(each.__name__ for each in concrete if each not in (Leaf, Index, Reorder))


def _concrete(kind: type) -> Iterator[type]:
    if not inspect.isabstract(kind) and not kind.__subclasses__():
        yield kind
    for each in kind.__subclasses__():
        yield from _concrete(each)


def engines(case: Case) -> list[str]:
    """Return where a case is run."""
    return [*ENGINES] if fits(case) else ["in process"]


def of_operators() -> Proofs:
    """Return which cases prove each operator in each engine."""
    found: Proofs = {kind: {engine: [] for engine in ENGINES} for kind in kinds()}
    for case in CASES:
        used = {type(each).__name__ for output in outputs(case) for each in operators(output)}
        for kind in used & found.keys():
            for engine in engines(case):
                found[kind][engine].append(case.name)
    return found


# ---- aggregates ------------------------------------------------------------------------------------------------------


def window_kind(window: Any) -> str:
    """Return the kind of a window."""
    if isinstance(window, Session | Tumbling):
        return type(window).__name__
    assert isinstance(window, Continuous | Hopping)
    return f"{type(window).__name__}{' forever' if window.is_forever else ''}"


@contextmanager
def watched() -> Iterator[dict[str, set[str]]]:
    """Note for a `with` block what kinds of changes each aggregation gets, by the pipeline that ends in it."""
    seen: dict[str, set[str]] = defaultdict(set)
    newest: dict[str, datetime] = {}
    combine = Aggregation.partial

    def partial(self: Aggregation, rows: pl.DataFrame) -> pl.DataFrame:
        name, came = _name(self), rows.filter(pl.col(WEIGHT) > 0)[self.parents[0].schema.timestamp]
        if came.len() < rows.height:
            seen[name].add(RETRACTIONS)
        if name in newest and (came < newest[name]).any():
            seen[name].add(LATE)
        newest[name] = max(each for each in (newest.get(name), came.max()) if isinstance(each, datetime))
        seen[name].add("rows")
        return combine(self, rows)

    Aggregation.partial = partial  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        Aggregation.partial = combine  # type: ignore[method-assign]


def _name(operator: Aggregation) -> str:
    """Return what an aggregation is called; its id differs between runners, which keep windows in finer or coarser tiles."""
    return f"{operator.pipeline}: {operator.schema.names}"


def of_aggregates() -> Proofs:
    """Return which cases prove each aggregate in each kind of window, for each kind of input."""
    names = [each for each in aggregates.__all__ if each not in ("Aggregate", "AggregateType")]
    found: Proofs = {(name, window): {mode: [] for mode in MODES} for name in names for window in WINDOWS}
    for case in CASES:
        with watched() as seen:
            session = InProcess(case)
            for step in case.steps:
                step.run(session)
        for place, mode in sorted(_exercised(case, seen)):
            found[place][mode].append(case.name)
    return found


def _exercised(case: Case, seen: dict[str, set[str]]) -> set[tuple[tuple[str, str], str]]:
    found = set()
    for operator in {each.id: each for output in outputs(case) for each in operators(output)}.values():
        if isinstance(operator, Aggregation) and "rows" in seen.get(_name(operator), ()):
            modes = seen[_name(operator)] - {"rows"} or {INSERTS}
            found |= {(_place(operator, each), mode) for each in operator.aggregates for mode in modes}
    return found


def _place(operator: Aggregation, aggregate: Aggregate) -> tuple[str, str]:
    return type(aggregate).__name__, window_kind(operator.window or aggregate.window)


# ---- expressions -----------------------------------------------------------------------------------------------------


def functions(expression: Any) -> set[str]:
    """Return the keys of the functions an expression calls."""
    own = {expression.function.key} if isinstance(expression, Call) else set()
    return own.union(*(functions(child) for child in expression.children()))


def of_expressions() -> dict[str, Counter[str]]:
    """Return how many cases exercise each function: those of the tables in the unit tests, and those of pipelines."""
    found = {key: Counter[str]() for key in FUNCTIONS}
    for path in sorted(UNIT_TESTS.glob("test_*.py")):
        for expression in _tabled(importlib.import_module(f"tests.unit.expr.{path.stem}")):
            for key in functions(expression):
                found[key]["in process"] += 1
    for case in CASES:
        used = {
            key
            for output in outputs(case)
            for each in operators(output)
            for expression in _expressions(each.parameters)
            for key in functions(expression)
        }
        for key in used:
            found[key].update(engines(case))
    return found


def _tabled(module: Any) -> Iterator[Expr]:
    for each in vars(module).values():
        for mark in getattr(each, "pytestmark", []):
            if mark.name == "parametrize":
                yield from _expressions(mark.args[1])


def _expressions(value: Any) -> Iterator[Expr]:
    """Yield the expressions in data of any shape."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, dict):
        yield from _expressions(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _expressions(each)
    else:
        for name in ("columns", "condition", "computed", "expression"):
            if hasattr(type(value), "__dataclass_fields__") and hasattr(value, name):
                yield from _expressions(getattr(value, name))


# ---- the page --------------------------------------------------------------------------------------------------------


def _shown(proofs: Sequence[str], reason: str | None) -> str:
    return f"{len(proofs)}" if proofs else f"— {reason}" if reason else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page."""
    used, summed, called = of_operators(), of_aggregates(), of_expressions()
    by_operator = [
        [f"`{kind}`", *(_shown(proofs[engine], REASONS.get(kind)) for engine in ENGINES)]
        for kind, proofs in used.items()
    ]
    by_aggregate = [
        [f"`{name}`", window, *(_shown(proofs[mode], REASONS.get((name, window))) for mode in MODES)]
        for (name, window), proofs in summed.items()
    ]
    by_function = [
        [f"`{key}`", *(_shown("x" * counts[engine], REASONS.get(key)) for engine in ENGINES)]
        for key, counts in called.items()
    ]
    names = "".join(f"* {case.name} ({', '.join(engines(case))})\n" for case in CASES)
    return TEXT.format(
        operators=_table(["operator", *ENGINES], by_operator),
        aggregates=_table(["aggregate", "window", *MODES], by_aggregate),
        expressions=_table(["function", *ENGINES], by_function),
        cases=names,
    )


TEXT = """# Conformance

What is proven, and by how many cases. This page is made from the tests by `python -m tests.conformance.table`; a test fails
when it is out of date or has an empty cell.

A case is definitions, rows that are logged and answers that must come. It runs in process, streamed through Spark
(*streaming*) and as a backfill by Spark over rows that are there already (*batch*). Besides, a law runs random pipelines over
random changes, late, corrected and deleted ones included, in one call, as a stream and from history, and compares all of them
with plain Python: `tests/laws/test_programs.py`. Some of these pipelines run on Spark as well:
`tests/conformance/test_programs.py`.

## Operators

{operators}
## Aggregates

The kind of input is what the aggregation gets to see: only rows that come, also rows that are retracted, rows older than
some that came before.

{aggregates}
## Expressions

In process: how many expressions of the tables in `tests/unit/expr` and of cases call the function.

{expressions}
## Cases

{cases}"""

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
