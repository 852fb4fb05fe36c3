"""Connections to MongoDB, and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from umbel.connectors.credentials import resolved
from umbel.definitions.secret import Credential
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

if TYPE_CHECKING:
    from umbel.connectors.mongo import Mongo

PATIENCE, LONGEST = 10, 600
"""Seconds to find a server, and to wait for an answer of it."""
MOST_PER_BATCH = 20_000
"""Documents of one answer; the server sends at most 16 MiB at once."""
_WRONG_LOGIN = {18, 8000}
_NOT_ALLOWED = {13}
_TOO_LARGE_A_SORT = {96, 292}
_WRONG = {2, 9, 14, 26, 40, 73, 166, 31249}
"""Codes of statements that the server refuses, also when they are sent again."""


@dataclass(frozen=True, kw_only=True)
class MongoServer:
    """A server, replica set or cluster, and a login.

    Args:
        title: of the source, for messages.
        host: its address, as declared.
        database: the name of the database.
        user: the user; empty for none.
        password: the password; never shown.
    """

    title: str
    host: str
    database: str
    user: Credential
    password: Credential

    @classmethod
    def of(cls, title: str, source: Mongo) -> Self:
        """Return the server of a source.

        Raises:
            InvalidValue: its address cannot be one.
        """
        made = cls(
            title=title, host=source.host, database=source.db_name, user=source.username, password=source.password
        )
        made.check()
        return made

    def __repr__(self) -> str:
        user = self.user if isinstance(self.user, str) else "the user"
        return f"{self.title}: {user} at {self.host}/{self.database}"

    @property
    def address(self) -> str:
        """The address as the driver takes it.

        The name of an Atlas cluster has no address of its own, only a list of servers.
        """
        if self.host.startswith(("mongodb://", "mongodb+srv://")):
            return self.host
        is_cluster = re.fullmatch(r"(?!.*-shard-\d\d-\d\d\.)[\w.-]+\.mongodb\.net", self.host)
        return f"mongodb+srv://{self.host}" if is_cluster else f"mongodb://{self.host}"

    def check(self) -> None:
        """Refuse an address that cannot be one, or that has a login."""
        errors = driver().errors
        if "@" in self.host:
            raise InvalidValue(
                f"{self.title}: host has a login", hint="username= and password= of the source; host= without them"
            )
        if self.address.startswith("mongodb+srv://"):
            return  # its servers are looked up when it is connected to
        try:
            driver().uri_parser.parse_uri(self.address)
        except (errors.ConfigurationError, ValueError) as error:  # InvalidURI is a ConfigurationError
            raise InvalidValue(f"{self.title}: host: {error}", hint=_HOSTS) from None

    def revealed(self) -> Self:
        """Return the same with its credentials resolved."""
        return replace(self, user=resolved(self.user), password=resolved(self.password))

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """Connect to the database for a block; errors of the server in it become umbel's.

        Raises:
            Transient: another attempt may succeed.
            InvalidValue: the login, a name or a right is wrong.
        """
        pymongo = driver()
        user = resolved(self.user)
        login = {"username": user, "password": resolved(self.password)} if user else {}
        try:
            with pymongo.MongoClient(
                self.address,
                appname="umbel",
                connectTimeoutMS=1000 * PATIENCE,
                serverSelectionTimeoutMS=1000 * PATIENCE,
                socketTimeoutMS=1000 * LONGEST,
                **login,
            ) as client:
                yield client[self.database]
        except pymongo.errors.PyMongoError as error:
            raise self._translated(error) from None

    def _translated(self, error: Any) -> UmbelError:
        errors, text = driver().errors, _plain(error)
        code = error.code if isinstance(error, errors.OperationFailure) else None
        if code in _WRONG_LOGIN:
            return InvalidValue(
                f"{self.title}: {text}",
                hint="correct username= and password= of the source; a user of another database than admin: "
                'host="mongodb://host/?authSource=name"',
            )
        if code in _NOT_ALLOWED:
            return InvalidValue(
                f"{self.title}: {text}", hint=f'db.grantRolesToUser("…", [{{role: "read", db: "{self.database}"}}])'
            )
        if code in _TOO_LARGE_A_SORT:
            return InvalidValue(f"{self.title}: {text}", hint="create an index on the cursor")
        if code in _WRONG or isinstance(error, errors.InvalidName):
            return InvalidValue(f"{self.title}: {text}", hint="correct the name of the database, collection or field")
        if isinstance(error, errors.ConfigurationError) and not self.address.startswith("mongodb+srv://"):
            return InvalidValue(f"{self.title}: {text}", hint=_HOSTS)
        return Transient(f"{self.title}: {text}", hint=f"see that {self.host} can be reached from here, and answers")


_HOSTS = 'host="localhost:27017", "one:27017,two:27017" or "mongodb+srv://cluster.example.net/?authSource=admin"'


def driver() -> Any:
    """Return the package that speaks to MongoDB.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import pymongo
        import pymongo.uri_parser
    except ImportError as error:
        raise PackageError(
            "collections of MongoDB need the package pymongo", hint="pip install 'umbel[mongo]'"
        ) from error
    return pymongo


def _plain(error: Any) -> str:
    """Return the server's own message, without the answer it came in."""
    details = getattr(error, "details", None)
    text = str((details or {}).get("errmsg") or error) if isinstance(details, dict | None) else str(error)
    text = text.partition(" (configured timeouts")[0]  # and behind it the state of all servers, as Python objects
    return (text.strip().splitlines() or [type(error).__name__])[0][:300]
