"""The registry of expression functions, and the decorators that fill it.

A function of the language is one Python function from Polars expressions to a Polars expression. Its annotations
(`umbel.expr.kinds`) say what it takes and gives; everything else is derived: type inference, errors, printing, records,
the table in the docs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, get_args, get_type_hints

import polars as pl

from umbel.errors import InvalidAttribute, InvalidType, UnknownName, did_you_mean
from umbel.expr.kinds import Constant, Guarded, Kind, Lambda, Role, Site
from umbel.types.dtypes import DType, Float, Int

ENTRY_POINTS = "umbel.expressions"

Built = pl.Expr | Guarded
Rule = Callable[[Site], DType]


@dataclass(frozen=True)
class Function:
    """A function of the expression language.

    Args:
        family: the namespace it is found in; empty for operators, direct methods and constructors.
        name: its name in the family.
        build: makes the Polars expression.
        style: how a call is written: `method`, `attribute`, `direct`, `function`, `infix` or `prefix`.
        symbol: the operator's sign, for `infix` and `prefix`.
        rule: the result's type, when the annotation does not say it.
        lifts: whether the result is Optional when an operand is.
        needs: given the operands' values, the rows on which the last operand counts; all rows when None.
        views: the constant that sets the time zone the result is seen in.
    """

    family: str
    name: str
    build: Callable[..., Built]
    style: str = "method"
    symbol: str = ""
    rule: Rule | None = None
    lifts: bool = True
    needs: Callable[..., pl.Expr] | None = None
    views: str = ""

    @property
    def key(self) -> str:
        """The name it is registered and recorded by."""
        return f"{self.family}.{self.name}" if self.family else self.name

    @property
    def shown(self) -> str:
        """The name users know it by."""
        return f"'{self.symbol}'" if self.symbol else self.key

    @property
    def doc(self) -> str:
        """The first line of its documentation."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @cached_property
    def roles(self) -> dict[str, Role]:
        """What each parameter is: an operand's kind, a constant or a lambda."""
        hints = get_type_hints(self.build, include_extras=True)
        return {name: _role(hints[name]) for name in self.signature.parameters}

    @cached_property
    def returns(self) -> Kind | None:
        """The kind of the result, when the annotation says it."""
        return next((part for part in get_args(self._hint_of_result) if isinstance(part, Kind)), None)

    @property
    def _hint_of_result(self) -> Any:
        return get_type_hints(self.build, include_extras=True).get("return")

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters a user gives, the receiver first."""
        full = inspect.signature(self.build)
        return full.replace(parameters=[p for p in full.parameters.values() if p.name != "site"])

    @cached_property
    def wants_site(self) -> bool:
        """Whether the builder asks where it is applied."""
        return "site" in inspect.signature(self.build).parameters

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by parameter name, defaults filled in."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidType(f"{self.shown}: {error}", hint=f"it is {self.shown}{self.signature}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def is_variadic(self, name: str) -> bool:
        """Whether a parameter takes any number of operands."""
        return self.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL

    @cached_property
    def has_lambda(self) -> bool:
        """Whether the last operand is evaluated on the elements of the first."""
        return any(isinstance(role, Lambda) for role in self.roles.values())

    def kinds(self, count: int) -> list[Kind]:
        """Return the kinds of the first `count` operands."""
        kinds: list[Kind] = []
        for name, role in self.roles.items():
            if isinstance(role, Kind | Lambda):
                kind = role.of if isinstance(role, Lambda) else role
                kinds += [kind] * (count if self.is_variadic(name) else 1)
        return kinds[:count]

    def result(self, site: Site) -> DType:
        """Return the type of the result, before Optional operands make it Optional."""
        if self.rule is not None:
            return self.rule(site)
        if self.returns is None or self.returns.result is None:
            raise TypeError(f"{self.key} says neither by annotation nor by rule what it returns")
        is_float = self.returns.result == Int() and len(self.returns.plain) > 1 and not site.is_whole
        return Float() if is_float else self.returns.result

    def run(self, values: Iterable[Any], site: Site) -> Built:
        """Build the Polars expression of a call from the values of its operands."""
        rest, args, kwargs = iter(values), list[Any](), dict[str, Any]()
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(rest)
                continue
            value = site.constants[name] if isinstance(self.roles[name], Constant) else next(rest)
            if parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return self.build(*args, **kwargs, **({"site": site} if self.wants_site else {}))

    def __reduce__(self) -> tuple[object, ...]:
        return (find, (self.key,))


def _role(hint: Any) -> Role:
    return next(part for part in get_args(hint) if isinstance(part, Kind | Constant | Lambda))


FUNCTIONS: dict[str, Function] = {}


def register(function: Function) -> Function:
    """Add a function to the language."""
    FUNCTIONS[function.key] = function
    return function


def method(**options: Any) -> Callable[[Callable[..., Built]], Callable[..., Built]]:
    """Register the decorated builder as a method of the family its module is named after."""

    def add(build: Callable[..., Built]) -> Callable[..., Built]:
        family = build.__module__.rpartition(".")[2]
        register(Function(family, build.__name__.rstrip("_"), build, **options))
        return build

    return add


def plain(style: str, symbol: str = "", **options: Any) -> Callable[[Callable[..., Built]], Callable[..., Built]]:
    """Register the decorated builder outside of the families: an operator, a direct method or a constructor."""

    def add(build: Callable[..., Built]) -> Callable[..., Built]:
        register(Function("", build.__name__.rstrip("_"), build, style, symbol, **options))
        return build

    return add


def find(key: str) -> Function:
    """Return a registered function; installed packages may add some by the entry point `umbel.expressions`."""
    if key not in FUNCTIONS:
        _load_entry_points()
    if key not in FUNCTIONS:
        raise UnknownName(
            f"no expression function '{key}'{did_you_mean(key, FUNCTIONS)}",
            hint="see the table of expression functions in the documentation",
        )
    return FUNCTIONS[key]


def find_method(family: str, name: str) -> Function:
    """Return a function of a family, for attribute access."""
    try:
        return find(f"{family}.{name}")
    except UnknownName:
        known = [function.name for function in FUNCTIONS.values() if function.family == family]
        raise InvalidAttribute(
            f"'.{family}' has no '{name}'{did_you_mean(name, known)}",
            hint="see the table of expression functions in the documentation",
        ) from None


def _load_entry_points() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()


def catalogue() -> list[dict[str, str]]:
    """Return one row per function, for the docs: family, name, parameters, result, first line of its documentation."""
    return [
        {
            "family": function.family,
            "name": function.symbol or function.name,
            "takes": ", ".join(f"{name}: {role.name}" for name, role in function.roles.items()),
            "gives": function.returns.name if function.returns else "see text",
            "doc": function.doc,
        }
        for function in sorted(FUNCTIONS.values(), key=lambda each: each.key)
    ]
