"""Conversion of an annotated class to fields and a schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from umbel.api.class_source import ClassText
from umbel.api.field import Field, FieldOptions
from umbel.errors import ErrorCollector, InvalidType, InvalidValue, raise_all
from umbel.operators.columns import check_reserved, quoted
from umbel.types.annotations import from_annotation, to_annotation
from umbel.types.class_body import annotations_of, check_annotated, declared_with, fields_in
from umbel.types.dtypes import Date, Datetime, DType
from umbel.types.schema import Schema

RESERVED = frozenset({"cls", "self", "fields", "key_fields", "on_demand", "timestamp_field", "fqn"})


def fields_of(cls: type, where: str, text: ClassText) -> tuple[Field, ...]:
    """Return the fields of an annotated dataset class.

    Raises:
        UmbelError: a name or type is not allowed.
    """
    check_annotated(cls, FieldOptions, f"dataset '{cls.__name__}'", where, "uid: int = field(key=True)")
    annotations, names = annotations_of(cls)
    annotations = fields_in(annotations)
    check_names(cls.__name__, list(annotations), text)
    read = partial(from_annotation, subject=f"dataset {cls.__name__}", where=where, names=names)
    errors, found = ErrorCollector(f"dataset '{cls.__name__}'", where), list[Field]()
    for name, annotation in annotations.items():
        with errors.noted():
            found.append(_field(cls, name, annotation, read(annotation, field=name), text))
    errors.check()
    return tuple(found)


def check_names(dataset: str, names: Sequence[str], text: ClassText) -> None:
    """Refuse duplicate and reserved field names, reporting all of them at once."""
    title = f"dataset '{dataset}': field names not allowed"
    raise_all(_name_errors(names, text), InvalidValue, title, hint="choose other names")
    check_reserved(names, f"dataset '{dataset}'")


def _name_errors(names: Sequence[str], text: ClassText) -> Iterator[str]:
    for name in text.duplicates:
        if name in names:
            yield f"duplicate field name '{name}': another field or a method of the class has it"
    for name in names:
        if name in RESERVED:
            yield f"field name '{name}' is reserved"
        if "." in name:
            yield f"field name '{name}' contains '.'"
        if not name:
            yield f"a field name is empty: {names}"


def _field(cls: type, name: str, annotation: Any, dtype: DType, text: ClassText) -> Field:
    options = declared_with(cls, name, FieldOptions())
    subject = f"dataset '{cls.__name__}', field '{name}'"
    if not isinstance(options, FieldOptions):
        raise InvalidType(f"{subject}: a field has no default value, found {options!r}", hint="use field(...)")
    if not options.described.description and name in text.comments:
        described = replace(options.described, description=text.comments[name])
        options = replace(options, described=described)
    if options.key and dtype.is_optional:
        raise InvalidValue(
            f"{subject}: key field '{name}' cannot be optional, found {dtype}",
            hint="give the field a type without Optional, and fill nulls before they come in",
        )
    written = to_annotation(dtype) if isinstance(annotation, str) else annotation
    return Field(name, cls.__name__, dtype, written, options)


def schema_of(dataset: str, fields: Sequence[Field]) -> Schema:
    """Return the schema of a dataset's fields."""
    timestamp = _timestamp(dataset, fields)
    keys = tuple((each.name, each.type) for each in fields if each.key)
    values = tuple((each.name, each.type) for each in fields if not each.key and each.name != timestamp)
    return Schema(keys, values, timestamp, tuple(each.name for each in fields))


def _timestamp(dataset: str, fields: Sequence[Field]) -> str:
    flagged = [each for each in fields if each.timestamp]
    if len(flagged) > 1:
        names = quoted(each.name for each in flagged)
        raise InvalidValue(
            f"dataset '{dataset}': more than one timestamp field: {names}",
            hint="flag the one that is the row's event time",
        )
    if flagged:
        return _checked_timestamp(dataset, flagged[0])
    found = [each.name for each in fields if isinstance(each.type, Datetime) and not each.key]
    if not found:
        hint = "add a field of type datetime"
        raise InvalidValue(f"dataset '{dataset}': no timestamp field", hint=hint)
    if len(found) > 1:
        hint = "flag one with field(timestamp=True)"
        question = f"several datetime fields, {quoted(found)}: which is the timestamp?"
        raise InvalidValue(f"dataset '{dataset}': {question}", hint=hint)
    return found[0]


def _checked_timestamp(dataset: str, field: Field) -> str:
    if not isinstance(field.type, Datetime):
        kind = "date" if isinstance(field.type, Date) else str(field.type)
        raise InvalidValue(
            f"dataset '{dataset}': timestamp field '{field.name}' must be datetime, found {kind}",
            hint="give it the type datetime",
        )
    return field.name
