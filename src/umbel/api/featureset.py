"""Featuresets: annotated classes of features and their extractors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FrameType
from typing import Any, ClassVar, TypeVar, cast

from umbel.api.caller import caller, location
from umbel.api.class_source import ClassText, read_class
from umbel.api.defined import ClassBody, Defined
from umbel.api.derived import Deriving
from umbel.api.expectations import ExpectationsRecord
from umbel.api.extractor import Extractor
from umbel.api.feature import Feature, FeatureOptions
from umbel.api.field import Field
from umbel.api.metadata import meta_of
from umbel.api.undecorated import refuse_noted
from umbel.definitions.records import ExtractorDefinition, FeaturesetDefinition, Metadata
from umbel.errors import ErrorCollector, InvalidType, InvalidValue, NotSupported, did_you_mean, raise_all
from umbel.functions.fingerprint import fingerprint
from umbel.types.annotations import from_annotation, to_annotation
from umbel.types.arguments import checked_call
from umbel.types.class_body import (
    annotations_of,
    as_attribute,
    check_annotated,
    declared_with,
    fields_in,
    members_of,
    other_members_of,
)

RESERVED = frozenset({"fqn_", "dtype", "featureset_name", "featureset", "extractor", "extractors", "features"})


@dataclass(frozen=True, kw_only=True)
class FeaturesetBody(ClassBody[Feature]):
    """The parts of a featureset's class that are not in its definition.

    The member `original_cls` is the class itself.

    Args:
        extractors: the user's functions.
    """

    extractors: tuple[Extractor, ...] = ()

    def bare(self) -> FeaturesetBody:
        """Return the parts that are pickled with a function that refers to the featureset."""
        calls = {each.name: each.bare() for each in self.extractors}
        columns = tuple(each.bare() for each in self.columns)
        return replace(self, columns=columns, extractors=(), members={**self.members, **calls})


class Featureset(Defined[FeaturesetDefinition, FeaturesetBody]):
    """A featureset.

    Its features and extractors are attributes: `Users.age` is a `Feature`.
    """

    _kind = "featureset"
    _unpickled: ClassVar[Mapping[str, Any]] = {"extractors": ()}
    features: list[Feature]
    extractors: list[Extractor]

    def __init__(self, record: FeaturesetDefinition, body: FeaturesetBody) -> None:
        own = {
            "_record": record,
            "_body": body,
            "__name__": record.name,
            "__doc__": record.meta.description,
            "features": list(body.columns),
            "extractors": list(body.extractors),
        }
        extractors = {each.name: each for each in body.extractors}
        members = {name: self._attribute(each) for name, each in {**body.members, **extractors}.items()}
        self.__dict__.update(members | {each.name: each for each in body.columns} | own)

    def _attribute(self, member: Any) -> Any:
        return replace(member, subject=self) if isinstance(member, Extractor) else as_attribute(member, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = [each.name for each in self._record.features]
        raise AttributeError(f"featureset '{self._record.name}' has no feature '{name}'{did_you_mean(name, known)}")

    def all(self) -> list[Feature]:
        """Return all features."""
        return list(self._body.columns)

    def feature(self, name: str) -> Feature:
        """Return the feature with a name."""
        for each in self._body.columns:
            if each.name == name:
                return each
        known = [each.name for each in self._record.features]
        raise InvalidValue(
            f"featureset '{self._record.name}' has no feature '{name}'{did_you_mean(name, known)}",
            hint="name one of its features",
        )

    def with_meta(self, meta: Metadata) -> Featureset:
        """Return the featureset with metadata."""
        described = replace(meta, description=meta.description or self._record.meta.description)
        return Featureset(replace(self._record, meta=self._body.owned(described)), self._body)

    def description(self) -> str:
        """Description from the metadata."""
        return self._record.meta.description

    def __repr__(self) -> str:
        return f"Featureset({self._record.name})"

    def _repr_html_(self) -> str:
        from umbel.api.notebook import of_featureset

        return of_featureset(self._record)

    def __digest__(self) -> str:
        return self.__fingerprint__

    @cached_property
    def __fingerprint__(self) -> str:
        return fingerprint(self._record.name, [(each.name, each.dtype) for each in self._record.features])


def featureset_record(featureset: Featureset) -> FeaturesetDefinition:
    """Return the definition of a featureset, as declared."""
    found = featureset.__dict__["_record"]
    assert isinstance(found, FeaturesetDefinition)
    return found


T = TypeVar("T")


# Typed as the class passed in: editors then complete its features.
@checked_call
def featureset(cls: type[T]) -> type[T]:
    """Declare an annotated class as a featureset.

    Raises:
        UmbelError: the definition is invalid; the message names the featureset and the feature.
    """
    frame = caller()
    if not isinstance(cls, type):
        raise InvalidType(
            f"@featureset needs a class, found {cls!r}", where=location(frame), hint="put @featureset above a class"
        )
    where = location(frame)
    refuse_noted(cls, "featureset")
    made: Any = _featureset(cls, _body(cls, frame, where), where)
    return cast("type[T]", made)


def _featureset(cls: type, body: FeaturesetBody, where: str) -> Featureset:
    name, features = cls.__name__, {each.name: each for each in body.columns}
    options = {name: value for name, value in members_of(cls).items() if isinstance(value, FeatureOptions)}
    errors, found, written = (
        ErrorCollector(f"featureset '{name}'", where),
        list[ExtractorDefinition](),
        list[Extractor](),
    )
    for feature in body.columns:
        if feature.options.reference is not None:
            with errors.noted():
                found.append(Deriving(feature, features, where).extractor())
    for each in body.extractors:
        with errors.noted():
            written.append(each.addressed(name, features, options))
    body = replace(body, extractors=tuple(written))
    described = meta_of(cls)
    declared = FeaturesetDefinition(
        name=name,
        features=tuple(each.definition(where) for each in body.columns),
        meta=body.owned(replace(described, description=described.description or (cls.__doc__ or "").strip())),
        location=where,
    )
    bare = Featureset(declared, body.bare())
    for each in body.extractors:
        with errors.noted():
            found.append(each.resolve(bare, features, options))
    errors.check()
    return Featureset(replace(declared, extractors=tuple(found)), body)


def _body(cls: type, frame: FrameType, where: str) -> FeaturesetBody:
    text = read_class(cls.__name__, where)
    check_annotated(
        cls, FeatureOptions, f"featureset '{cls.__name__}'", where, "age: int = feature(User.age, default=0)"
    )
    annotations, names = annotations_of(cls)
    annotations = fields_in(annotations)
    title = f"featureset '{cls.__name__}': names not allowed"
    raise_all(_name_errors(list(annotations), text), InvalidValue, title, hint="choose other names")
    if any(isinstance(each, ExpectationsRecord) for each in members_of(cls).values()):
        raise NotSupported(
            f"featureset '{cls.__name__}': expectations on featuresets are not supported",
            where=where,
            hint="put them on the datasets the features come from",
        )
    errors, features = ErrorCollector(f"featureset '{cls.__name__}'", where), list[Feature]()
    for name, each in annotations.items():
        with errors.noted():
            features.append(_feature(cls, name, each, names, text, where))
    with errors.noted():
        _check_fields_once(cls.__name__, features, where)
    errors.check()
    return FeaturesetBody(
        columns=tuple(features),
        members={"original_cls": cls, **_members(cls, [each.name for each in features])},
        owner=frame.f_globals.get("__owner__", ""),
        extractors=tuple(each for each in members_of(cls).values() if isinstance(each, Extractor)),
    )


def _members(cls: type, features: Sequence[str]) -> dict[str, Any]:
    return other_members_of(
        cls, {*features, *vars(Featureset), "original_cls"}, (Extractor, FeatureOptions, ExpectationsRecord)
    )


def _name_errors(names: list[str], text: ClassText) -> Iterator[str]:
    for name in text.duplicates:
        yield f"duplicate name '{name}': another feature or a method of the class has it"
    for name in names:
        if name in RESERVED:
            yield f"feature name '{name}' is reserved"
        if "." in name:
            yield f"feature name '{name}' contains '.'"
        if not name:
            yield f"a feature name is empty: {names}"


def _feature(cls: type, name: str, annotation: Any, names: Mapping[str, Any], text: ClassText, where: str) -> Feature:
    options = declared_with(cls, name, FeatureOptions())
    if not isinstance(options, FeatureOptions):
        found = f"{options!r} of type {type(options).__name__}"
        raise InvalidType(
            f"feature '{cls.__name__}.{name}' must be feature(...), found {found}",
            where=where,
            hint="name: type = feature(...)",
        )
    if not options.described.description and name in text.comments:
        options = replace(options, described=replace(options.described, description=text.comments[name]))
    dtype = from_annotation(annotation, subject=f"featureset {cls.__name__}", field=name, where=where, names=names)
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
