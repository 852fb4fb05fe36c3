"""Windows of event time: grouping of instants in aggregates, and spans as values."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from umbel.errors import InvalidType, InvalidValue, UnknownName
from umbel.types.constructing import of_fields, of_lists
from umbel.types.durations import parse_duration

FOREVER = "forever"
SECOND = 1_000_000


@dataclass(frozen=True)
class Window:
    """The time span [begin, end). As an annotation: the type of such spans.

    With a duration alone, `Window("1d")`, it is an older spelling of `Continuous("1d")`.
    """

    begin: datetime
    end: datetime

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or [type(each) for each in args] != [str]:
            return super().__new__(cls)
        message = f"Window({args[0]!r}) is an older spelling: use Continuous({args[0]!r})"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return Continuous(args[0])

    def as_json(self) -> dict[str, datetime]:
        """Return the span as a dict."""
        return {"begin": self.begin, "end": self.end}

    def __getitem__(self, name: str) -> datetime:
        if name not in {"begin", "end"}:
            raise UnknownName(f"a Window has no field {name!r}", hint="its fields: begin, end")
        found: datetime = getattr(self, name)
        return found

    expr: ClassVar[Any] = classmethod(of_fields)
    zip: ClassVar[Any] = classmethod(of_lists)


@dataclass(frozen=True)
class Continuous:
    """A sliding window: the last `duration` before the queried instant, both ends included.

    Args:
        duration: the window's length, or "forever".

    Windows are equal when their lengths are equal, in any spelling.

    >>> Continuous("1h") == Continuous("60m")
    True
    """

    duration: str = field(compare=False)
    duration_us: int | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _put(self, duration_us=None if self.duration == FOREVER else _positive(parse_duration(self.duration), self))

    @property
    def is_forever(self) -> bool:
        """True if the window has no beginning."""
        return self.duration_us is None

    def duration_total_seconds(self) -> float | None:
        """Return the length in seconds, None for "forever"."""
        return _seconds(self.duration_us)


@dataclass(frozen=True)
class Tumbling:
    """Adjacent windows without overlap, aligned to the epoch.

    Args:
        duration: the length of each.
        lookback: the distance from the queried instant back to the window.
    """

    duration: str = field(compare=False)
    lookback: str = field(default="0s", compare=False)
    duration_us: int = field(init=False, repr=False)
    lookback_us: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.duration == FOREVER:
            raise InvalidValue("Tumbling: duration cannot be 'forever'", hint="use Hopping or Continuous")
        _put(self, duration_us=_positive(_parse(self, "duration"), self), lookback_us=_parse(self, "lookback"))

    @property
    def is_forever(self) -> bool:
        """True if the window has no beginning."""
        return False

    @property
    def stride(self) -> str:
        """The distance between the ends of two windows: the duration."""
        return self.duration

    @property
    def stride_us(self) -> int:
        """The distance between the ends of two windows, in microseconds."""
        return self.duration_us

    def duration_total_seconds(self) -> float:
        """Return the length in seconds."""
        return self.duration_us / SECOND

    def stride_total_seconds(self) -> float:
        """Return the distance between the ends of two windows in seconds."""
        return self.duration_us / SECOND

    def lookback_total_seconds(self) -> float:
        """Return the lookback in seconds."""
        return self.lookback_us / SECOND


@dataclass(frozen=True)
class Hopping:
    """Overlapping windows, one every `stride`, aligned to the epoch.

    Args:
        duration: the length of each, or "forever".
        stride: the distance between the ends of two windows.
        lookback: the distance from the queried instant back to the window.
    """

    duration: str = field(compare=False)
    stride: str = field(compare=False)
    lookback: str = field(default="0s", compare=False)
    duration_us: int | None = field(init=False, repr=False)
    stride_us: int = field(init=False, repr=False)
    lookback_us: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        length = None if self.duration == FOREVER else _positive(_parse(self, "duration"), self)
        stride = _positive(_parse(self, "stride"), self)
        if length is not None and stride > length:
            message = f"Hopping: stride '{self.stride}' is longer than duration '{self.duration}'"
            raise InvalidValue(message, hint="windows that leave gaps would lose rows: use a stride up to the duration")
        _put(self, duration_us=length, stride_us=stride, lookback_us=_parse(self, "lookback"))

    @property
    def is_forever(self) -> bool:
        """True if the window has no beginning."""
        return self.duration_us is None

    def duration_total_seconds(self) -> float | None:
        """Return the length in seconds, None for "forever"."""
        return _seconds(self.duration_us)

    def stride_total_seconds(self) -> float:
        """Return the distance between the ends of two windows in seconds."""
        return self.stride_us / SECOND

    def lookback_total_seconds(self) -> float:
        """Return the lookback in seconds."""
        return self.lookback_us / SECOND


@dataclass(frozen=True)
class Session:
    """Windows of activity of a key, closed by an inactivity longer than `gap`."""

    gap: str = field(compare=False)
    gap_us: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _put(self, gap_us=_positive(_parse(self, "gap"), self))

    def gap_total_seconds(self) -> float:
        """Return the gap in seconds."""
        return self.gap_us / SECOND


def _put(window: object, **computed: int | None) -> None:
    for name, value in computed.items():
        object.__setattr__(window, name, value)


def _parse(window: object, name: str) -> int:
    try:
        return parse_duration(getattr(window, name))
    except (InvalidType, InvalidValue) as error:
        message = f"{type(window).__name__}: failed to parse {name}: {error.message}"
        raise InvalidValue(message, hint=error.hint) from error


def _positive(length: int, window: object) -> int:
    if length <= 0:
        raise InvalidValue(f"{window!r}: its length must be more than zero", hint="a length like '1h'")
    return length


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / SECOND
