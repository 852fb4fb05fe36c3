import pickle
from types import SimpleNamespace

import pandas as pd
import pytest

from umbel import errors
from umbel.errors import (
    ErrorCollector,
    InvalidType,
    InvalidValue,
    UmbelError,
    did_you_mean,
    line_of,
    raise_all,
    text_of,
)

KINDS = {
    errors.InvalidValue: ValueError,
    errors.InvalidType: TypeError,
    errors.InvalidAttribute: AttributeError,
    errors.UnknownName: KeyError,
    errors.NotSupported: NotImplementedError,
    errors.Terminal: Exception,
    errors.Transient: Exception,
}


@pytest.mark.parametrize(("kind", "builtin"), KINDS.items())
def test_errors_are_umbels_and_builtins(kind, builtin):
    error = kind("wrong", where="app.py:3", hint="do this")
    assert isinstance(error, UmbelError)
    assert isinstance(error, builtin)
    assert str(error) == "wrong (at app.py:3)\n  hint: do this"


@pytest.mark.parametrize("kind", KINDS)
def test_errors_travel(kind):
    error = pickle.loads(pickle.dumps(kind("wrong", where="app.py:3", hint="do this")))
    assert type(error) is kind
    assert (error.message, error.where, error.hint) == ("wrong", "app.py:3", "do this")


def test_codes_differ():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, UmbelError)]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_all_errors():
    raise_all([], InvalidType, "bad:")
    with pytest.raises(InvalidType) as caught:
        raise_all([InvalidValue("one", hint="h"), "two"], InvalidType, "bad:", where="app.py:3", hint="mend")
    assert caught.value.described() == "bad (at app.py:3):\n  - one\n  hint: h\n  - two\n  hint: mend"


def test_collected_errors():
    errors = ErrorCollector("dataset 'D'", "app.py:1")
    errors.check()
    with errors.noted():
        raise InvalidType("one", where="app.py:2")
    with pytest.raises(InvalidType, match=r"^one \(at app.py:2\)$"):
        errors.check()
    errors.add(InvalidValue("two"))
    with pytest.raises(InvalidType) as caught:
        errors.check()
    assert caught.value.message == "dataset 'D': 2 faults\n  - one (at app.py:2)\n  - two (at app.py:1)"


def test_errors_tell_the_users_line():
    error = InvalidValue("wrong")
    assert str(error) == f"wrong (at {error.raised_at})"
    assert error.raised_at.rpartition(":")[0] == __file__
    assert pickle.loads(pickle.dumps(error)).where == error.raised_at
    assert str(InvalidValue("wrong", where="app.py:3")) == "wrong (at app.py:3)"


def test_the_text_of_an_exception_of_user_code_is_short_and_always_there():
    class Mute(Exception):
        def __str__(self):
            raise SystemExit(1)

    assert text_of(Mute()) == "its text cannot be made: SystemExit"
    assert text_of(InvalidValue("wrong", hint="mend it")) == "wrong"
    assert text_of(OSError("caf\udce9é")) == "caf\\udce9é"
    assert (
        str(InvalidValue("caf\udce9", where="app.py:2", hint="\ud800")) == "caf\\udce9 (at app.py:2)\n  hint: \\ud800"
    )
    assert text_of(InvalidValue(OSError("gone"))) == "gone"
    assert text_of(ValueError("x" * 2000)) == "x" * 2000
    assert text_of(ValueError("x" * 2001)) == "x" * 2000 + "… (2001 characters)"


def test_did_you_mean():
    assert did_you_mean("uid", ["user_id", "uuid"]) == "; did you mean 'uuid'?"
    assert did_you_mean("T", ["b", "t"]) == "; did you mean 't'?"
    assert did_you_mean("userid", ["UserId", "b"]) == "; did you mean 'UserId'?"
    assert did_you_mean("zzz", ["b", "a"]) == "; known: a, b"
    assert did_you_mean("zzz", []) == ""


def test_the_place_of_several_errors_is_in_the_first_line() -> None:
    collector = ErrorCollector("dataset 'A'", "shop.py:3")
    collector.add(InvalidValue("one is wrong", hint="mend it"), InvalidValue("two is wrong", hint="mend that"))
    with pytest.raises(InvalidValue) as caught:
        collector.check()
    caught.value.where = "shop.py:1"
    lines = str(caught.value).splitlines()
    assert lines[0] == "dataset 'A': 2 faults (at shop.py:1)"
    assert lines[1:3] == ["  - one is wrong (at shop.py:3)", "  hint: mend it"]
    assert lines[-1] == "  hint: mend that"
    assert caught.value.placed().splitlines()[0] == lines[0]


def test_the_users_line_is_none_of_a_compiled_module():
    """Frames of pandas name their sources without a folder, such as `pandas/_libs/missing.pyx`."""
    with pytest.raises(TypeError) as raised:
        bool(pd.NA)
    assert line_of(raised.value).rpartition(":")[0] == __file__


class _Numbered(InvalidType):
    """An error of another package, whose constructor takes other arguments."""

    def __init__(self, number):
        super().__init__(f"number {number}")
        self.number = number


class _Unmade(InvalidValue, OSError):
    """One whose objects are made by arguments of its own."""

    def __new__(cls, number):
        return OSError.__new__(cls)

    def __init__(self, number):
        super().__init__(f"number {number}")


class _Read(InvalidValue):
    """One whose text is a property of its own."""

    @property
    def message(self):
        return "own"

    @message.setter
    def message(self, _):
        raise AttributeError("own")


@pytest.mark.parametrize("error", [*(kind("wrong", hint="no") for kind in KINDS), _Numbered(7), _Unmade(7)], ids=repr)
def test_an_error_is_restated_with_its_class(error):
    again = error.restated("field 'x': wrong", where="app.py:3", hint="do this")
    assert type(again) is type(error)
    assert str(again) == "field 'x': wrong (at app.py:3)\n  hint: do this"
    assert again.args == ("field 'x': wrong",)
    assert getattr(again, "number", None) == getattr(error, "number", None)


def test_an_error_travels_whose_constructor_takes_other_arguments():
    again = pickle.loads(pickle.dumps(_Numbered(7)))
    assert (type(again), again.message) == (_Numbered, "number 7")


def test_an_error_of_which_none_can_be_made_is_restated_as_the_nearest():
    assert type(errors._made(_Read, "wrong", None, None)) is InvalidValue


def test_several_errors_are_one_of_the_class_of_the_first():
    collector = ErrorCollector("dataset 'D'")
    collector.add(_Numbered(7), InvalidValue("wrong"))
    with pytest.raises(_Numbered, match="2 faults"):
        collector.check()


def test_an_aggregate_of_another_package_may_raise_its_own_error():
    from umbel.api.grouped import _fitted

    class Counted:
        def fitted(self, _):
            raise _Numbered(7)

    with pytest.raises(_Numbered, match="aggregate in pipeline 'p': number 7"):
        _fitted(Counted(), SimpleNamespace(schema=None), "aggregate in pipeline 'p'")
