"""Catalogs and folders of Iceberg tables: how a table is opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from umbel.errors import InvalidValue, PackageError

_NUMBERED = re.compile(r"(?:v(\d+)|(\d+)-[0-9a-fA-F-]+)(?:\.gz)?\.metadata\.json")
_HINT = "version-hint.text"

TIMEOUTS = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "30000"}
"""Properties of REST catalogs, as Iceberg's client of Java names them, with defaults: milliseconds to connect and to answer."""

SQL_TIMEOUTS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {"connect_timeout": "10", "tcp_user_timeout": "30000"},
    "mysql": {"connect_timeout": "10", "read_timeout": "30", "write_timeout": "30"},
}
"""Parameters of the addresses of SQL catalogs, by dialect, as psycopg and PyMySQL name them, with defaults."""


def iceberg() -> None:
    """Check that the package that reads Iceberg tables is there.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise PackageError("Iceberg tables need the package pyiceberg", hint="pip install 'umbel[iceberg]'") from error


def from_path(title: str, address: Callable[[], tuple[str, dict[str, str]]]) -> Any:
    """Return the table whose folder or metadata file is at an address.

    Args:
        title: of it, for messages.
        address: returns the address and the options of its storage.
    """
    from pyiceberg.table import StaticTable

    path, options = address()
    properties = properties_of(options)
    location = path if path.endswith(".metadata.json") else _newest(title, path, properties)
    return StaticTable.from_metadata(location, properties)


def from_catalog(name: str, uri: str, properties: Mapping[str, str], table: str) -> Any:
    """Return a table of a catalog.

    A REST catalog must accept a connection, and send each part of an answer, within the times of the properties `TIMEOUTS`;
    databases of SQL catalogs within those of `SQL_TIMEOUTS`.

    Raises:
        InvalidValue: a time in the properties is none.
    """
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    made = {"uri": uri, "init_catalog_tables": "false", **properties}
    known: Mapping[str, Any] = {**(Config().get_catalog_config(name) or {}), **made}
    is_rest = known.get("type", "rest" if uri.startswith("http") else "").lower() == "rest"
    if not is_rest or "py-catalog-impl" in known:
        return load_catalog(name, **{**made, "uri": sql_address(uri)}).load_table(table)
    return _rest_catalog(name, known).load_table(table)


def _rest_catalog(name: str, properties: Mapping[str, Any]) -> Any:
    """Return a REST catalog whose requests have timeouts, unlike PyIceberg's."""
    from pyiceberg.catalog.rest import RestCatalog

    seconds = tuple(_seconds(name, each, properties.get(each, default)) for each, default in TIMEOUTS.items())

    class BoundedCatalog(RestCatalog):  # type: ignore[misc]
        def _config_headers(self, session: Any) -> None:
            super()._config_headers(session)
            session.request = partial(session.request, timeout=seconds)  # before it is used to get a token

    return BoundedCatalog(name, **properties)


def sql_address(uri: str) -> str:
    """Return the address of a catalog with the timeouts that it lacks."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(uri)
    except ArgumentError:  # of a catalog that is none of SQL
        return uri
    dialect, _, driver = url.drivername.partition("+")
    known = SQL_TIMEOUTS.get(dialect, {}) if driver in ("", "psycopg", "psycopg2", "pymysql") else {}
    absent = {name: value for name, value in known.items() if name not in url.query}
    return url.update_query_dict(absent).render_as_string(hide_password=False) if absent else uri


def _seconds(name: str, timeout: str, value: str) -> float:
    if not (value.isascii() and value.isdecimal() and int(value)):
        raise InvalidValue(f"Iceberg '{name}': {timeout} is '{value}'", hint="a whole number of milliseconds above 0")
    return int(value) / 1000


def properties_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a storage as pyiceberg names them."""
    names = {
        "AWS_ENDPOINT_URL": "s3.endpoint",
        "AWS_REGION": "s3.region",
        "AWS_ACCESS_KEY_ID": "s3.access-key-id",
        "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
        "AWS_SESSION_TOKEN": "s3.session-token",
    }
    return {names[name]: value for name, value in options.items() if name in names}


def _newest(title: str, path: str, properties: Mapping[str, str]) -> str:
    """Return the newest metadata file of a table's folder.

    Raises:
        FileNotFoundError: there is none.
        InvalidValue: two of them are the newest.
    """
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, netloc, below = PyArrowFileIO.parse_location(path.rstrip("/"))
    files = PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, netloc)
    names = [each.base_name for each in files.get_file_info(fs.FileSelector(f"{below}/metadata"))]
    numbered = sorted((int(found[1] or found[2]), found[0]) for name in names if (found := _NUMBERED.fullmatch(name)))
    if _HINT in names:
        hint = files.open_input_stream(f"{below}/metadata/{_HINT}").read().decode().strip()
        numbered = [each for each in numbered if str(each[0]) == hint and each[1].startswith("v")]
    if not numbered:
        raise FileNotFoundError(
            f"{path}/metadata has no metadata file" + (" of its version hint" if _HINT in names else "")
        )
    newest = [name for number, name in numbered if number == numbered[-1][0]]
    if len(newest) > 1:
        raise InvalidValue(
            f"{title}: two metadata files have the number {numbered[-1][0]}, and only the table's catalog knows which is in "
            f"force: {', '.join(newest)}",
            hint="read the table by its catalog: Iceberg(name=..., uri=...).table(...)",
        )
    return f"{path.rstrip('/')}/metadata/{newest[0]}"
