"""Extractors: functions of the user's from features to features, run when a query asks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from umbel.api.dataset import Dataset, record_of
from umbel.api.env import Selector, selector
from umbel.api.feature import Feature, FeatureOptions
from umbel.api.field import Field
from umbel.api.inputs import INCLUDES, INPUTS, OUTPUTS, noted
from umbel.api.metadata import meta_of
from umbel.errors import InvalidType, InvalidValue, did_you_mean
from umbel.operators.columns import quoted
from umbel.operators.userfunction import UserFunction, place_of
from umbel.plan.definitions import FunctionExtractor, Metadata

if TYPE_CHECKING:
    from umbel.api.featureset import Featureset

Body = Callable[..., Any]
SECOND = ("ts", "_ts")


@dataclass(frozen=True)
class Extractor:
    """An extractor as written. Call it with the featureset, timestamps and inputs to test it.

    Args:
        func: its body.
        inputs: as given to `@inputs`.
        outputs: as given to `@outputs`; None for all features.
        deps: the datasets it may look up.
        version: from 0.
        env: the environments it is for.
    """

    func: Body
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] | None = None
    deps: tuple[Dataset, ...] = ()
    version: int = 0
    env: Selector = field(default_factory=Selector)
    meta: Metadata = field(default_factory=Metadata)
    includes: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """The function's name."""
        return self.func.__name__

    @property
    def place(self) -> str:
        """`file:line` of the function."""
        return place_of(self.func)

    def with_meta(self, meta: Metadata) -> Extractor:
        """Return it with metadata."""
        return replace(self, meta=meta)

    def with_includes(self, objs: tuple[Any, ...]) -> Extractor:
        """Return it with further objects that travel with its function."""
        return replace(self, includes=(*self.includes, *objs))

    def description(self) -> str:
        """What it is for."""
        return self.meta.description

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    def resolve(
        self, owner: Featureset, features: Mapping[str, Feature], options: Mapping[str, Any]
    ) -> FunctionExtractor:
        """Return the checked definition.

        Args:
            owner: the featureset it is defined in: the function's `cls`.
            features: that featureset's features, by name.
            options: the class's `feature(...)` values by name, for names used in class scope.
        """
        scope = _Scope(self, owner.__name__, features, {id(each): name for name, each in options.items()})
        inputs = tuple(scope.input(each) for each in self.inputs)
        outputs = features.values() if self.outputs is None else [scope.output(each) for each in self.outputs]
        return FunctionExtractor(
            name=self.name,
            featureset=owner.__name__,
            inputs=tuple(each.fqn() for each in inputs),
            outputs=tuple(each.fqn() for each in outputs),
            datasets=tuple(record_of(each).name for each in self.deps),
            version=self.version,
            meta=self.meta,
            place=self.place,
            function=UserFunction(partial(self.func, owner), self.includes),
        )


@dataclass(frozen=True)
class _Scope:
    """What names mean inside a featureset."""

    extractor: Extractor
    featureset: str
    features: Mapping[str, Feature]
    names: Mapping[int, str]

    @property
    def title(self) -> str:
        return f"extractor '{self.extractor.name}' of featureset '{self.featureset}'"

    def input(self, given: Any) -> Feature:
        found = self._named(given, "input")
        if isinstance(found, Feature):
            return found
        shown = found.fqn() if isinstance(found, Field) else getattr(found, "__name__", found)
        kind = type(found).__name__
        raise InvalidType(
            f"{self.title}: input {shown!r} is not a feature but a {kind}",
            where=self.extractor.place,
            hint='inputs are features: @inputs("name", OtherFeatureset.feature)',
        )

    def output(self, given: Any) -> Feature:
        found = self._named(given, "output")
        if not isinstance(found, Feature):
            shown = getattr(found, "__name__", found)
            raise InvalidType(
                f"{self.title}: output {shown!r} is not a feature but a {type(found).__name__}",
                where=self.extractor.place,
                hint='outputs are names of features of this featureset: @outputs("name")',
            )
        if found.featureset != self.featureset:
            raise InvalidType(
                f"{self.title}: output '{found.fqn()}' is a feature of another featureset, '{found.featureset}'",
                where=self.extractor.place,
                hint="outputs are features of this featureset",
            )
        return found

    def _named(self, given: Any, role: str) -> Any:
        name = self.names.get(id(given), given) if isinstance(given, FeatureOptions) else given
        if not isinstance(name, str):
            return name
        if name not in self.features:
            raise InvalidValue(
                f"{self.title}: unknown {role} '{name}'{did_you_mean(name, self.features)}",
                where=self.extractor.place,
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


def extractor(
    func: Body | None = None,
    deps: Sequence[Any] | None = None,
    version: int = 0,
    env: str | Sequence[str] | None = None,
    depends_on: Sequence[Any] | None = None,
) -> Extractor | Callable[[Body], Extractor]:
    """Make a method of a featureset class an extractor of features.

    Args:
        func: `(cls, ts, in1, in2, ...)` from series to a named series, or to a frame with a column per output.
        deps: the datasets it may look up; each needs an index.
        version: to be raised when the logic changes.
        env: the environments it is for.
        depends_on: the older name of `deps`.

    Raises:
        UmbelError: parameters, inputs, outputs or datasets that are not allowed; the message names the extractor.
    """

    def decorate(found: Body) -> Extractor:
        owner = f"extractor '{getattr(found, '__name__', found)}'"
        _check_version(owner, version)
        datasets = _datasets(owner, deps, depends_on)
        given, outputs = _features(owner, found, INPUTS), _features(owner, found, OUTPUTS)
        _check_parameters(found, owner, len(given or ()))
        includes = noted(found, INCLUDES) or ()
        return Extractor(found, given or (), outputs, datasets, version, selector(env, owner), meta_of(found), includes)

    return decorate if func is None else decorate(func)


def _features(owner: str, func: Body, attribute: str) -> tuple[Any, ...] | None:
    found = noted(func, attribute)
    if found == ():
        name = attribute.strip("_").removeprefix("umbel_")
        raise InvalidValue(
            f"{owner}: @{name} needs at least one feature",
            where=place_of(func),
            hint="name features, or leave the decorator out",
        )
    return found


def _check_version(owner: str, version: Any) -> None:
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidType(f"{owner}: version must be an int, found {version!r}", hint="@extractor(version=1)")


def _datasets(owner: str, deps: Any, depends_on: Any) -> tuple[Dataset, ...]:
    if deps is not None and depends_on is not None:
        raise InvalidValue(f"{owner}: give either deps or depends_on, its older name, not both", hint="use deps=")
    found = deps if deps is not None else (depends_on if depends_on is not None else [])
    if not isinstance(found, list | tuple):
        raise InvalidType(f"{owner}: deps must be a list of datasets, found {found!r}", hint="@extractor(deps=[User])")
    for each in found:
        if not isinstance(each, Dataset):
            raise InvalidType(f"{owner}: deps must be datasets, found {each!r}", hint="@extractor(deps=[User])")
        record = record_of(each)
        if not (record.online or record.offline):
            raise InvalidValue(
                f"{owner}: define an index on dataset '{record.name}' to look it up", hint="@dataset(index=True)"
            )
    return tuple(found)


def _check_parameters(func: Any, owner: str, inputs: int) -> None:
    if not callable(func):
        raise InvalidType(f"{owner}: @extractor needs a function", hint="write @extractor or @extractor(...)")
    where = place_of(func)
    parameters = list(inspect.signature(func).parameters.values())
    names = [each.name for each in parameters]
    if names[:1] != ["cls"]:
        raise InvalidType(
            f"{owner}: the first parameter must be 'cls', found {quoted(names[:1]) or 'none'}",
            where=where,
            hint="def name(cls, ts, ...)",
        )
    if not names[1:] or names[1] not in SECOND:
        raise InvalidType(
            f"{owner}: the second parameter must be 'ts', found {quoted(names[1:2]) or 'none'}",
            where=where,
            hint="def name(cls, ts, ...)",
        )
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return
    if inputs != len(names) - 2:
        found = f"{inputs} inputs, but {len(names) - 2} parameters after ts"
        raise InvalidType(
            f"{owner} has {found}: {', '.join(names[2:]) or 'none'}",
            where=where,
            hint="one parameter for each input, after cls and ts",
        )
