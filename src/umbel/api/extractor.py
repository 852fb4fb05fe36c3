"""Extractors: user functions from features to features, run by queries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from umbel.api.dataset import Dataset, record_of
from umbel.api.feature import Feature, FeatureOptions
from umbel.api.field import Field
from umbel.api.inputs import INCLUDES, INPUTS, OUTPUTS, noted
from umbel.api.metadata import meta_of
from umbel.definitions.env import Selector, selector
from umbel.definitions.records import FunctionExtractor, Metadata
from umbel.definitions.versions import check_version
from umbel.errors import InvalidType, InvalidValue, did_you_mean
from umbel.functions.user_function import UserFunction, location_of
from umbel.operators.columns import quoted
from umbel.types.arguments import checked_call

if TYPE_CHECKING:
    from umbel.api.featureset import Featureset

Body = Callable[..., Any]
_OTHERS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (inspect.iscoroutinefunction, "a coroutine function"),
    (inspect.isgeneratorfunction, "a generator"),
    (inspect.isasyncgenfunction, "an asynchronous generator"),
    (lambda func: isinstance(func, staticmethod), "a static method"),
)
"""Kinds of functions whose results are no series, or whose first argument is no class."""
SECOND = ("ts", "_ts")


class WrongArguments(InvalidValue, TypeError):
    """The number of series passed to an extractor differs from its inputs."""

    code = "wrong-arguments"


@dataclass(frozen=True)
class Extractor:
    """An extractor as written.

    Call it with the featureset, timestamps and inputs to test it.

    Args:
        func: its body.
        inputs: the arguments of `@inputs`.
        outputs: the arguments of `@outputs`; None for all features.
        deps: the datasets it may look up.
        version: from 0.
        env: the environments that select it.
        arguments: the fully qualified names of the inputs; set once the featureset is known.
        subject: the featureset it was accessed on as an attribute.
    """

    func: Body
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] | None = None
    deps: tuple[Dataset, ...] = ()
    version: int = 0
    env: Selector = field(default_factory=Selector)
    meta: Metadata = field(default_factory=Metadata)
    includes: tuple[Any, ...] = ()
    arguments: tuple[str, ...] = ()
    subject: Any = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.func.__name__

    @property
    def location(self) -> str:
        """`file:line` of the function."""
        return location_of(self.func)

    def with_meta(self, meta: Metadata) -> Extractor:
        """Return the extractor with metadata."""
        return replace(self, meta=meta)

    def with_includes(self, objs: tuple[Any, ...]) -> Extractor:
        """Return the extractor with further objects pickled with its function."""
        return replace(self, includes=(*self.includes, *objs))

    def description(self) -> str:
        """Description from the metadata."""
        return self.meta.description

    def bare(self) -> Extractor:
        """Return the extractor reduced to the parts a direct call needs.

        This is pickled with a function that calls it.
        """
        return Extractor(self.func, arguments=self.arguments)

    def addressed(self, featureset: str, features: Mapping[str, Feature], options: Mapping[str, Any]) -> Extractor:
        """Return the extractor with its inputs' names; the arguments are those of `resolve`."""
        inputs = map(self._scope(featureset, features, options).input, self.inputs)
        return replace(self, arguments=tuple(each.fqn() for each in inputs))

    def _scope(self, featureset: str, features: Mapping[str, Feature], options: Mapping[str, Any]) -> _Scope:
        return _Scope(self, featureset, features, {id(each): name for name, each in options.items()})

    def __call__(self, cls: Any, ts: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the extractor on series, as a query does.

        Inputs and outputs are named by fully qualified feature names.

        Args:
            cls: the featureset, or its original class.
            ts: the timestamps.
            args: a series for each input.
            kwargs: the same, by the names of the parameters.

        Raises:
            WrongArguments: the number of series differs from the number of inputs.
        """
        subject = (
            cls if self.subject is None or cls is not getattr(self.subject, "original_cls", None) else self.subject
        )
        name = str(getattr(self.subject or cls, "__name__", ""))
        if len(args) + len(kwargs) != len(self.arguments):
            raise WrongArguments(
                f"extractor '{name}.{self.name}' takes one series for each input: {quoted(self.arguments) or 'none'}; "
                f"found {len(args) + len(kwargs)}",
                where=self.location,
                hint=f"{name}.{self.name}({name}, ts, ...)",
            )
        parameters = dict(zip(list(inspect.signature(self.func).parameters)[2:], self.arguments, strict=False))
        provided = [_renamed(each, fqn) for each, fqn in zip(args, self.arguments, strict=False)]
        named = {key: _renamed(each, parameters.get(key, key)) for key, each in kwargs.items()}
        return _qualified(self.func(subject, ts, *provided, **named), name)

    def resolve(
        self, subject: Featureset, features: Mapping[str, Feature], options: Mapping[str, Any]
    ) -> FunctionExtractor:
        """Return the checked definition.

        Args:
            subject: the featureset that defines it: the function's `cls`.
            features: that featureset's features, by name.
            options: the class's `feature(...)` values by name, for names used in class scope.
        """
        scope = self._scope(subject.__name__, features, options)
        inputs = tuple(scope.input(each) for each in self.inputs)
        outputs = features.values() if self.outputs is None else [scope.output(each) for each in self.outputs]
        return FunctionExtractor(
            name=self.name,
            featureset=subject.__name__,
            inputs=tuple(each.fqn() for each in inputs),
            outputs=tuple(each.fqn() for each in outputs),
            datasets=tuple(record_of(each).name for each in self.deps),
            version=self.version,
            meta=self.meta,
            location=self.location,
            env=self.env,
            function=UserFunction(partial(self.func, subject), self.includes),
        )


def _renamed(series: Any, name: str) -> Any:
    return series.rename(name) if _is_series(series) else series


def _is_series(value: Any) -> bool:
    return hasattr(value, "rename") and hasattr(value, "name")


def _qualified(result: Any, featureset: str) -> Any:
    """Return an extractor's result with columns named by fully qualified feature names."""

    def qualified(name: Any) -> str:
        return f"{featureset}.{str(name).removeprefix(f'{featureset}.')}"

    if hasattr(result, "columns"):
        return result.rename(columns=qualified)
    return result.rename(qualified(result.name)) if _is_series(result) and result.name is not None else result


@dataclass(frozen=True)
class _Scope:
    """The names visible inside a featureset, with their meaning."""

    extractor: Extractor
    featureset: str
    features: Mapping[str, Feature]
    names: Mapping[int, str]

    @property
    def title(self) -> str:
        return f"extractor '{self.extractor.name}' of featureset '{self.featureset}'"

    def input(self, provided: Any) -> Feature:
        found = self._named(provided, "input")
        if isinstance(found, Feature):
            return found
        shown = found.fqn() if isinstance(found, Field) else getattr(found, "__name__", found)
        kind = type(found).__name__
        raise InvalidType(
            f"{self.title}: input {shown!r} is no feature, but of type {kind}",
            where=self.extractor.location,
            hint='inputs are features: @inputs("name", OtherFeatureset.feature)',
        )

    def output(self, provided: Any) -> Feature:
        found = self._named(provided, "output")
        if not isinstance(found, Feature):
            shown = getattr(found, "__name__", found)
            raise InvalidType(
                f"{self.title}: output {shown!r} is no feature, but of type {type(found).__name__}",
                where=self.extractor.location,
                hint='outputs are names of features of this featureset: @outputs("name")',
            )
        if found.featureset != self.featureset:
            raise InvalidType(
                f"{self.title}: output '{found.fqn()}' is a feature of another featureset, '{found.featureset}'",
                where=self.extractor.location,
                hint="outputs are features of this featureset",
            )
        return found

    def _named(self, provided: Any, role: str) -> Any:
        name = self.names.get(id(provided), provided) if isinstance(provided, FeatureOptions) else provided
        if not isinstance(name, str):
            return name
        if name not in self.features:
            raise InvalidValue(
                f"{self.title}: unknown {role} '{name}'{did_you_mean(name, self.features)}",
                where=self.extractor.location,
                hint=f"features of '{self.featureset}': {', '.join(self.features)}",
            )
        return self.features[name]


@overload
def extractor(func: Body) -> Extractor: ...


@overload
def extractor(
    func: None = None,
    deps: Sequence[Any] | None = None,
    version: int = 0,
    env: str | Sequence[str] | None = None,
    depends_on: Sequence[Any] | None = None,
) -> Callable[[Body], Extractor]: ...


@checked_call
def extractor(
    func: Body | None = None,
    deps: Sequence[Any] | None = None,
    version: int = 0,
    env: str | Sequence[str] | None = None,
    depends_on: Sequence[Any] | None = None,
) -> Extractor | Callable[[Body], Extractor]:
    """Declare a method of a featureset class as an extractor of features.

    Args:
        func: `(cls, ts, in1, in2, ...)` from series to a named series, or to a frame with a column per output.
        deps: the datasets it may look up; each needs an index.
        version: raise it when the logic changes.
        env: the environments that select it.
        depends_on: the older name of `deps`.

    Raises:
        UmbelError: parameters, inputs, outputs or datasets are not allowed; the message names the extractor.
    """

    def decorate(found: Body) -> Extractor:
        subject = f"extractor '{getattr(found, '__name__', found)}'"
        check_version(subject, version, "@extractor(version=1)")
        datasets = _datasets(subject, deps, depends_on)
        provided, outputs = _features(subject, found, INPUTS), _features(subject, found, OUTPUTS)
        _check_parameters(found, subject)
        includes = noted(found, INCLUDES) or ()
        return Extractor(
            found, provided or (), outputs, datasets, version, selector(env, subject), meta_of(found), includes
        )

    return decorate if func is None else decorate(func)


def _features(subject: str, func: Body, attribute: str) -> tuple[Any, ...] | None:
    found = noted(func, attribute)
    if found == ():
        name = attribute.strip("_").removeprefix("umbel_")
        raise InvalidValue(
            f"{subject}: @{name} needs at least one feature",
            where=location_of(func),
            hint="name features, or leave the decorator out",
        )
    return found


def _datasets(subject: str, deps: Any, depends_on: Any) -> tuple[Dataset, ...]:
    if deps is not None and depends_on is not None:
        raise InvalidValue(f"{subject}: give either deps or depends_on, its older name, not both", hint="use deps=")
    found = deps if deps is not None else (depends_on if depends_on is not None else [])
    if not isinstance(found, list | tuple):
        raise InvalidType(
            f"{subject}: deps must be a list of datasets, found {found!r}", hint="@extractor(deps=[User])"
        )
    for each in found:
        if not isinstance(each, Dataset):
            raise InvalidType(f"{subject}: deps must be datasets, found {each!r}", hint="@extractor(deps=[User])")
        record = record_of(each)
        if not (record.online or record.offline):
            raise InvalidValue(
                f"{subject}: define an index on dataset '{record.name}' to look it up", hint="@dataset(index=True)"
            )
    return tuple(found)


def _check_parameters(func: Any, subject: str) -> None:
    if not callable(func):
        raise InvalidType(f"{subject}: @extractor needs a function", hint="write @extractor or @extractor(...)")
    where = location_of(func)
    if (kind := next((kind for is_kind, kind in _OTHERS if is_kind(func)), None)) is not None:
        raise InvalidType(
            f"{subject}: @extractor needs a plain function, found {kind}",
            where=where,
            hint="def name(cls, ts, ...), which returns a Series or a DataFrame",
        )
    parameters = list(inspect.signature(func).parameters.values())
    names = [each.name for each in parameters]
    if names[:1] != ["cls"]:
        raise InvalidType(
            f"{subject}: the first parameter must be 'cls', found {quoted(names[:1]) or 'none'}",
            where=where,
            hint="def name(cls, ts, ...)",
        )
    if not names[1:] or names[1] not in SECOND:
        raise InvalidType(
            f"{subject}: the second parameter must be 'ts', found {quoted(names[1:2]) or 'none'}",
            where=where,
            hint="def name(cls, ts, ...)",
        )
