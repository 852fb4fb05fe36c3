"""Datasets: annotated classes as frozen records of typed, timestamped rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from umbel.api.caller import caller, location
from umbel.api.class_source import ClassText, read_class
from umbel.api.declaration import fields_of, schema_of
from umbel.api.defined import ClassBody, Defined
from umbel.api.expectations import ExpectationsRecord, expectations_of
from umbel.api.field import Field, FieldOptions
from umbel.api.flags import check_flags
from umbel.api.lookup import lookup
from umbel.api.metadata import meta_of
from umbel.api.node import Node
from umbel.api.pipeline import Pipeline, built_pipelines
from umbel.api.undecorated import apply_noted
from umbel.definitions.records import DatasetDefinition, Metadata
from umbel.definitions.versions import check_version
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue, located
from umbel.functions.fingerprint import fingerprint
from umbel.types.arguments import checked_call
from umbel.types.class_body import as_attribute, members_of, other_members_of
from umbel.types.durations import parse_duration

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class DatasetBody(ClassBody[Field]):
    """The parts of a dataset's class that are not in its definition.

    Args:
        is_indexed: True if an index is declared.
    """

    is_indexed: bool = False


OPERATORS = frozenset({name for name in vars(Node) if not name.startswith("_")} - {"then"})
"""The operators of pipelines: methods of a pipeline's inputs, refused with a reason on the dataset itself."""
if (
    TYPE_CHECKING
):  # parameters of pipelines are nodes annotated as datasets: to type checkers a dataset has their methods
    Rows = Node
else:
    Rows = object


class Dataset(Defined[DatasetDefinition, DatasetBody], Rows):
    """A dataset. Its fields are attributes: `User.uid` is a `Field`."""

    _kind = "dataset"
    _unpickled: ClassVar[Mapping[str, Any]] = {"pipelines": (), "sources": (), "sinks": (), "expectations": None}
    fields: list[Field]
    key_fields: list[str]
    erase_key_fields: list[str]
    timestamp_field: str

    def __init__(self, record: DatasetDefinition, body: DatasetBody) -> None:
        fields = [replace(each, owner=self) for each in body.columns]
        members = {name: as_attribute(each, self) for name, each in body.members.items()}
        own = {
            "_record": record,
            "_body": body,
            "__name__": record.name,
            "fields": fields,
            "key_fields": record.schema.key_names,
            "erase_key_fields": list(record.erase_keys),
            "timestamp_field": record.schema.timestamp,
            "__doc__": record.meta.description,
        }
        self.__dict__.update(members | {each.name: each for each in fields} | own)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in OPERATORS:
            raise self._outside(name, f"rows.{name}(...)")
        known = ", ".join(each.name for each in self._body.columns)
        raise AttributeError(f"dataset '{self._record.name}' has no field '{name}'; fields: {known}")

    if not TYPE_CHECKING:

        def __add__(self, other: object) -> Any:
            raise self._outside("+", "rows + others")

    def _outside(self, operator: str, example: str) -> InvalidAttribute:
        name = self._record.name
        return InvalidAttribute(
            f"dataset '{name}': {operator} is an operator of pipelines",
            hint=f"take '{name}' as an input: @pipeline, @inputs({name}), def name(cls, rows): return {example}",
        )

    def num_pipelines(self) -> int:
        """Return the number of pipelines."""
        return len(self._record.pipelines)

    def schema(self) -> dict[str, Any]:
        """Return the annotation of each field, by name."""
        return {each.name: each.dtype for each in self._body.columns}

    def lookup(
        self, *ts: pd.Series[Any], fields: Sequence[str | Field] = (), **keys: pd.Series[Any]
    ) -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the row of each key as of each instant, in extractors and tests.

        In an extractor the running query answers, for the datasets in its `deps`. Elsewhere the most recently created mock client
        answers, from its current branch, by the online index, also as of past instants.

        Args:
            ts: a series of datetimes.
            fields: the columns of the result; all of them by default.
            keys: a series for each key field.

        Returns:
            The rows in the order of the input, every value column nullable; and a mask of the keys found.

        Raises:
            InvalidValue: arguments are missing or of other types or lengths; the dataset is not committed.
        """
        return lookup(self._record, self._body.is_indexed, ts, fields, keys)

    def with_meta(self, meta: Metadata) -> Dataset:
        """Return the dataset with metadata."""
        described = replace(meta, description=meta.description or self._record.meta.description)
        return redefined(self, meta=self._body.owned(described))

    def description(self) -> str:
        """Description from the metadata."""
        return self._record.meta.description

    def __repr__(self) -> str:
        return f"Dataset({self._record.name}, version={self._record.version})"

    def _repr_html_(self) -> str:
        from umbel.api.notebook import of_dataset

        return of_dataset(self._record)

    def __digest__(self) -> str:
        return self.__fingerprint__

    @cached_property
    def __fingerprint__(self) -> str:
        return fingerprint(self._record.name, self._record.version, self._record.schema)


def record_of(dataset: Dataset) -> DatasetDefinition:
    """Return the definition of a dataset, as declared."""
    found = dataset.__dict__["_record"]
    assert isinstance(found, DatasetDefinition)
    return found


def _body_of(dataset: Dataset) -> DatasetBody:
    found = dataset.__dict__["_body"]
    assert isinstance(found, DatasetBody)
    return found


def redefined(dataset: Dataset, **changes: Any) -> Dataset:
    """Return a dataset with other values in its definition."""
    return Dataset(replace(record_of(dataset), **changes), _body_of(dataset))


T = TypeVar("T")


# Typed as the class passed in: editors then complete its fields.
@overload
def dataset(cls: type[T]) -> type[T]: ...


@overload
def dataset(
    cls: None = None,
    version: int = 1,
    history: str = "2y",
    index: bool = False,
    offline: bool | None = None,
    online: bool | None = None,
) -> Callable[[type[T]], type[T]]: ...


@checked_call
def dataset(
    cls: type | None = None,
    version: int = 1,
    history: str = "2y",
    index: bool = False,
    offline: bool | None = None,
    online: bool | None = None,
) -> Any:
    """Declare an annotated class as a dataset.

    Args:
        cls: the class, if the decorator is used without arguments.
        version: from 1; a changed definition needs a higher one.
        history: how long a server retains its changes; with "2y", as long as `UMBEL_CHANGE_LOG_AGE` says.
        index: True if rows can be looked up by key, now and as of any time.
        offline: True if rows can be looked up as of any time.
        online: True if the latest rows can be looked up.

    Raises:
        UmbelError: the definition is invalid; the message names the dataset and the field.
    """
    frame = caller()

    def decorate(found: type) -> Dataset:
        if not isinstance(found, type):
            raise InvalidType(
                f"@dataset needs a class, found {found!r}", where=location(frame), hint="put @dataset above a class"
            )
        owner = f"dataset '{found.__name__}'"
        with located(location(frame)):
            check_version(owner, version, "@dataset(version=1)", first=1)
            provided = {name: value for name, value in (("online", online), ("offline", offline)) if value is not None}
            check_flags(owner, index=index, **provided)
            indexes = _shorthand(index, online, offline, owner)
            made = _dataset(found, frame, version=version, history=_history(owner, history))
            return apply_noted(found, _indexed(made, *indexes) if index or any(indexes) else made)

    return decorate if cls is None else decorate(cls)


def _history(owner: str, history: Any) -> int:
    try:
        return parse_duration(history)
    except (InvalidType, InvalidValue) as error:
        raise error.restated(f"{owner}: history: {error.message}", hint=error.hint) from None


@checked_call
def index(
    obj: Dataset | None = None, type: str = "primary", online: bool = True, offline: str | None = "forever"
) -> Any:
    """Add a lookup index to a keyed dataset.

    Args:
        obj: the dataset, if the decorator is used without arguments.
        type: "primary", by all key fields.
        online: True if the latest rows can be looked up.
        offline: "forever": rows can be looked up as of any time; None: they cannot.

    Raises:
        InvalidValue: the object is not a keyed dataset without an index, or an argument has another value.
    """

    def decorate(found: Dataset) -> Dataset:
        if not isinstance(found, Dataset):
            raise InvalidValue(f"@index needs a dataset, found {found!r}", hint="put @index above @dataset")
        record = record_of(found)
        if _body_of(found).is_indexed:
            raise InvalidValue(
                f"dataset '{record.name}' has an index already",
                where=record.location,
                hint="keep one of @index and @dataset(index=...)",
            )
        if type != "primary":
            raise InvalidValue(f"dataset '{record.name}': unknown index type {type!r}", hint="valid types: 'primary'")
        check_flags(f"dataset '{record.name}'", online=online)
        if offline not in (None, "forever"):
            raise InvalidValue(
                f"dataset '{record.name}': offline index must be None or 'forever', found {offline!r}",
                hint='@index(offline="forever")',
            )
        return _indexed(found, online, offline is not None)

    return decorate if obj is None else decorate(obj)


def _shorthand(index: bool, online: bool | None, offline: bool | None, owner: str) -> tuple[bool, bool]:
    if index:
        if online or offline:
            raise InvalidValue(
                f"{owner}: with index=True, online and offline can only be False",
                hint="leave them out to have both indexes, or say False for the one that is not wanted",
            )
        return online is None, offline is None
    if online and offline:
        raise InvalidValue(f"{owner}: at most one of online=True and offline=True", hint="use index=True for both")
    return bool(online), bool(offline)


def _indexed(dataset: Dataset, online: bool, offline: bool) -> Dataset:
    record = record_of(dataset)
    if not record.schema.is_keyed:
        raise InvalidValue(
            f"dataset '{record.name}': an index needs at least one key field",
            where=record.location,
            hint="mark a key: field(key=True)",
        )
    return Dataset(replace(record, online=online, offline=offline), replace(_body_of(dataset), is_indexed=True))


def _dataset(cls: type, frame: FrameType, *, version: int, history: int) -> Dataset:
    where = location(frame)
    text = read_class(cls.__name__, where)
    fields = fields_of(cls, where, text)
    known = {each.name for each in fields} | vars(Dataset).keys()
    members = other_members_of(cls, known, (Pipeline, ExpectationsRecord, FieldOptions))
    body = DatasetBody(columns=fields, members=members, owner=frame.f_globals.get("__owner__", ""))
    described = meta_of(cls)
    declared = DatasetDefinition(
        name=cls.__name__,
        version=version,
        schema=schema_of(cls.__name__, fields),
        history=history,
        erase_keys=tuple(each.name for each in fields if each.erase_key),
        meta=body.owned(replace(described, description=described.description or (cls.__doc__ or "").strip())),
        field_meta={each.name: each.meta for each in fields},
        location=where,
    )
    bare = Dataset(declared, body)
    made = redefined(bare, pipelines=built_pipelines(_pipelines(cls, text), bare, declared))
    return redefined(made, expectations=expectations_of(cls, made, record_of(made).is_terminal))


def _pipelines(cls: type, text: ClassText) -> list[Pipeline]:
    pipelines = [each for each in members_of(cls).values() if isinstance(each, Pipeline)]
    for each in pipelines:
        if each.name in text.duplicates:
            raise InvalidValue(
                f"dataset '{cls.__name__}': duplicate pipeline name '{each.name}'",
                where=each.location,
                hint="give each pipeline a name of its own",
            )
    return pipelines
