"""Featuresets: annotated classes of features and their extractors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, TypeVar, cast

from umbel.api.classtext import ClassText, read_class
from umbel.api.derived import Deriving
from umbel.api.env import Selector
from umbel.api.expectations import ExpectationsRecord
from umbel.api.extractor import Extractor
from umbel.api.faults import Faults
from umbel.api.feature import Feature, FeatureOptions
from umbel.api.field import Field
from umbel.api.metadata import meta_of
from umbel.api.place import caller, place
from umbel.errors import InvalidType, InvalidValue, NotSupported, all_faults, did_you_mean
from umbel.operators.fingerprint import fingerprint
from umbel.plan.definitions import ExtractorDefinition, Metadata
from umbel.types.annotations import from_annotation, to_annotation
from umbel.types.classbody import annotations_of, members_of

RESERVED = frozenset({"fqn_", "dtype", "featureset_name", "featureset", "extractor", "extractors", "features"})


@dataclass(frozen=True)
class Selectable:
    """An extractor and the environments it is for."""

    env: Selector
    definition: ExtractorDefinition


@dataclass(frozen=True, kw_only=True)
class FeaturesetRecord:
    """What a featureset was declared to be."""

    name: str
    features: tuple[Feature, ...]
    extractors: tuple[Selectable, ...] = ()
    written: tuple[Extractor, ...] = ()
    meta: Metadata = field(default_factory=Metadata)
    module_owner: str = ""
    place: str = ""

    def bare(self) -> FeaturesetRecord:
        """Return it without extractors: what travels with a function that refers to it."""
        return replace(self, features=tuple(each.bare() for each in self.features), extractors=(), written=())


class Featureset:
    """A featureset. Its features and extractors are attributes: `Users.age` is a `Feature`."""

    features: list[Feature]
    extractors: list[Extractor]
    _record: FeaturesetRecord

    def __init__(self, record: FeaturesetRecord) -> None:
        own = {
            "_record": record,
            "__name__": record.name,
            "__doc__": record.meta.description,
            "features": list(record.features),
            "extractors": list(record.written),
        }
        written: dict[str, Any] = {each.name: each for each in record.written}
        self.__dict__.update(written | {each.name: each for each in record.features} | own)

    def __setattr__(self, name: str, value: object) -> None:
        raise InvalidType(f"featureset '{self.__name__}' cannot be changed: {name}", hint="define it anew")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = [each.name for each in self._record.features]
        raise AttributeError(f"featureset '{self._record.name}' has no feature '{name}'{did_you_mean(name, known)}")

    def all(self) -> list[Feature]:
        """Return all features."""
        return list(self._record.features)

    def feature(self, name: str) -> Feature:
        """Return the feature of that name."""
        for each in self._record.features:
            if each.name == name:
                return each
        known = [each.name for each in self._record.features]
        raise InvalidValue(
            f"featureset '{self._record.name}' has no feature '{name}'{did_you_mean(name, known)}",
            hint="name one of its features",
        )

    def with_meta(self, meta: Metadata) -> Featureset:
        """Return it with metadata."""
        described = replace(meta, description=meta.description or self._record.meta.description)
        return Featureset(replace(self._record, meta=described))

    def description(self) -> str:
        """What it is for."""
        return self._record.meta.description

    def __repr__(self) -> str:
        return f"Featureset({self._record.name})"

    def __digest__(self) -> str:
        return fingerprint(self._record.name, [(each.name, each.type) for each in self._record.features])

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        raise InvalidType(
            f"featureset '{self.__name__}' cannot be inherited from",
            hint="let both inherit from a class with the annotations they share, without @featureset",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Featureset, (self._record.bare(),))


def featureset_record(featureset: Featureset) -> FeaturesetRecord:
    """Return what a featureset was declared to be."""
    found = featureset.__dict__["_record"]
    assert isinstance(found, FeaturesetRecord)
    return found


T = TypeVar("T")


# Typed as what it is given: editors then complete the features of the class.
def featureset(cls: type[T]) -> type[T]:
    """Make a featureset of an annotated class.

    Raises:
        UmbelError: the definition does not hold; the message names the featureset and the feature.
    """
    frame = caller()
    if not isinstance(cls, type):
        raise InvalidType(
            f"@featureset needs a class, found {cls!r}", where=place(frame), hint="put @featureset above a class"
        )
    where = place(frame)
    record = _record(cls, frame, where, read_class(cls.__name__, where))
    bare = Featureset(record.bare())
    features = {each.name: each for each in record.features}
    options = {name: value for name, value in members_of(cls).items() if isinstance(value, FeatureOptions)}
    faults, found = Faults(f"featureset '{record.name}'", where), list[Selectable]()
    for feature in record.features:
        if feature.options.reference is not None:
            with faults.noted():
                found.append(Selectable(feature.options.env, Deriving(feature, features, where).extractor()))
    for each in record.written:
        with faults.noted():
            found.append(Selectable(each.env, each.resolve(bare, features, options)))
    faults.check()
    made: Any = Featureset(replace(record, extractors=tuple(found)))
    return cast("type[T]", made)


def _record(cls: type, frame: FrameType, where: str, text: ClassText) -> FeaturesetRecord:
    annotations, names = annotations_of(cls)
    title = f"featureset '{cls.__name__}': names not allowed"
    error = all_faults(_name_faults(list(annotations), text), InvalidValue, title, hint="choose other names")
    if error:
        raise error
    if any(isinstance(each, ExpectationsRecord) for each in members_of(cls).values()):
        raise NotSupported(
            f"featureset '{cls.__name__}': expectations on featuresets are not supported",
            where=where,
            hint="put them on the datasets the features come from",
        )
    faults, features = Faults(f"featureset '{cls.__name__}'", where), list[Feature]()
    for name, each in annotations.items():
        with faults.noted():
            features.append(_feature(cls, name, each, names, text, where))
    with faults.noted():
        _check_fields_once(cls.__name__, features, where)
    faults.check()
    described = meta_of(cls)
    return FeaturesetRecord(
        name=cls.__name__,
        features=tuple(features),
        written=tuple(each for each in members_of(cls).values() if isinstance(each, Extractor)),
        meta=replace(described, description=described.description or (cls.__doc__ or "").strip()),
        module_owner=frame.f_globals.get("__owner__", ""),
        place=where,
    )


def _name_faults(names: list[str], text: ClassText) -> Iterator[str]:
    for name in text.duplicates:
        yield f"duplicate name '{name}'"
    for name in names:
        if name in RESERVED:
            yield f"feature name '{name}' is reserved"
        if "." in name:
            yield f"feature name '{name}' contains '.'"


def _feature(cls: type, name: str, annotation: Any, names: Mapping[str, Any], text: ClassText, where: str) -> Feature:
    options = members_of(cls).get(name, FeatureOptions())
    if not isinstance(options, FeatureOptions):
        found = f"{options!r} of type {type(options).__name__}"
        raise InvalidType(
            f"feature '{cls.__name__}.{name}' must be feature(...), found {found}",
            where=where,
            hint="name: type = feature(...)",
        )
    if not options.described.description and name in text.comments:
        options = replace(options, described=replace(options.described, description=text.comments[name]))
    dtype = from_annotation(annotation, owner=f"featureset {cls.__name__}", field=name, where=where, names=names)
    written = to_annotation(dtype) if isinstance(annotation, str) else annotation
    return Feature(name, cls.__name__, dtype, written, options)


def _check_fields_once(featureset: str, features: Sequence[Feature], where: str) -> None:
    seen: dict[str, str] = {}
    for each in features:
        reference = each.options.reference
        if not isinstance(reference, Field):
            continue
        if reference.fqn() in seen:
            both = f"'{seen[reference.fqn()]}' and '{each.name}'"
            raise InvalidValue(
                f"featureset '{featureset}': features {both} refer to the same field '{reference.fqn()}'",
                where=where,
                hint="let one of them refer to the other",
            )
        seen[reference.fqn()] = each.name
