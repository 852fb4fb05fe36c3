"""Datasets: fields, timestamps, indexes, names (api §2.1–2.3)."""

import pickle
from datetime import date, datetime
from typing import Any, Optional

import cloudpickle
import pytest

from tests.unit.refusals import Cases, check_refused
from umbel.api.dataset import Dataset, dataset, index, record_of
from umbel.api.field import field
from umbel.api.metadata import desc, meta
from umbel.errors import InvalidAttribute
from umbel.types.structs import struct

refused = Cases()


@dataset(version=3, history="30d")
@meta(owner="a@b.c", tags=["x"])
class User:
    """People."""

    # Who it is,
    # by number.
    uid: int = field(key=True, erase_key=True)
    org: str = field(key=True).meta(description="where", owner="o@b.c")
    # how old
    age: Optional[int]
    # not the description of t

    t: datetime


def test_what_users_read() -> None:
    assert isinstance(User, Dataset)
    assert User.__name__ == "User"
    assert [each.name for each in User.fields] == ["uid", "org", "age", "t"]
    assert User.key_fields == ["uid", "org"]
    assert User.erase_key_fields == ["uid"]
    assert User.timestamp_field == "t"
    assert str(User.age) == "age"
    assert User.age.fqn() == "User.age"
    assert User.num_pipelines() == 0
    assert User.schema() == {"uid": int, "org": str, "age": Optional[int], "t": datetime}
    record = record_of(User)
    assert (record.version, record.history) == (3, 30 * 86_400_000_000)
    assert record.schema.names == ["uid", "org", "age", "t"]
    assert record.location.startswith(__file__)


def test_comments_above_fields_describe_them() -> None:
    assert desc(User.uid) == "Who it is,\nby number."
    assert desc(User.org) == "where"
    assert desc(User.age) == "how old"
    assert desc(User.t) == ""
    assert desc(User) == "People."
    assert User.org.meta.owner == "o@b.c"


def test_meta_above_and_below() -> None:
    @meta(owner="p@q.r", description="said", deprecated=True)
    @dataset
    class D:
        t: datetime

    assert record_of(D).meta.owner == "p@q.r"
    assert desc(D) == "said"
    assert record_of(User).meta.tags == ("x",)


def test_a_field_may_have_the_name_of_a_method() -> None:
    @dataset
    class D:
        schema: int
        lookup: str
        version: int
        name: str
        t: datetime

    assert str(D.schema) == "schema"
    assert str(D.lookup) == "lookup"
    assert record_of(D).schema.names == ["schema", "lookup", "version", "name", "t"]


def test_unknown_fields_are_named() -> None:
    with pytest.raises(AttributeError, match="'User' has no field 'agee'"):
        _ = User.agee
    with pytest.raises(TypeError, match="cannot be changed"):
        User.age = 1


@pytest.mark.parametrize(
    "name", [*["filter", "assign", "transform", "rename", "drop", "select", "dropnull", "explode", "dedup"], "union"]
)
def test_operators_are_for_pipelines(name: str) -> None:
    expected = (
        rf"dataset 'User': {name} is an operator of pipelines.*\n  hint: take 'User' as an input: @pipeline, @inputs"
    )
    with pytest.raises(InvalidAttribute, match=expected):
        getattr(User, name)("uid")


def test_grouping_joins_changelogs_and_sums_are_for_pipelines() -> None:
    for name in ("groupby", "join", "changelog"):
        with pytest.raises(InvalidAttribute, match=f"'User': {name} is an operator of pipelines"):
            getattr(User, name)
    with pytest.raises(
        InvalidAttribute, match=r"'User': \+ is an operator of pipelines[^\n]*\n.*return rows \+ others$"
    ):
        User + User  # type: ignore[operator]
    made: Any = dataset(type("D", (), {"__annotations__": {"filter": int, "t": datetime}, "__module__": __name__}))
    assert str(made.filter) == "filter"


def test_annotations_as_text_are_found_where_the_class_is() -> None:
    @struct
    class Local:
        x: int

    @dataset
    class D:
        s: "Optional[Local]"
        t: "datetime"

    assert str(record_of(D).schema.dtypes["s"]) == "Optional[Local]"


def test_a_dataset_travels_without_what_computes_it() -> None:
    for module in (pickle, cloudpickle):
        found = cloudpickle.loads(module.dumps(User)) if module is cloudpickle else User
        assert found.schema() == User.schema()
        assert str(found.uid) == "uid"


@pytest.mark.parametrize(
    ("options", "online", "offline"),
    [
        ({}, False, False),
        ({"index": True}, True, True),
        ({"index": True, "offline": False}, True, False),
        ({"index": True, "online": False}, False, True),
        ({"index": True, "offline": False, "online": False}, False, False),
        ({"online": True}, True, False),
        ({"offline": True}, False, True),
    ],
)
def test_index_shorthand(options: dict[str, bool], online: bool, offline: bool) -> None:
    @dataset(**options)
    class D:
        k: int = field(key=True)
        t: datetime

    assert (record_of(D).online, record_of(D).offline) == (online, offline)


@pytest.mark.parametrize(
    ("options", "online", "offline"),
    [
        ({}, True, True),
        ({"offline": None}, True, False),
        ({"online": False}, False, True),
        ({"type": "primary"}, True, True),
    ],
)
def test_index_decorator(options: dict[str, Any], online: bool, offline: bool) -> None:
    def made() -> Dataset:
        @dataset
        class D:
            k: int = field(key=True)
            t: datetime

        return D

    found = index(**options)(made()) if options else index(made())
    assert (record_of(found).online, record_of(found).offline) == (online, offline)


def keyed(**options: Any) -> Dataset:
    @dataset(**options)
    class Keyed:
        k: int = field(key=True)
        t: datetime

    return Keyed


refused.add("index with online", lambda: keyed(index=True, online=True), ValueError, "Keyed", "True", "False")
refused.add("index with offline", lambda: keyed(index=True, offline=True), ValueError, "Keyed", "True")
refused.add("index with both", lambda: keyed(index=True, online=True, offline=True), ValueError, "Keyed", "True")
refused.add("online and offline", lambda: keyed(online=True, offline=True), ValueError, "Keyed", "at most one")
refused.add("two indexes", lambda: index(index(keyed())), ValueError, "Keyed", "already")
refused.add("index over shorthand", lambda: index(keyed(index=True)), ValueError, "Keyed", "already")
refused.add("index on no dataset", lambda: index(User.uid), ValueError, "@index needs a dataset")
refused.add("index on a class", lambda: index(int), ValueError, "@index needs a dataset")
refused.add("offline other", lambda: index(offline="1d")(keyed()), ValueError, "Keyed", "'1d'")
refused.add("index type", lambda: index(type="secondary")(keyed()), ValueError, "Keyed", "secondary", "'primary'")
for low in (0, -1):
    refused.add(f"version {low}", lambda low=low: keyed(version=low), ValueError, "Keyed", "version must be at least 1")  # type: ignore[misc]
for other in ("1", 1.0, True):
    refused.add(f"version {other!r}", lambda other=other: keyed(version=other), TypeError, "Keyed", "version")  # type: ignore[misc]
refused.add("history", lambda: keyed(history="2x"), ValueError, "2x")
refused.add("key and timestamp", lambda: field(key=True, timestamp=True), ValueError, "key", "timestamp")
refused.add("erase key", lambda: field(erase_key=True), ValueError, "erase_key", "key=True")
refused.add("deleted field", lambda: field().meta(deleted=True), ValueError, "deleted")
refused.add("deprecated field", lambda: field().meta(deprecated=True), ValueError, "deprecated")
refused.add("owner", lambda: meta(owner="nobody"), ValueError, "'nobody'")
for tags in ("pii", 3, None, [3]):
    refused.add(f"tags {tags!r}", lambda tags=tags: meta(tags=tags), ValueError, "tags", repr(tags))
refused.add("owner of a field", lambda: field().meta(owner="nobody"), ValueError, "'nobody'")
refused.add("meta on a value", lambda: meta(owner="a@b.c")(3), TypeError, "3")


@refused(ValueError, "Keyless", "key")
def index_without_keys() -> None:
    @dataset(index=True)
    class Keyless:
        t: datetime


@refused(ValueError, "Bare", "key")
def index_over_no_keys() -> None:
    @index
    @dataset
    class Bare:
        t: datetime


@refused(ValueError, "D", "no timestamp")
def no_timestamp() -> None:
    @dataset
    class D:
        a: int


@refused(ValueError, "D", "'a', 'b'")
def two_datetimes() -> None:
    @dataset
    class D:
        a: datetime
        b: datetime


@refused(ValueError, "D", "more than one timestamp", "'a', 'b'")
def two_timestamps() -> None:
    @dataset
    class D:
        a: datetime = field(timestamp=True)
        b: datetime = field(timestamp=True)


@refused(ValueError, "D", "'a'", "date")
def date_timestamp() -> None:
    @dataset
    class D:
        a: date = field(timestamp=True)


@refused(ValueError, "D", "'k'", "optional")
def optional_key() -> None:
    @dataset
    class D:
        k: Optional[int] = field(key=True)
        t: datetime


@refused(ValueError, "D", "duplicate field name 'a'")
def duplicate_field() -> None:
    @dataset
    class D:
        a: int
        a: str  # noqa: PIE794
        t: datetime


RESERVED = ("cls", "self", "fields", "key_fields", "on_demand", "timestamp_field", "fqn")


@refused(ValueError, "D", *(f"'{name}' is reserved" for name in RESERVED))
def reserved_fields() -> None:
    annotations = {**dict.fromkeys(RESERVED, int), "t": datetime}
    dataset(type("D", (), {"__annotations__": annotations, "__module__": __name__}))


@refused(ValueError, "D", "'_at'", "reserved")
def internal_field() -> None:
    @dataset
    class D:
        _at: int
        t: datetime


@refused(ValueError, "D", "'a.b' contains '.'")
def dotted_field() -> None:
    dataset(type("D", (), {"__annotations__": {"a.b": int, "t": datetime}, "__module__": __name__}))


@refused(TypeError, "D", "'a'", "3")
def default_value() -> None:
    @dataset
    class D:
        a: int = 3
        t: datetime


@refused(TypeError, "D", "a", "object")
def impossible_type() -> None:
    @dataset
    class D:
        a: object
        t: datetime


@refused(TypeError, "D", "a", "One", "Two")
def two_structs() -> None:
    @struct
    class One:
        x: int

    @struct
    class Two:
        x: int

    @dataset
    class D:
        a: One | Two
        t: datetime


@refused(TypeError, "D", "3 faults", "object", "'k'", "'x'", "test_dataset.py:")
def all_at_once() -> None:
    @dataset
    class D:
        a: object
        k: Optional[int] = field(key=True)
        c: int = "x"
        t: datetime


@refused(ValueError, "Point", "@meta")
def meta_on_a_struct() -> None:
    @meta(owner="a@b.c")
    @struct
    class Point:
        x: int


@refused(TypeError, "@dataset needs a class")
def not_a_class() -> None:
    dataset(lambda: 1)


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)


def test_tags_may_be_any_iterable() -> None:
    assert record_of(meta(tags=(each for each in ("a", "b")))(keyed())).meta.tags == ("a", "b")


def test_unknown_keyword_of_meta() -> None:
    with pytest.raises(TypeError, match="ownr"):
        meta(ownr="a@b.co")


def test_fields_may_have_the_names_of_methods() -> None:
    @meta(description="what it is")
    @dataset
    class Item:
        description: str
        with_meta: int
        at: datetime

    assert desc(Item) == "what it is"


def test_the_only_datetime_is_the_timestamp_and_a_marked_one_wins() -> None:
    @dataset
    class Event:
        k: int
        at: datetime

    @dataset
    class Two:
        k: int = field(key=True)
        # overridden
        note: Optional[str] = field().meta(description="where mail goes")
        updated_at: datetime = field(timestamp=True)
        created_at: datetime

    assert (Event.timestamp_field, Event.key_fields) == ("at", [])
    assert (Two.timestamp_field, [str(each) for each in Two.key_fields]) == ("updated_at", ["k"])
    assert desc(Two.note) == "where mail goes"
