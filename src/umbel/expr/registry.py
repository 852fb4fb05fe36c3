"""The registry of expression functions, and the decorators for registration.

A function of the language is one Python function from Polars expressions to a Polars expression. Its annotations
(`umbel.expr.kinds`) declare its parameters and result; everything else is derived: type inference, errors, printing, records,
the table in the docs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args, get_type_hints

import polars as pl

from umbel import plugins
from umbel.errors import InvalidAttribute, InvalidType, PackageError, UnknownName, did_you_mean
from umbel.expr.kinds import Constant, Guarded, Kind, Lambda, Role, Site
from umbel.types.dtypes import DType, Float, Int

ENTRY_POINTS = "umbel.expressions"

Built = pl.Expr | Guarded
Rule = Callable[[Site], DType]


@dataclass(frozen=True)
class Function:
    """A function of the expression language.

    Args:
        family: its namespace; empty for operators, direct methods and constructors.
        name: its name in the family.
        build: makes the Polars expression.
        style: the printed form of a call: `method`, `attribute`, `direct`, `function`, `infix` or `prefix`.
        symbol: the operator's sign, for `infix` and `prefix`.
        rule: returns the result's type, when the annotation does not declare it.
        lifts: whether the result is Optional when an operand is.
        needs: returns, from the operands' values, the rows that use the last operand; all rows when None.
        views: the constant with the result's time zone.
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
        """The name used in the registry and in records."""
        return f"{self.family}.{self.name}" if self.family else self.name

    @cached_property
    def package(self) -> str:
        """The distribution that registers it, or at least its module; empty for umbel's own."""
        module = self.build.__module__
        if module.partition(".")[0] == plugins.OWN:
            return ""
        owners = [each for each in plugins.provided(ENTRY_POINTS) if f"{module}.".startswith(f"{each.module}.")]
        return plugins.package_of(owners[0]) if owners else module

    @property
    def shown(self) -> str:
        """The name displayed to users."""
        return f"'{self.symbol}'" if self.symbol else self.key

    @property
    def doc(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The role of each parameter: an operand's kind, a constant or a lambda."""
        hints = get_type_hints(self.build, include_extras=True)
        return {name: _role(hints[name]) for name in self.signature.parameters}

    @cached_property
    def returns(self) -> Kind | None:
        """The kind of the result if annotated, else None."""
        return next((part for part in get_args(self._hint_of_result) if isinstance(part, Kind)), None)

    @property
    def _hint_of_result(self) -> Any:
        return get_type_hints(self.build, include_extras=True).get("return")

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature for users, the receiver first."""
        full = inspect.signature(self.build)
        return full.replace(parameters=[p for p in full.parameters.values() if p.name != "site"])

    @cached_property
    def wants_site(self) -> bool:
        """True if the builder takes the call context `site`."""
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
        """Return True if a parameter takes any number of operands."""
        return self.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL

    @cached_property
    def has_lambda(self) -> bool:
        """True if the last operand is evaluated on the elements of the first."""
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
        """Return the type of the result, without the Optional caused by Optional operands."""
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
CONFLICTS: dict[str, str] = {}
"""The keys that two packages register, with a message that names both."""


def register(function: Function) -> Function:
    """Add a function to the language.

    Raises:
        PackageError: another module has a function of this family and name.
    """
    other = FUNCTIONS.setdefault(function.key, function)
    one, two = other.build.__module__, function.build.__module__
    if one != two:
        message = f"two expression functions are called '{function.key}': {_owner(other)} and {_owner(function)}"
        if other.package:
            CONFLICTS[function.key] = message
        raise PackageError(message, hint="uninstall one of the packages, or rename the function")
    FUNCTIONS[function.key] = function
    return function


def _owner(function: Function) -> str:
    return f"{function.build.__module__}.{function.build.__name__} of {function.package or plugins.OWN}"


def method(family: str = "", **options: Any) -> Callable[[Callable[..., Built]], Callable[..., Built]]:
    """Register the decorated builder as a method of a family, by default its module's."""

    def add(build: Callable[..., Built]) -> Callable[..., Built]:
        register(Function(family or build.__module__.rpartition(".")[2], build.__name__.rstrip("_"), build, **options))
        return build

    return add


def plain(style: str, symbol: str = "", **options: Any) -> Callable[[Callable[..., Built]], Callable[..., Built]]:
    """Register the decorated builder as an operator, a direct method or a constructor.

    It belongs to no family.
    """

    def add(build: Callable[..., Built]) -> Callable[..., Built]:
        register(Function("", build.__name__.rstrip("_"), build, style, symbol, **options))
        return build

    return add


def find(key: str, package: str = "") -> Function:
    """Return a registered function, including those of the entry point `umbel.expressions`.

    Args:
        key: its family and name.
        package: the package that must have registered it, as `Function.package`; any if empty.

    Raises:
        UnknownName: there is none.
        PackageError: two packages register it, or its package is not installed or cannot be loaded.
    """
    if key not in FUNCTIONS:
        load_entry_points()
    if key in CONFLICTS:
        raise PackageError(CONFLICTS[key], hint="uninstall one of the packages, or rename the function")
    found = FUNCTIONS.get(key)
    if package and (found is None or found.package != package):
        raise PackageError(
            f"definitions use the expression function '{key}' of '{package}', which is not installed here{_broken()}",
            hint=f"install '{package}' on the server and on every worker, and restart them",
        )
    if found is None:
        raise UnknownName(
            f"no expression function '{key}'{did_you_mean(key, FUNCTIONS)}{_broken()}",
            hint="see the table of expression functions in the documentation",
        )
    return found


def _broken() -> str:
    """Return the packages whose functions cannot be loaded, for messages."""
    return "".join(f"; {problem}" for problem in plugins.problems(ENTRY_POINTS))


def has_family(name: str) -> bool:
    """Return True if functions are registered in a family, by umbel or by another package."""
    if not any(function.family == name for function in FUNCTIONS.values()):
        load_entry_points()
    return any(function.family == name for function in FUNCTIONS.values())


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


def load_entry_points() -> None:
    """Import the expression functions of other packages; warn of broken packages."""
    for _ in plugins.working(ENTRY_POINTS):
        pass


def catalogue() -> list[dict[str, str]]:
    """Return one row per function for the docs.

    A row has the family, name, parameters, result and first line of the docstring.
    """
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
