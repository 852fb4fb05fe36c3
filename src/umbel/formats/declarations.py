"""Formats of rows in files and messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from umbel.definitions.arguments import Declared
from umbel.definitions.secret import Credential
from umbel.errors import InvalidValue

_NO_DELIMITERS = frozenset('"\r\n')


@dataclass(frozen=True, kw_only=True)
class CSV(Declared):
    """Comma-separated values.

    Args:
        delimiter: between the values; one character of ASCII.
        headers: the column names; None if they are in the first line.
    """

    delimiter: str = ","
    headers: list[str] | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in _NO_DELIMITERS:
            raise InvalidValue(
                f"CSV: delimiter must be one character of ASCII, no quote and no line break, found {self.delimiter!r}",
                hint='delimiter=";", or "\\t" for a tab',
            )
        if self.headers is None:
            return
        if not self.headers:
            raise InvalidValue("CSV: headers must name columns", hint="leave headers out if the first line has them")
        names: tuple[Any, ...] = tuple(self.headers)
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise InvalidValue(f"CSV: headers must be texts, found {wrong[0]!r}", hint='headers=["a", "b"]')
        if repeated := [name for at, name in enumerate(names) if name in names[:at]]:
            raise InvalidValue(
                f"CSV: headers has {repeated[0]!r} more than once",
                hint="give each column a name of its own, also those that the dataset does not have",
            )


@dataclass(frozen=True, kw_only=True)
class _Registered(Declared):
    registry: str
    url: str
    username: Credential | None = None
    password: Credential | None = field(default=None, repr=False)
    token: Credential | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.registry != "confluent":
            kind = type(self).__name__
            raise InvalidValue(
                f"{kind}: registry must be 'confluent', found '{self.registry}'", hint='registry="confluent"'
            )


@dataclass(frozen=True, kw_only=True)
class Avro(_Registered):
    """Avro messages with schemas in a registry.

    Args:
        registry: "confluent".
        url: of the registry.
        username: for the registry.
        password: for the registry.
        token: for the registry, instead of a user.
    """


@dataclass(frozen=True, kw_only=True)
class Protobuf(_Registered):
    """Protobuf messages with schemas in a registry.

    Args:
        registry: "confluent".
        url: of the registry.
        username: for the registry; goes with password.
        password: for the registry.
        token: for the registry, instead of a user.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        user = (self.username is not None) + (self.password is not None)
        if user == 1:
            raise InvalidValue(
                "Protobuf: username and password must be given together", hint="give both, or a token instead"
            )
        if user and self.token is not None:
            raise InvalidValue(
                "Protobuf: give either username and password or token, not both",
                hint="leave the token out, or username and password",
            )
        if not user and self.token is None:
            raise InvalidValue(
                "Protobuf: either username and password or token must be given",
                hint="token=..., or username=... and password=...",
            )


def check_format(subject: str, format: Any, names: tuple[str, ...], *kinds: type) -> None:
    """Raise InvalidValue for a format neither among `names` nor of one of `kinds`."""
    if isinstance(format, kinds) or (isinstance(format, str) and format in names):
        return
    allowed = ", ".join([*(repr(name) for name in names), *(f"{kind.__name__}(...)" for kind in kinds)])
    raise InvalidValue(
        f"{subject}: format must be one of {allowed}, found {format!r}", hint="leave it out for the first of them"
    )


def letters_of(format: Any) -> Any:
    """Return the format of single rejected records, None if they cannot be read.

    Records of typed files are stored as JSON.
    """
    if isinstance(format, CSV):
        return format if format.headers is not None else None
    return "json" if format in {"json", "parquet", "avro"} else None
