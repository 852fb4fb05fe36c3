from datetime import timedelta
from typing import Any

import pytest

from tests.unit.refusals import refusal
from umbel.errors import InvalidType, InvalidValue
from umbel.types.durations import duration_us, format_duration, parse_duration
from umbel.types.windows import Continuous


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1y", timedelta(days=365)),
        ("2w", timedelta(weeks=2)),
        ("1d", timedelta(days=1)),
        ("1h", timedelta(hours=1)),
        ("5m", timedelta(minutes=5)),
        ("7s", timedelta(seconds=7)),
        ("1.5h", timedelta(minutes=90)),
        (".5d", timedelta(hours=12)),
        ("1d 12h", timedelta(hours=36)),
        ("12h1d", timedelta(hours=36)),
        (" 1 d  12 h ", timedelta(hours=36)),
        ("0s", timedelta()),
        ("0.000001s", timedelta(microseconds=1)),
    ],
)
def test_parses(text, expected):
    assert timedelta(microseconds=parse_duration(text)) == expected


@pytest.mark.parametrize("bad", [10, None, timedelta(1), 1.5, "10", " 10 ", "1.5"])
def test_not_text_or_no_unit_is_a_type_error(bad):
    with pytest.raises(TypeError, match="duration"):
        parse_duration(bad)


@pytest.mark.parametrize(("bad", "letter"), [("1H", "H"), ("1mo", "o"), ("forever", "f"), ("-1h", "-"), ("1é", "é")])
def test_an_unknown_letter_is_named(bad, letter):
    with pytest.raises(InvalidValue, match=letter) as caught:
        parse_duration(bad)
    assert bad in str(caught.value)
    assert f"'{letter}'" in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "word", "hint"),
    [
        ("14 days", "days", "write '14 d'"),
        ("1day", "day", "write '1d'"),
        ("1h 30min", "min", "write '1h 30m'"),
        ("2 Weeks", "Weeks", "write '2 w'"),
        ("90 seconds", "seconds", "write '90 s'"),
        ("6 months", "months", "months differ in length: write days"),
    ],
)
def test_a_word_for_a_unit_is_named_with_what_to_write(bad, word, hint):
    with pytest.raises(InvalidValue, match=f"invalid duration '{bad}': unknown unit '{word}'") as caught:
        parse_duration(bad)
    assert hint in caught.value.hint


@pytest.mark.parametrize("bad", ["", "  ", "h", "1h 30", "1.2.3h", "h1", "1 2h"])
def test_malformed_text(bad):
    with pytest.raises(InvalidValue, match="duration"):
        parse_duration(bad)


def test_too_long():
    with pytest.raises(InvalidValue, match="longer"):
        parse_duration("300000y")


def test_errors_are_umbel_errors_and_builtins():
    with pytest.raises(InvalidType):
        parse_duration("10")


def test_duration_us_takes_timedelta():
    assert duration_us(timedelta(hours=1)) == duration_us("1h") == 3_600_000_000


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0, "0s"), (5_400_000_000, "1h 30m"), (90 * 86_400_000_000, "90d"), (1_500_000, "1.5s"), (1, "0.000001s")],
)
def test_formats(microseconds, text):
    assert format_duration(microseconds) == text


DURATIONS = {
    "1y": 365 * 86400, "1w": 7 * 86400, "2d": 2 * 86400, "3h": 10800, "1m": 60, "5s": 5, "1.5h": 5400,
    "1d 2h": 86400 + 7200, "2h1d": 86400 + 7200, "1y2w3d4h5m6s": 365 * 86400 + 14 * 86400 + 3 * 86400 + 4 * 3600 + 306,
    "0.5d": 43200, "1 d": 86400,
}  # fmt: skip


@pytest.mark.parametrize("text", DURATIONS)
def test_durations_of_windows(text: str) -> None:
    assert Continuous(text).duration_total_seconds() == DURATIONS[text]


@pytest.mark.parametrize(("text", "kind"), [
    ("1D", ValueError), ("1M", ValueError), ("1q", ValueError), ("1month", ValueError), ("", ValueError),
    ("12", TypeError), (12, TypeError), (None, TypeError), ("abc", ValueError), ("-1d", ValueError),
])  # fmt: skip
def test_bad_durations_of_windows(text: Any, kind: type[Exception]) -> None:
    with refusal(kind, *([text] if isinstance(text, str) else [])):
        Continuous(text)
