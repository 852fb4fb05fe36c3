from datetime import UTC, datetime

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.expr import col
from umbel.types.windows import Continuous, Hopping, Session, Tumbling, Window


def test_continuous():
    window = Continuous("1h")
    assert window.duration_us == 3_600_000_000
    assert window.duration_total_seconds() == 3600
    assert not window.is_forever
    assert window == Continuous("60m") != Continuous("2h")
    assert Continuous("forever") == Continuous("forever") != window
    assert hash(window) == hash(Continuous("60m"))


def test_continuous_forever():
    window = Continuous("forever")
    assert window.is_forever
    assert window.duration_us is None
    assert window.duration_total_seconds() is None


def test_tumbling():
    window = Tumbling("1d", lookback="2d")
    assert (window.duration_total_seconds(), window.stride_total_seconds()) == (86400, 86400)
    assert window.lookback_total_seconds() == 2 * 86400
    assert window.stride == "1d"
    assert Tumbling("1d") != Tumbling("1d", "1d")
    assert (Tumbling(duration="1h").lookback_total_seconds(), Tumbling("1h").stride_total_seconds()) == (0, 3600)


def test_hopping():
    window = Hopping("1d", "1h", lookback="1s")
    assert window.duration_total_seconds() == 86400
    assert window.stride_total_seconds() == 3600
    assert window.lookback_total_seconds() == 1
    assert window == Hopping("24h", "60m", "1s")
    assert Hopping("forever", "1d").is_forever
    assert Hopping("forever", "1d").stride_total_seconds() == 86400


def test_session():
    assert Session("30m").gap_total_seconds() == 1800
    assert Session(gap="30m") == Session("1800s")


def test_kinds_differ():
    assert Continuous("1h") != Tumbling("1h")
    assert Tumbling("1h") != Session("1h")


def test_repr_is_the_call():
    assert repr(Hopping("1d", "1h")) == "Hopping(duration='1d', stride='1h', lookback='0s')"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Tumbling("forever"), "forever"),
        (lambda: Tumbling("1x"), "duration"),
        (lambda: Tumbling("10"), "duration"),
        (lambda: Tumbling("1d", "1x"), "lookback"),
        (lambda: Tumbling("0s"), "more than zero"),
        (lambda: Hopping("1x", "1d"), "duration"),
        (lambda: Hopping("1d", 5), "stride"),
        (lambda: Hopping("1d", "forever"), "stride"),
        (lambda: Hopping("1d", "2d"), "stride '2d' is longer than duration '1d'"),
        (lambda: Hopping("1d", "1h", "z"), "lookback"),
        (lambda: Session("abc"), "gap"),
        (lambda: Session("forever"), "gap"),
        (lambda: Tumbling(5), "duration"),
        (lambda: Session(10), "gap"),
        (lambda: Continuous("1x"), "'x'"),
    ],
)
def test_bad_durations_are_value_errors(make, named):
    with refusal(ValueError, named):
        make()


@pytest.mark.parametrize("bad", ["10", 10])
def test_continuous_lets_the_durations_own_error_through(bad):
    with refusal(TypeError, bad):
        Continuous(bad)


def test_window_value():
    begin, end = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    assert Window(begin=begin, end=end) == Window(begin, end)
    assert Window(begin, end).as_json() == {"begin": begin, "end": end}
    assert Window(begin=begin, end=end).begin == begin


def test_window_with_a_duration_is_continuous() -> None:
    with pytest.warns(DeprecationWarning, match=r"Continuous\('1d'\)"):
        assert Window("1d") == Continuous("24h")
    with pytest.raises(TypeError, match="end"):
        Window(datetime(2024, 1, 1, tzinfo=UTC))


def test_windows_are_made_of_expressions_as_structs_are() -> None:
    rows = pd.DataFrame({"a": [pd.Timestamp(0, tz="UTC")], "b": [pd.Timestamp(1, unit="h", tz="UTC")]})
    made = Window.expr(begin=col("a"), end=col("b"))
    [span] = made.eval(rows, schema={"a": datetime, "b": datetime})
    assert (span.begin, span.end) == (rows["a"][0], rows["b"][0])
    lists = pd.DataFrame({"a": [[*rows["a"]]], "b": [[*rows["b"]]]})
    [[first]] = Window.zip(begin=col("a"), end=col("b")).eval(lists, schema={"a": list[datetime], "b": list[datetime]})
    assert first == span
