"""Texts from outside, in a form that every database stores."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import Dialect, String
from sqlalchemy.types import TypeDecorator

_DIGITS = 16
"""Hexadecimal digits of the digest that a shortened text ends with."""


class StoredText(TypeDecorator[str]):
    """Text from outside: without zero bytes and unpaired surrogates, and not too long.

    PostgreSQL refuses longer ones than a column may have, and a row of an index of more than 2,704 bytes.

    Args:
        longest: bytes of UTF-8; a longer text is cut, and ends with a digest of all of it. None for any length.
    """

    impl = String
    cache_ok = True

    def __init__(self, longest: int | None = None) -> None:
        super().__init__(longest)
        self.longest = longest

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text as it is stored and compared."""
        del dialect
        return None if value is None else shortened(storable(value), self.longest)

    def process_literal_param(self, value: str | None, dialect: Dialect) -> str:
        """Return the text as it stands in a statement."""
        return str(self.process_bind_param(value, dialect))

    @property
    def python_type(self) -> type[Any]:
        """Return the type of its values."""
        return str


def storable(text: str) -> str:
    """Return a text with zero bytes and unpaired surrogates as escapes."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def shortened(text: str, longest: int | None) -> str:
    """Return a text of limited length, which ends with a digest if it is cut."""
    data = text.encode()
    if longest is None or len(data) <= longest:
        return text
    digest = hashlib.sha256(data).hexdigest()[:_DIGITS]
    return f"{data[: longest - _DIGITS - 3].decode(errors='ignore')}…{digest}"
