"""The character sets of MySQL and MariaDB, by their names in Python."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any

from umbel.connectors.mysql.server import rows

if TYPE_CHECKING:
    from pymysql import Connection

CODECS = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf-8"),
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "tis620": "tis-620",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
}
"""The Python names of character sets, where they differ."""


def codecs_of(connection: Connection[Any]) -> dict[int, str]:
    """Return the Python names of character sets, by the numbers of their collations."""
    import pymysql

    found = list(
        rows(connection, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL")
    )
    try:
        query = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
        found += rows(connection, f"{query} WHERE ID IS NOT NULL")
    except pymysql.MySQLError:
        pass  # only MariaDB has these, for collations that several character sets share
    known = dict[int, str]()
    for number, name in found:
        try:
            known[int(number)] = codecs.lookup(CODECS.get(str(name), str(name))).name
        except LookupError:
            continue
    return known
