"""Access tokens and their roles on a server.

The catalog has a scrypt hash of each token; its text is shown once.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, cast

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from sqlalchemy import CursorResult, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog
from umbel.errors import InvalidValue, UnknownName, did_you_mean

PREFIX = "umbel"
_ID_BYTES, _SECRET_BYTES, _SALT_BYTES, _HASH_BYTES = 8, 32, 16, 32
_COST = 2**14
"""The cost parameter of scrypt: 16 MiB and some 40 ms for each verification."""
LONGEST_NAME = 100
LONGEST = 256
"""Characters of the longest text that can be a token."""


class Role(IntEnum):
    """A role; each includes the permissions of the lower ones."""

    READER = 1
    WRITER = 2
    ADMIN = 3

    @property
    def label(self) -> str:
        """The role's name in user input."""
        return self.name.lower()

    @staticmethod
    def of(label: str) -> Role:
        """Return the role of a name.

        Raises:
            UnknownName: there is no such role.
        """
        known = {each.label: each for each in Role}
        if label not in known:
            raise UnknownName(f"role {label!r:.40} does not exist{did_you_mean(label, known)}", hint=", ".join(known))
        return known[label]


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token without its text.

    Args:
        id: the part of its text that is no secret.
        name: chosen by its creator.
        role: its role.
        is_local: True if a server made it for the commands and clients of its own account.
        created_at: time of creation.
        revoked_at: time of revocation, None while it is valid.
    """

    id: str
    name: str
    role: Role
    is_local: bool
    created_at: datetime
    revoked_at: datetime | None


class Tokens:
    """The tokens of a deployment.

    Args:
        catalog: the catalog of their hashes.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._sessions = catalog.sessions

    def create(self, name: str, role: Role, *, is_local: bool = False) -> str:
        """Create a token and return its text, which cannot be retrieved again.

        Args:
            name: unique among those that are valid.
            role: its role.
            is_local: True for a server's own token, which replaces the one of the same name.

        Raises:
            InvalidValue: the name is taken, or cannot be one.
        """
        if not name or len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise InvalidValue(
                f"a token's name has 1 to {LONGEST_NAME} printable characters, found {name!r:.120}", hint="ci"
            )
        secret, salt = secrets.token_urlsafe(_SECRET_BYTES), secrets.token_bytes(_SALT_BYTES)
        row = t.Token(
            id=secrets.token_hex(_ID_BYTES),
            name=name,
            active=name,
            role=role.label,
            is_local=is_local,
            salt=salt,
            hash=_hash(secret, salt),
        )
        try:
            with self._sessions.begin() as session:
                if is_local:
                    session.execute(delete(t.Token).where(t.Token.active == name, t.Token.is_local))
                session.add(row)
        except IntegrityError:
            hint = "choose another name, or revoke it first"
            raise InvalidValue(f"there is a token '{name}' already", hint=hint) from None
        return f"{PREFIX}_{row.id}_{secret}"

    def revoke(self, name: str) -> None:
        """Revoke a token.

        Raises:
            UnknownName: there is no valid token of this name.
        """
        gone = update(t.Token).where(t.Token.active == name).values(active=None, revoked_at=func.now())
        with self._sessions.begin() as session:
            count = cast("CursorResult[Any]", session.execute(gone)).rowcount
        if not count:
            known = [each.name for each in self.valid()]
            raise UnknownName(f"there is no valid token '{name}'{did_you_mean(name, known)}")

    def discard_local(self, name: str) -> None:
        """Delete a server's own token, if it exists."""
        with self._sessions.begin() as session:
            session.execute(delete(t.Token).where(t.Token.active == name, t.Token.is_local))

    def all(self) -> list[TokenRecord]:
        """Return every token, including revoked ones, oldest first."""
        with self._sessions() as session:
            rows: Sequence[t.Token] = session.scalars(select(t.Token).order_by(t.Token.created_at, t.Token.id)).all()
            return [_record(row) for row in rows]

    def valid(self) -> list[TokenRecord]:
        """Return the tokens that are not revoked."""
        with self._sessions() as session:
            return [_record(row) for row in session.scalars(select(t.Token).where(t.Token.active.is_not(None)))]

    def verified(self, text: str) -> TokenRecord | None:
        """Verify a token's text; return its record, None if it is not valid.

        Slow by intention: see scrypt.
        """
        number, secret = _parts(text)
        with self._sessions() as session:
            row = session.get(t.Token, number) if number else None
        if row is None or row.active is None or not hmac.compare_digest(_hash(secret, row.salt), row.hash):
            return None
        return _record(row)


def _parts(text: str) -> tuple[str, str]:
    """Split a token's text into id and secret; both empty for malformed text."""
    prefix, _, rest = text.partition("_")
    number, _, secret = rest.partition("_")
    fits = prefix == PREFIX and len(text) <= LONGEST and text.isascii() and number and secret
    return (number, secret) if fits else ("", "")


def _hash(secret: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=_HASH_BYTES, n=_COST, r=8, p=1).derive(secret.encode())


def _record(row: t.Token) -> TokenRecord:
    return TokenRecord(row.id, row.name, Role.of(row.role), row.is_local, row.created_at, row.revoked_at)
