"""The examples in docstrings run and print what they show; operators, aggregates and functions of expressions have one.

Those of operators, aggregates and expressions use the names of `examples.py` of the documentation.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from umbel_reference import examples
from umbel_reference.pages import operator_classes

import umbel
import umbel.expr
from umbel import aggregates
from umbel.aggregates import Count
from umbel.aggregates.aggregate import AGGREGATES
from umbel.expr import Expr
from umbel.expr.registry import FUNCTIONS, Function
from umbel.operators.filter import Filter
from umbel.operators.operator import OPERATORS

SOURCE = Path(umbel.__file__).parent
LANGUAGE = ("umbel.operators.", "umbel.aggregates.", "umbel.expr.", "wrong")
PROMPT = ">>> "
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def modules_with_examples() -> list[ModuleType]:
    """Return the modules of umbel whose source has an example."""
    paths = (path for path in sorted(SOURCE.rglob("*.py")) if PROMPT in path.read_text(encoding="utf-8"))
    names = (path.relative_to(SOURCE.parent).with_suffix("").parts for path in paths)
    return [import_module(".".join(parts).removesuffix(".__init__")) for parts in names]


def examples_of(module: ModuleType) -> Iterator[doctest.DocTest]:
    """Yield the examples of a module's objects, also of the functions of expressions that it registers in a loop."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    shared = {name: value for name, value in vars(examples).items() if not name.startswith("_")}
    names = {**vars(module), **(shared if module.__name__.startswith(LANGUAGE) else {})}
    yield from finder.find(module, globs={**names})
    for function in FUNCTIONS.values():
        if function.build.__module__ == module.__name__ and "<locals>" in function.build.__qualname__:
            yield from finder.find(function.build, function.key, module, globs={**names})


def described(function: Function) -> str:
    """Return the docstring of a function of expressions, and of the public function that calls it."""
    public = getattr(umbel.expr, function.name, None) if function.style in ("function", "fields") else None
    return f"{inspect.getdoc(function.build)}\n{inspect.getdoc(public) or ''}"


METHODS = ("typeof", "matches_type", "eval", "astype")
"""Methods of expressions that are no registered functions."""
EVALUATION = {"evaluate", "judge", "matches"}
"""Public functions of `umbel.expr` that make no expression, but compute them over frames."""


def documented() -> dict[str, str]:
    """Return the docstring of each thing that must have an example."""
    own = [each for each in OPERATORS.every() if not each.is_internal]
    made = [each for each in AGGREGATES.every() if each.__name__ in aggregates.__all__ and not inspect.isabstract(each)]
    public = [getattr(umbel.expr, name) for name in umbel.expr.__all__ if name not in EVALUATION]
    return {
        **{f"operator {each.__name__}": inspect.getdoc(each) or "" for each in (*own, *operator_classes())},
        **{f"aggregate {each.__name__}": each.__doc__ or "" for each in made},
        **{f"function {each.__name__}": inspect.getdoc(each) or "" for each in public if inspect.isfunction(each)},
        **{f"method {name}": inspect.getdoc(getattr(Expr, name)) or "" for name in METHODS},
        **{
            f"expression {key}": described(each)
            for key, each in FUNCTIONS.items()
            if each.build.__module__.startswith("umbel.")
        },
    }


@pytest.mark.parametrize("module", modules_with_examples(), ids=lambda module: module.__name__)
def test_examples_print_what_they_show(module: ModuleType) -> None:
    found = [each for each in examples_of(module) if each.examples]
    runner, printed = doctest.DocTestRunner(optionflags=FLAGS, verbose=False), list[str]()
    for each in found:
        runner.run(each, out=printed.append)
    assert "".join(printed) == ""
    assert found


def without_example() -> list[str]:
    """Return what has no example, and must have one."""
    return [name for name, text in documented().items() if PROMPT not in text]


def test_every_operator_aggregate_and_function_has_an_example() -> None:
    assert without_example() == []
    assert len(documented()) > 110


def test_one_without_an_example_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    build = FUNCTIONS["num.abs"].build
    for each in (Filter, Count, umbel.expr.col, Expr.typeof, build):
        monkeypatch.setattr(each, "__doc__", "No example.")
    found = ["operator Filter", "aggregate Count", "function col", "method typeof", "expression num.abs"]
    assert without_example() == found


def test_a_wrong_example_is_found() -> None:
    module = ModuleType("wrong")
    module.__doc__ = ">>> values(col('x') + 1, x=[1])\n[3]\n"
    (test,) = examples_of(module)
    assert doctest.DocTestRunner(optionflags=FLAGS).run(test, out=lambda _: None).failed == 1
