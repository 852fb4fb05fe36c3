"""The character sets of MySQL and MariaDB, by their names in Python."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from umbel.connectors.mysql.server import rows

if TYPE_CHECKING:
    from pymysql import Connection

CODECS = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf-8"),
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
}
"""The Python names of character sets, where they differ."""
SINGLE = 256
"""The number of the characters of a character set of single bytes."""
WIDE, _NARROWED = "\uff3c", frozenset({"sjis", "ujis"})
"""A backslash of double width, and the character sets in which the server takes it for one of single width."""


def codecs_of(connection: Connection[Any]) -> dict[int, str]:
    """Return the Python names of character sets, by the numbers of their collations.

    Of those whose characters are single bytes, the characters: some have no name in Python, others differ from it.
    """
    import pymysql

    found = list(
        rows(connection, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL")
    )
    try:
        query = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
        found += rows(connection, f"{query} WHERE ID IS NOT NULL")
    except pymysql.MySQLError:
        pass  # only MariaDB has these, for collations that several character sets share
    tables, known = _tables(connection), dict[int, str]()
    for number, name in found:
        codec = tables.get(str(name)) or CODECS.get(str(name), str(name))
        if len(codec) == SINGLE or _is_known(codec):
            known[int(number)] = codec
    return known


def reading(codec: str) -> Callable[[bytes], str]:
    """Return the conversion of bytes to text that the server has.

    Args:
        codec: the Python name of a character set, or the characters of one whose characters are single bytes.
    """
    if len(codec) == SINGLE:
        return lambda value: codecs.charmap_decode(value, "strict", codec)[0]

    def converted(value: bytes) -> str:
        try:
            found = value.decode(codec)
        except UnicodeDecodeError:
            found = value.decode(codec, "backslashreplace")
        return found.replace(WIDE, "\\") if codec in _NARROWED else found

    return converted


def _tables(connection: Connection[Any]) -> dict[str, str]:
    """Return the characters of the character sets of single bytes, as the server converts them."""
    query = "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS WHERE MAXLEN = 1"
    names = [str(name) for (name,) in rows(connection, query) if name != "binary"]
    every = bytes(range(SINGLE)).hex()
    converted = ", ".join(f"CONVERT(CONVERT(X'{every}' USING {name}) USING utf8mb4)" for name in names)
    (found,) = rows(connection, f"SELECT {converted}")
    return {name: text for name, text in zip(names, found, strict=True) if text is not None and len(text) == SINGLE}


def _is_known(codec: str) -> bool:
    try:
        codecs.lookup(codec)
    except LookupError:
        return False
    return True
