"""Datasets: annotated classes become frozen records of typed, timed rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from umbel.api.classtext import ClassText, read_class
from umbel.api.declaration import fields_of, schema_of
from umbel.api.expectations import expectations_of
from umbel.api.faults import located
from umbel.api.field import Field
from umbel.api.fluent import Fluent
from umbel.api.lookup import lookup
from umbel.api.metadata import meta_of
from umbel.api.pipeline import Pipeline, PipelineRecord, built_pipelines
from umbel.api.place import caller, place
from umbel.errors import InvalidType, InvalidValue
from umbel.operators.fingerprint import fingerprint
from umbel.operators.leaf import Leaf
from umbel.plan.definitions import Expectations, Metadata
from umbel.types.classbody import members_of
from umbel.types.durations import parse_duration
from umbel.types.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from umbel.api.sink import SinkRecord
    from umbel.api.source import SourceRecord


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """What a dataset was declared to be.

    Args:
        history: how long its history is kept, in microseconds.
        online: whether the latest rows can be looked up.
        offline: whether rows can be looked up as of any time.
        is_indexed: whether an index was asked for.
        module_owner: the module's `__owner__`.
    """

    name: str
    version: int
    history: int
    fields: tuple[Field, ...]
    schema: Schema
    online: bool = False
    offline: bool = False
    is_indexed: bool = False
    pipelines: tuple[PipelineRecord, ...] = ()
    sources: tuple[SourceRecord, ...] = ()
    sinks: tuple[SinkRecord, ...] = ()
    expectations: Expectations | None = None
    meta: Metadata = field(default_factory=Metadata)
    module_owner: str = ""
    place: str = ""

    @property
    def is_terminal(self) -> bool:
        """Whether its values depend on the instant they are asked for, so that no pipeline can read it."""
        return any(each.output.is_terminal for each in self.pipelines)

    @property
    def appends(self) -> bool:
        """Whether it only ever gets inserts."""
        fed = all(each.cdc == "append" for each in self.sources)
        return not self.schema.is_keyed and fed and all(each.output.inserts_only for each in self.pipelines)

    def leaf(self) -> Leaf:
        """Return the node of a plan that stands for its changes."""
        return Leaf(dataset=self.name, version=self.version, columns=self.schema, appends=self.appends)

    def bare(self) -> DatasetRecord:
        """Return it without what computes its rows: what travels with a function that refers to it."""
        return replace(self, pipelines=(), sources=(), sinks=(), expectations=None)


class Dataset(Fluent):
    """A dataset. Its fields are attributes: `User.uid` is a `Field`."""

    _record: DatasetRecord
    fields: list[Field]
    key_fields: list[str]
    erase_key_fields: list[str]
    timestamp_field: str

    def __init__(self, record: DatasetRecord) -> None:
        fields = [replace(each, owner=self) for each in record.fields]
        own = {
            "_record": record,
            "__name__": record.name,
            "fields": fields,
            "key_fields": record.schema.key_names,
            "erase_key_fields": [each.name for each in record.fields if each.erase_key],
            "timestamp_field": record.schema.timestamp,
            "__doc__": record.meta.description,
        }
        self.__dict__.update({each.name: each for each in fields} | own)

    def __setattr__(self, name: str, value: object) -> None:
        raise InvalidType(f"dataset '{self.__name__}' cannot be changed: {name}", hint="define a new version of it")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = ", ".join(each.name for each in self._record.fields)
        raise AttributeError(f"dataset '{self._record.name}' has no field '{name}'; fields: {known}")

    def num_pipelines(self) -> int:
        """Return how many pipelines it has."""
        return len(self._record.pipelines)

    def schema(self) -> dict[str, Any]:
        """Return the annotation of each field, by name."""
        return {each.name: each.dtype for each in self._record.fields}

    def lookup(
        self, *ts: pd.Series[Any], fields: Sequence[str | Field] = (), **keys: pd.Series[Any]
    ) -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the row of each key as of each instant, for use in extractors.

        Args:
            ts: a series of datetimes.
            fields: the columns of the result; all of them by default.
            keys: a series for each key field.

        Returns:
            The rows in the order of the input, every value column nullable; and whether each was found.

        Raises:
            InvalidValue: arguments are missing or of other types or lengths; the dataset is not committed.
        """
        return lookup(self._record, ts, fields, keys)

    def with_meta(self, meta: Metadata) -> Dataset:
        """Return it with metadata."""
        described = replace(meta, description=meta.description or self._record.meta.description)
        return Dataset(replace(self._record, meta=described))

    def description(self) -> str:
        """What it is for."""
        return self._record.meta.description

    def __repr__(self) -> str:
        return f"Dataset({self._record.name}, version={self._record.version})"

    def __digest__(self) -> str:
        return fingerprint(self._record.name, self._record.version, self._record.schema)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        raise InvalidType(
            f"dataset '{self.__name__}' cannot be inherited from",
            hint="let both inherit from a class with the annotations they share, without @dataset",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Dataset, (self._record.bare(),))


def record_of(dataset: Dataset) -> DatasetRecord:
    """Return what a dataset was declared to be."""
    found = dataset.__dict__["_record"]
    assert isinstance(found, DatasetRecord)
    return found


T = TypeVar("T")


# Typed as what it is given: editors then complete the fields of the class.
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


def dataset(
    cls: type | None = None,
    version: int = 1,
    history: str = "2y",
    index: bool = False,
    offline: bool | None = None,
    online: bool | None = None,
) -> Any:
    """Make a dataset of an annotated class.

    Args:
        cls: the class, when used without arguments.
        version: from 1; a changed definition needs a higher one.
        history: how long its history is kept.
        index: whether rows can be looked up by key, now and as of any time.
        offline: whether rows can be looked up as of any time.
        online: whether the latest rows can be looked up.

    Raises:
        UmbelError: the definition does not hold; the message names the dataset and the field.
    """
    frame = caller()

    def decorate(found: type) -> Dataset:
        if not isinstance(found, type):
            raise InvalidType(
                f"@dataset needs a class, found {found!r}", where=place(frame), hint="put @dataset above a class"
            )
        owner = f"dataset '{found.__name__}'"
        with located(place(frame)):
            _check_version(version, owner)
            indexes = _shorthand(index, online, offline, owner)
            record = _record(found, frame, version=version, history=parse_duration(history))
            return Dataset(_indexed(record, *indexes) if index or any(indexes) else record)

    return decorate if cls is None else decorate(cls)


def index(
    obj: Dataset | None = None, type: str = "primary", online: bool = True, offline: str | None = "forever"
) -> Any:
    """Let rows of a keyed dataset be looked up.

    Args:
        obj: the dataset, when used without arguments.
        type: "primary", by all key fields.
        online: whether the latest rows can be looked up.
        offline: "forever": rows can be looked up as of any time; None: they cannot.

    Raises:
        InvalidValue: not a keyed dataset without an index, or arguments of other values.
    """

    def decorate(found: Dataset) -> Dataset:
        if not isinstance(found, Dataset):
            raise InvalidValue(f"@index needs a dataset, found {found!r}", hint="put @index above @dataset")
        record = record_of(found)
        if record.is_indexed:
            raise InvalidValue(
                f"dataset '{record.name}' has an index already",
                where=record.place,
                hint="keep one of @index and @dataset(index=...)",
            )
        if type != "primary":
            raise InvalidValue(f"dataset '{record.name}': unknown index type {type!r}", hint="valid types: 'primary'")
        if offline not in (None, "forever"):
            raise InvalidValue(
                f"dataset '{record.name}': offline index must be None or 'forever', found {offline!r}",
                hint='@index(offline="forever")',
            )
        return Dataset(_indexed(record, online, offline is not None))

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


def _indexed(record: DatasetRecord, online: bool, offline: bool) -> DatasetRecord:
    if not record.schema.is_keyed:
        raise InvalidValue(
            f"dataset '{record.name}': an index needs at least one key field",
            where=record.place,
            hint="mark a key: field(key=True)",
        )
    return replace(record, online=online, offline=offline, is_indexed=True)


def _check_version(version: Any, owner: str) -> None:
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidType(f"{owner}: version must be an int, found {version!r}", hint="@dataset(version=1)")
    if version < 1:
        raise InvalidValue(f"{owner}: version must be at least 1, found {version}", hint="the first version is 1")


def _record(cls: type, frame: FrameType, *, version: int, history: int) -> DatasetRecord:
    where = place(frame)
    text = read_class(cls.__name__, where)
    fields = fields_of(cls, where, text)
    described = meta_of(cls)
    record = DatasetRecord(
        name=cls.__name__,
        version=version,
        history=history,
        fields=fields,
        schema=schema_of(cls.__name__, fields),
        meta=replace(described, description=described.description or (cls.__doc__ or "").strip()),
        module_owner=frame.f_globals.get("__owner__", ""),
        place=where,
    )
    return _with_methods(record, cls, text)


def _with_methods(record: DatasetRecord, cls: type, text: ClassText) -> DatasetRecord:
    pipelines = [each for each in members_of(cls).values() if isinstance(each, Pipeline)]
    for each in pipelines:
        if each.name in text.duplicates:
            raise InvalidValue(
                f"dataset '{record.name}': duplicate pipeline name '{each.name}'",
                where=each.place,
                hint="give each pipeline a name of its own",
            )
    built = built_pipelines(pipelines, Dataset(record), record)
    record = replace(record, pipelines=built)
    return replace(record, expectations=expectations_of(cls, Dataset(record), record.is_terminal))
