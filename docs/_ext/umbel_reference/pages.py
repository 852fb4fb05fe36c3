"""The generated parts of the reference, each from the code that defines the things it lists."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import msgspec
import typer.main

import umbel.operators
from umbel.api.grouped import Grouped
from umbel.api.node import Node
from umbel.cli.main import PROGRAM, app
from umbel.expr.registry import FUNCTIONS, Function
from umbel.operators.operator import Operator
from umbel.serving.app import ROUTES
from umbel.transform.registry import steps as transform_steps
from umbel_reference import examples
from umbel_reference.docstrings import code, docstring_of, escaped, fenced, rendered, signature, table
from umbel_reference.public import public
from umbel_reference.sources import error_classes, metrics

FAMILIES = {
    "": "Operators and functions of any type",
    "num": "Numbers",
    "str": "Text",
    "dt": "Instants",
    "list": "Lists",
    "dict": "Dicts",
    "struct": "Structs",
}
CALLS = {
    "method": ".{family}.{name}({rest})",
    "attribute": ".{family}.{name}",
    "direct": ".{name}({rest})",
    "infix": "left {symbol} right",
    "prefix": "{symbol}value",
}
"""How a function of each style is written; a function of any other style is called by a public name or not at all."""


def of_public_names(page: str) -> str:
    """Return the sections of the public names of a page."""
    return "\n\n".join(each.described() for each in public() if each.page == page)


def operators() -> str:
    """Return a section for each method of a pipeline's rows, with what its operator class says."""
    made = operator_classes()
    parts = []
    for owner in (Node, Grouped):
        for name, method in sorted(vars(owner).items()):
            if inspect.isfunction(method) and not name.startswith("_") and name not in ("then", "schema"):
                prefix = "rows" if owner is Node else "rows.groupby(...)"
                parts += [f"## {name}", fenced("python", signature(method, f"{prefix}.{name}", bound=True))]
                parts += [rendered(docstring_of(method))]
                parts += [
                    without_arguments(each) for each in made if each.__name__.lower() == name or _is_join(each, name)
                ]
    return "\n\n".join(parts)


def _is_join(operator: type[Operator], name: str) -> bool:
    """Return True for the operators that share a method: as-of and table joins."""
    return name == "join" and operator.__module__.endswith(".join")


def without_arguments(operator: type[Operator]) -> str:
    """Return what an operator's docstring adds to that of its method: neither its fields nor, with one class, its first line."""
    text = inspect.cleandoc(operator.__doc__ or "")
    first, *others = text.split("\n\n")
    said = [first] if _is_join(operator, "join") else []
    paragraphs = (each for each in (*said, *others) if not each.startswith("Args:"))
    return rendered("\n\n".join(paragraphs))


def operator_classes() -> list[type[Operator]]:
    """Return the operators that methods of pipelines make, and no others: sources and outputs have no method."""
    found = []
    for each in pkgutil.iter_modules(umbel.operators.__path__):
        module = import_module(f"umbel.operators.{each.name}")
        found += [
            value
            for name, value in vars(module).items()
            if inspect.isclass(value) and issubclass(value, Operator) and value.__module__ == module.__name__
            if not inspect.isabstract(value) and not name.startswith("_") and _has_method(value)
        ]
    return found


def _has_method(operator: type[Operator]) -> bool:
    name = operator.__name__.lower()
    return hasattr(Node, name) or hasattr(Grouped, name) or _is_join(operator, "join")


def expressions() -> str:
    """Return a section for each registered function of expressions, by family."""
    parts = []
    for family in sorted({each.family for each in FUNCTIONS.values()}, key=[*FAMILIES].index):
        parts.append(f"## {FAMILIES[family]}" + (f": `.{family}`" if family else ""))
        own = (each for each in FUNCTIONS.values() if each.family == family and each.style in CALLS)
        for each in sorted(own, key=lambda function: function.name):
            parts += [f"### {expression_call(each)}", rendered(docstring_of(each.build))]
    return "\n\n".join(parts)


def expression_call(function: Function) -> str:
    """Return how a function of expressions is written."""
    _, *rest = function.signature.parameters
    call = CALLS[function.style].format(
        family=function.family,
        name=function.name,
        symbol=function.symbol,
        rest=", ".join(rest),
    )
    return code(call)


def commands() -> str:
    """Return a section for each command, from its `--help`."""
    return "\n\n".join(_command(typer.main.get_command(app), PROGRAM))


def _command(command: Any, name: str) -> Iterator[str]:
    for child in sorted(getattr(command, "commands", {})):
        found = command.commands[child]
        yield f"## `{name} {child}`"
        yield rendered(found.help or "")
        if not hasattr(found, "commands") or found.invoke_without_command:
            yield _parameters(found)
        yield from _command(found, f"{name} {child}")


def _parameters(command: Any) -> str:
    rows = [("parameter", "environment", "default", "meaning")]
    for each in command.params:
        if each.name != "help":
            names = (
                ", ".join((*each.opts, *each.secondary_opts))
                if each.param_type_name == "option"
                else each.metavar or str(each.name).upper()
            )
            rows.append((code(names), code(each.envvar or ""), escaped(_default(each)), escaped(each.help or "")))
    return table(*rows) if len(rows) > 1 else ""


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.required or parameter.default in (None, False, "") or callable(parameter.default):
        return "required" if parameter.required else ""
    return str(parameter.default)


def options() -> str:
    """Return the environment variables that set options of commands."""
    found: dict[str, tuple[str, str]] = {}
    for command in _leaves(typer.main.get_command(app)):
        for each in command.params:
            if each.envvar:
                found.setdefault(each.envvar, (each.opts[0], each.help or ""))
    rows = [(code(name), code(option), escaped(text)) for name, (option, text) in sorted(found.items())]
    return table(("variable", "option", "meaning"), *rows)


def _leaves(command: Any) -> Iterator[Any]:
    for child in getattr(command, "commands", {}).values():
        yield from _leaves(child)
    if not hasattr(command, "commands"):
        yield command


def errors() -> str:
    """Return the table of error classes with a code of their own."""
    rows = [
        (
            f"[`{each.code}`](../errors.md#{each.code})",
            code(each.name),
            ", ".join(map(code, each.builtins)),
            escaped(each.doc),
        )
        for each in error_classes()
    ]
    return table(("code", "class", "also", "meaning"), *rows)


def routes() -> str:
    """Return a section for each route, with its role, parameters and body."""
    parts = []
    for each in ROUTES:
        role = "none" if each.role is None else each.role.name.lower()
        rows = [("role", role)]
        rows += _members(each.parameters, "query string")
        rows += _members(each.body, "body")
        if each.changes and each.media != ("application/json",):
            rows.append(("content type of the body", ", ".join(map(code, each.media))))
        parts += [f"## `{each.method} {each.path}`", rendered(docstring_of(each.handler)), table(("", ""), *rows)]
    return "\n\n".join(parts)


def _members(struct: type | None, label: str) -> list[tuple[str, str]]:
    """Return rows with the required and the optional members of a struct."""
    if struct is None or not issubclass(struct, msgspec.Struct):
        return []
    members = msgspec.structs.fields(struct)
    required = [code(each.encode_name) for each in members if each.required]
    optional = [code(each.encode_name) for each in members if not each.required]
    rows = ((f"{label}: required", required), (f"{label}: optional", optional))
    return [(name, ", ".join(texts)) for name, texts in rows if texts]


def measured() -> str:
    """Return the table of metrics."""
    rows = [(code(m.name), m.kind, ", ".join(map(code, m.labels)), escaped(m.doc)) for m in metrics()]
    return table(("metric", "kind", "labels", "meaning"), *rows)


def steps() -> str:
    """Return a section for each step of the transformation."""
    parts = []
    for name, each in sorted(transform_steps().items()):
        rows = [("parameter", "default", "meaning")]
        for one in each.parameters:
            default = "required" if one.is_required else "" if one.default is None else code(one.default)
            choices = f" One of {', '.join(map(code, one.choices))}." if one.choices else ""
            rows.append((code(one.name), default, escaped(one.doc) + choices))
        parts += [f"## {code(name)}", rendered(each.doc()), *([table(*rows)] if len(rows) > 1 else [])]
    return "\n\n".join(parts)


def prepared() -> str:
    """Return the code that the examples run after."""
    source = inspect.getsource(examples)
    return fenced("python", source[source.index("\n\n") + 2 : source.index("\n\n\ndef values")])


PARTS: dict[str, Callable[[], str]] = {
    **{f"names {each}": lambda page=each: of_public_names(page) for each in sorted({each.page for each in public()})},
    "examples": prepared,
    "operators": operators,
    "expressions": expressions,
    "commands": commands,
    "options": options,
    "error codes": errors,
    "routes": routes,
    "metrics": measured,
    "steps": steps,
}
"""The generated parts by the name that pages put them by: `<!-- reference: operators -->`."""
