"""Featuresets, features, extractors (api §6.1–6.3)."""

from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pytest

from tests.unit.refusals import Cases, check_refused
from umbel.api.commit import check_commit
from umbel.api.dataset import dataset
from umbel.api.expectations import expectations
from umbel.api.extractor import extractor
from umbel.api.feature import Feature
from umbel.api.feature import feature as F
from umbel.api.featureset import Featureset, featureset, featureset_record
from umbel.api.field import field
from umbel.api.inputs import includes, inputs, outputs
from umbel.api.metadata import desc, meta
from umbel.definitions.records import AliasExtractor, ExpressionExtractor, FunctionExtractor, LookupExtractor
from umbel.expr import col
from umbel.types.annotations import from_annotation

refused = Cases()


@dataset(index=True)
class Users:
    uid: int = field(key=True)
    age: int
    name: Optional[str]
    t: datetime


@dataset(index=True)
class Pairs:
    uid: int = field(key=True)
    org: str = field(key=True)
    n: int
    t: datetime


@dataset
class Unindexed:
    uid: int = field(key=True)
    n: int
    t: datetime


@dataset
class Stream:
    n: int
    t: datetime


@featureset
class Request:
    uid: int
    uids: list[int]
    maybe: Optional[int]


@meta(owner="a@b.c")
@featureset
class Features:
    """What is known."""

    uid: int = F(Request.uid)
    # in years
    age: Optional[int] = F(Users.age, version=2, env="prod")
    name: str = F(Users.name, default="?").meta(description="called", tags=["pii"])
    next_age: Optional[int] = F(col("age") + 1)
    plain: float = F()
    other: int = F(Request.maybe, default=0)

    @extractor(deps=[Users], version=3, env=["~dev"])
    @includes(len)
    @meta(description="why")
    @inputs(uid, "age", Request.uids)
    @outputs(plain)
    def scored(cls, ts, uid, age, uids):
        return pd.Series([float(each) for each in uid], name=str(cls.plain))


def definitions(owner: Featureset) -> dict[str, Any]:
    return {each.name: each for each in featureset_record(owner).extractors}


def test_what_users_read() -> None:
    assert isinstance(Features.age, Feature)
    assert (repr(Features.age), str(Features.age), Features.age.fqn()) == ("Features.age", "age", "Features.age")
    assert Features.age == "Features.age"
    assert Features.age != "age"
    assert Features.age in {"Features.age": 1}
    assert Features.age.dtype == Optional[int]
    assert [each.name for each in Features.all()] == ["uid", "age", "name", "next_age", "plain", "other"]
    assert Features.features == Features.all()
    assert Features.feature("plain") is Features.plain
    assert [each.name for each in Features.extractors] == ["scored"]
    assert Features.age.desc() == "in years"
    assert desc(Features.name) == "called"
    assert desc(Features) == "What is known."
    assert desc(Features.scored) == "why"
    assert featureset_record(Features).meta.owner == "a@b.c"


def test_unknown_features_are_named() -> None:
    with pytest.raises(AttributeError, match=r"'Features' has no feature 'agee'.*'age'"):
        _ = Features.agee
    with pytest.raises(ValueError, match="no feature 'zz'"):
        Features.feature("zz")


def test_an_extractor_can_be_called() -> None:
    found = Features.scored(Features, None, [1, 2], None, None)
    assert found.tolist() == [1.0, 2.0]
    assert found.name == "Features.plain"


def test_references_become_extractors() -> None:
    found = definitions(Features)
    lookup, alias = found["_lookup_name"], found["_alias_other"]
    assert isinstance(lookup, LookupExtractor)
    assert (lookup.dataset, lookup.field, lookup.keys, lookup.default) == ("Users", "name", ("uid",), "?")
    assert (lookup.inputs, lookup.outputs) == (("Features.uid",), ("Features.name",))
    assert found["_lookup_age"].version == 2
    assert isinstance(alias, AliasExtractor)
    assert (alias.inputs, alias.outputs, alias.default) == (("Request.maybe",), ("Features.other",), 0)
    expression = found["_expression_next_age"]
    assert isinstance(expression, ExpressionExtractor)
    assert expression.inputs == ("Features.age",)
    assert str(expression.expression) == str(col("age") + 1)
    function = found["scored"]
    assert isinstance(function, FunctionExtractor)
    assert function.inputs == ("Features.uid", "Features.age", "Request.uids")
    assert (function.outputs, function.datasets, function.version) == (("Features.plain",), ("Users",), 3)
    assert function.function(None, [7], None, None).tolist() == [7.0]


def test_environments_of_extractors() -> None:
    selected = {each.name: each.env for each in featureset_record(Features).extractors}
    assert selected["_lookup_age"].selects("prod")
    assert not selected["_lookup_age"].selects("dev")
    assert not selected["scored"].selects("dev")


def test_without_outputs_an_extractor_makes_all_features() -> None:
    @featureset
    class All:
        a: int
        b: int

        @extractor
        def made(cls, _ts):
            return pd.DataFrame()

    assert definitions(All)["made"].outputs == ("All.a", "All.b")


def test_lists_of_keys_are_looked_up_element_by_element() -> None:
    @featureset
    class Lists:
        uid: list[int]
        ages: list[Optional[int]] = F(Users.age)
        names: list[str] = F(Users.name, default="?")

    found = definitions(Lists)
    assert found["_lookup_ages"].is_list
    assert found["_lookup_names"].is_list
    assert not definitions(Features)["_lookup_age"].is_list


def test_the_older_spellings() -> None:
    with pytest.warns(DeprecationWarning, match="older spelling"):

        @featureset
        class Older:
            uid: int = F(id=1)
            age: Optional[int] = F(id=2).extract(field=Users.age)

            @extractor(depends_on=[Users])
            @inputs("uid")
            def nothing(cls, ts, uid):
                return uid

    assert definitions(Older)["_lookup_age"].field == "age"
    assert definitions(Older)["nothing"].datasets == ("Users",)


def with_feature(annotation: Any, make: Any, **others: Any) -> Any:
    """Return a definition of a featureset whose feature `f` is made by `make()`."""

    def define() -> Featureset:
        body = {"__annotations__": {"uid": int, **others, "f": annotation}, "__module__": __name__, "f": make()}
        return featureset(type("FS", (), body))

    return define


def refuse(name: str, annotation: Any, make: Any, error: type[Exception], *texts: str, **others: Any) -> None:
    refused.add(name, with_feature(annotation, make, **others), error, *texts)


refuse("two references", int, lambda: F(Users.age, Users.name), TypeError, "2")
refuse("default alone", int, lambda: F(default=1), TypeError, "default")
refuse("None", int, lambda: F(None), TypeError, "None")
refuse("anything else", int, lambda: F(3), TypeError, "'FS.f'", "3")
refuse("a dataset", int, lambda: F(Users), TypeError, "'FS.f'", "Users")
refuse("a featureset", int, lambda: F(Request), TypeError, "'FS.f'", "Request")
refuse("version", int, lambda: F(Users.age, version="1"), TypeError, "version")
refuse("no feature", int, lambda: 3, TypeError, "'FS.f'", "3", "int")
refuse("keyless", Optional[int], lambda: F(Stream.n), ValueError, "'Stream'", "'FS.f'")
refuse("no index", Optional[int], lambda: F(Unindexed.n), ValueError, "'Unindexed'", "index")
refuse("no key feature", Optional[int], lambda: F(Pairs.n), ValueError, "'org'", "'Pairs'", "'FS'", "'FS.f'")
refuse("not optional", int, lambda: F(Users.age), TypeError, "'FS.f'", "'Users.age'", "Optional[int]", "int")
refuse("optional with default", Optional[int], lambda: F(Users.age, default=1), TypeError, "'FS.f'", "default", "int")
refuse("other type", Optional[str], lambda: F(Users.age), TypeError, "'FS.f'", "Optional[int]", "Optional[str]")
refuse("default value", int, lambda: F(Users.age, default="x"), ValueError, "'FS.f'", "'x'")
refuse("alias type", str, lambda: F(Request.uid), TypeError, "'FS.f'", "'Request.uid'", "str", "int")
refuse("alias default", int, lambda: F(Request.uid, default=1), TypeError, "'Request.uid'", "default 1")
refuse("alias default value", int, lambda: F(Request.maybe, default="x"), ValueError, "'x'")
refuse("alias optional", int, lambda: F(Request.maybe), TypeError, "Optional[int]")
refuse("expression column", int, lambda: F(col("zz") + 1), ValueError, "'zz'", "'FS'", 'col("zz")')
refuse("expression type", str, lambda: F(col("uid") + 1), TypeError, "'FS.f'", "str", "int", 'col("uid") + 1')
refuse("expression astype", int, lambda: F((col("uid") + 1).astype(float)), TypeError, "'FS.f'", "float")
refuse(
    "expression fault", str, lambda: F(col("uid").str.lower()), ValueError, "'FS.f'", "failed to compile", 'col("uid")'
)
refuse("expression default", int, lambda: F(col("uid") + 1, default=1), ValueError, "'FS.f'", "fillnull")
refuse("type", object, lambda: F(), TypeError, "FS", "object")


@refused(ValueError, "'FS'", "'a' and 'b'", "'Users.age'")
def same_field_twice() -> None:
    @featureset
    class FS:
        uid: int
        a: Optional[int] = F(Users.age)
        b: Optional[int] = F(Users.age)


@refused(TypeError, "'FS'", "3 faults", "'FS.a'", "'FS.b'", "'e'", "'zz'")
def all_at_once() -> None:
    @featureset
    class FS:
        uid: int
        a: int = F(Users.age)
        b: str = F(Request.uid)

        @extractor
        @inputs("zz")
        def e(cls, ts, a):
            return a


@refused(TypeError, "featureset 'FS': 'a', 'b' without a type")
def features_without_types() -> None:
    @featureset
    class FS:
        uid: int
        a = F(Users.age)
        b = F(Users.age, default=0)


@refused(ValueError, "FS", "'features' is reserved", "'dtype' is reserved")
def reserved() -> None:
    @featureset
    class FS:
        features: int
        dtype: int


@refused(ValueError, "FS", "duplicate name 'a'")
def duplicate() -> None:
    @featureset
    class FS:
        a: int
        a: str  # noqa: PIE794


@refused(ValueError, "'a.b' contains '.'")
def dotted() -> None:
    featureset(type("FS", (), {"__annotations__": {"a.b": int}, "__module__": __name__}))


@refused(NotImplementedError, "'FS'", "expectations")
def watched() -> None:
    @featureset
    class FS:
        a: int

        @expectations
        def e(cls):
            return []


@refused(TypeError, "@featureset needs a class")
def no_class() -> None:
    featureset(3)  # type: ignore[arg-type]


# extractors


def with_extractor(func: Any, *, reads: Any = None, made: Any = None, **options: Any) -> Any:
    """Return a definition of a featureset with an extractor, decorated as said."""

    def define() -> Featureset:
        func.__umbel_inputs__, func.__umbel_outputs__ = reads, made
        body = {"__annotations__": {"a": int, "b": int}, "__module__": __name__, "e": extractor(**options)(func)}
        return featureset(type("FS", (), body))

    return define


def refuse_extractor(name: str, func: Any, error: type[Exception], *texts: str, **how: Any) -> None:
    refused.add(name, with_extractor(func, **how), error, *texts)


async def coroutine(cls: Any, ts: Any) -> Any:
    return ts


def generator(cls: Any, ts: Any) -> Any:
    yield ts


refuse_extractor("coroutine", coroutine, TypeError, "'coroutine'", "a coroutine function")
refuse_extractor("generator", generator, TypeError, "'generator'", "a generator")
refuse_extractor("static", staticmethod(lambda cls, ts: 1), TypeError, "'<lambda>'", "a static method")
refuse_extractor("self", lambda self, ts: 1, TypeError, "'cls'", "'self'")
refuse_extractor("no ts", lambda cls: 1, TypeError, "'ts'")
refuse_extractor("not ts", lambda cls, now: 1, TypeError, "'ts'", "'now'")
refuse_extractor("input featureset", lambda cls, ts, a: 1, TypeError, "'Request'", "Featureset", reads=(Request,))
refuse_extractor("input field", lambda cls, ts, a: 1, TypeError, "Field", reads=(Users.age,))
refuse_extractor("input unknown", lambda cls, ts, a: 1, ValueError, "'zz'", "a, b", "'FS'", reads=("zz",))
refuse_extractor("input kind", lambda cls, ts, a: 1, TypeError, "'FS'", "5", reads=(5,))
refuse_extractor("no inputs", lambda cls, ts: 1, ValueError, "@inputs", reads=())
refuse_extractor("no outputs", lambda cls, ts: 1, ValueError, "@outputs", made=())
refuse_extractor("output foreign", lambda cls, ts: 1, TypeError, "'Request.uid'", "'Request'", made=(Request.uid,))
refuse_extractor("output kind", lambda cls, ts: 1, TypeError, "3", "int", made=(3,))
refuse_extractor("output unknown", lambda cls, ts: 1, ValueError, "'zz'", "a, b", made=("zz",))
refuse_extractor("version", lambda cls, ts: 1, TypeError, "version", version="1")
refuse_extractor("deps and older", lambda cls, ts: 1, ValueError, "deps", "depends_on", deps=[], depends_on=[Users])
refuse_extractor("deps no list", lambda cls, ts: 1, TypeError, "deps", deps=Users)
refuse_extractor("deps no dataset", lambda cls, ts: 1, TypeError, "deps", "Request", deps=[Request])
refuse_extractor("deps no index", lambda cls, ts: 1, ValueError, "'Unindexed'", "index", deps=[Unindexed])
refuse_extractor("env", lambda cls, ts: 1, ValueError, "'<lambda>'", "~", env="~")


@refused(TypeError, "'Copied.a'", "the reference in its feature(...) and 'made'")
def referred_and_extracted() -> None:
    @meta(owner="team@example.com")
    @featureset
    class Copied:
        a: int = F(col("b") + 1)
        b: int

        @extractor
        @inputs("b")
        @outputs("a")
        def made(cls, ts, b):
            return b

    check_commit([], [Copied])


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)


def test_list_lookups_have_their_own_types() -> None:
    define = with_feature(list[int], lambda: F(Users.age), uid=list[int])
    check_refused(define, TypeError, ("List[Optional[int]]", "List[int]"))
    assert from_annotation(list[int])
