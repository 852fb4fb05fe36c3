"""Steps on instants: reading and writing texts."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import polars as pl

from umbel.errors import did_you_mean
from umbel.transform.native import ColumnKind, Native, NotNative
from umbel.transform.parameters import parameter
from umbel.transform.registry import TransformStep, step
from umbel.transform.steps.text import contains, text_of
from umbel.types import epochs
from umbel.types.zones import NAMED

_DIGITS = {
    "Y": "[1-9][0-9]{3}",
    "m": "(?:0[1-9]|1[0-2])",
    "d": "(?:0[1-9]|[12][0-9]|3[01])",
    "H": "(?:[01][0-9]|2[0-3])",
    "M": "[0-5][0-9]",
    "S": "[0-5][0-9]",
    "f": "[0-9]{6}",
}
_DIRECTIVE = re.compile(r"%(.)|([A-Za-z0-9:/,.\-_+() ])|(.)", re.DOTALL)
_WHOLE = ({*"Ymd"}, {*"YmdHM"}, {*"YmdHMS"}, {*"YmdHMSf"})
_ZONE = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(NAMED)})(?![A-Za-z])", re.IGNORECASE)
RFC_3339 = "%Y-%m-%dT%H:%M:%SZ"


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        meant = did_you_mean(name, available_timezones())
        raise ValueError(f"there is no time zone {name!r:.60}{meant if 'mean' in meant else ''}") from error


def _format(text: str) -> None:
    if not text:
        raise ValueError("a format is not empty")
    datetime(2020, 1, 2, tzinfo=UTC).strftime(text)


def _parseable(text: str) -> None:
    _format(text)
    if _letters_of(text).count("Z") > 1:
        raise ValueError(f"{text!r} is no format: %Z is in it twice")
    try:
        datetime.strptime("", text)  # noqa: DTZ007
    except (ValueError, re.error) as error:
        if "does not match" not in str(error):  # of the format, not of the empty text
            raise ValueError(f"{text!r} is no format: {error}") from None


def instant_of(value: Any) -> datetime:
    """Return a value as an instant with time zone UTC.

    Numbers are epochs, in the unit of their magnitude; texts without time zone are in UTC.

    Raises:
        TypeError, ValueError: it is no instant.
    """
    if isinstance(value, datetime):
        return epochs.in_utc(value)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if type(value) is str:
        micros = epochs.from_text(value)
    elif type(value) in {int, float} and abs(value) < 2**63:
        micros = epochs.from_number(value)
    else:
        raise TypeError(f"expected an instant, found {type(value).__name__}")
    if micros is None or not epochs.FIRST <= micros <= epochs.LAST:
        raise ValueError(f"{value!r:.60} is no instant")
    return epochs.EPOCH + timedelta(microseconds=micros)


@step
class ParseDatetimeStep(TransformStep):
    """Read a text as an instant, in a format of Python's `strptime`.

    `%Z` reads UTC, GMT, Z and the names of RFC 2822: EST, EDT, CST, CDT, MST, MDT, PST, PDT. Beside `%z` it has no effect.
    """

    name = "parse_datetime"
    format: str = parameter("The format, as of Python's `strptime`.", check=_parseable)
    timezone: str = parameter("The time zone of texts that do not name one.", default="UTC", check=_zone)

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        text = text_of(value)
        if "%Z" in self.format and "Z" in _letters_of(self.format):
            found = _named_zone(text, self.format)
        else:
            found = datetime.strptime(text, self.format)  # noqa: DTZ007  the next line adds it
        return (found if found.tzinfo else found.replace(tzinfo=ZoneInfo(self.timezone))).astimezone(UTC)

    def native(self, value: Native) -> Native:
        if self.timezone != "UTC":
            raise NotNative("a time zone other than UTC")
        return parsed(value.of_kind(ColumnKind.TEXT), self.format)


@step
class FormatDatetimeStep(TransformStep):
    """Write an instant as a text, in a format of Python's `strftime`.

    Numbers are epochs in the unit of their magnitude, texts are RFC 3339.
    """

    name = "format_datetime"
    format: str = parameter("The format, as of Python's `strftime`.", check=_format)
    timezone: str = parameter("The time zone of the text.", default="UTC", check=_zone)

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return instant_of(value).astimezone(ZoneInfo(self.timezone)).strftime(self.format)

    def native(self, value: Native) -> Native:
        instant = value.of_kind(ColumnKind.INSTANT)
        directives(self.format)
        if self.timezone != "UTC" or "%f" in self.format:
            raise NotNative("a time zone other than UTC, or fractions of seconds")
        return instant.then(instant.expr.dt.strftime(self.format), ColumnKind.TEXT, instant.expr.dt.year() >= 1000)


def _letters_of(layout: str) -> list[str]:
    return re.findall("%(.)", layout, re.DOTALL)


def _named_zone(text: str, layout: str) -> datetime:
    """Return the instant of a text in a format with `%Z`.

    Python's `strptime` accepts the names of the machine's own zone, and ignores them.
    """
    has_offset = "z" in _letters_of(layout)
    written = re.sub("%(.)", lambda each: ("" if has_offset else "%z") if each[1] == "Z" else each[0], layout)
    for name in _ZONE.finditer(text):
        offset = "" if has_offset else f"{NAMED[name[0].upper()]:+03}00"
        with suppress(ValueError):
            return datetime.strptime(text[: name.start()] + offset + text[name.end() :], written)  # noqa: DTZ007
    raise ValueError(f"{text!r:.60} does not match {layout!r}, with %Z one of {', '.join(NAMED)}")


def parsed(text: Native, layout: str) -> Native:
    """Return texts in a format of digits and constants as instants.

    Raises:
        NotNative: the format has another directive.
    """
    pattern = directives(layout)
    names = re.findall("%(.)", layout)
    if len(names) != len(set(names)) or set(names) not in _WHOLE:
        raise NotNative("a format that is not year, month, day, and perhaps a time of day, once each")
    written = layout.replace("%f", "%6f")
    if set(names) == {*"Ymd"}:
        found = text.expr.str.to_date(written, strict=False).cast(pl.Datetime("us"))
    else:
        found = text.expr.str.to_datetime(written, strict=False, time_unit="us")
    instant = text.then(found, ColumnKind.INSTANT, contains(text.expr, pattern)).shared()
    return instant.guarded(text.expr.is_null() | instant.expr.is_not_null())


def directives(layout: str) -> str:
    """Return a regular expression of the texts that a format writes.

    Raises:
        NotNative: the format has directives whose width varies.
    """
    found = []
    for name, constant, other in _DIRECTIVE.findall(layout):
        if other or (name and name not in _DIGITS):
            raise NotNative(f"a format with {other or f'%{name}'}")
        found.append(_DIGITS[name] if name else re.escape(constant))
    return "".join(found)
