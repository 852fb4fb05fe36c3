"""Secrets, stored encrypted in the catalog; the key is in a private file.

Only the file's account can read it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from umbel.catalog.catalog import Catalog
from umbel.errors import InvalidValue, Terminal

_KEY = "put back the key file that belongs to this catalog, or set the secret again"


class Vault:
    """The secrets of a deployment.

    Args:
        catalog: the catalog of the encrypted values.
        key_file: the file of the key; created at the first use.
    """

    def __init__(self, catalog: Catalog, key_file: Path) -> None:
        self._catalog, self._key_file = catalog, key_file

    def get(self, name: str) -> str:
        """Return a secret.

        Raises:
            UnknownName: there is none of this name.
            Terminal: it was encrypted under another key.
        """
        encrypted = self._catalog.secret(name)
        try:
            return self._cipher().decrypt(encrypted).decode()
        except InvalidToken as error:
            raise Terminal(
                f"secret '{name}' was encrypted under another key than that in {self._key_file}",
                hint=_KEY,
            ) from error

    def add(self, name: str, value: str) -> None:
        """Store a new secret.

        Raises:
            InvalidValue: there is one of this name.
        """
        if not self._catalog.add_secret(name, self._cipher().encrypt(value.encode())):
            raise InvalidValue(f"there is a secret '{name}' already", hint="update it instead")

    def update(self, name: str, value: str) -> None:
        """Change a secret.

        Raises:
            UnknownName: there is none of this name.
        """
        self._catalog.secret(name)
        self._catalog.put_secret(name, self._cipher().encrypt(value.encode()))

    def delete(self, name: str) -> None:
        """Delete a secret.

        Raises:
            UnknownName: there is none of this name.
        """
        self._catalog.delete_secret(name)

    def names(self) -> Sequence[str]:
        """Return the names of all secrets, sorted."""
        return self._catalog.secret_names()

    def seal(self, data: bytes) -> bytes:
        """Encrypt bytes that are stored elsewhere."""
        return self._cipher().encrypt(data)

    def unseal(self, sealed: bytes) -> bytes:
        """Decrypt bytes encrypted by `seal`.

        Raises:
            Terminal: they were encrypted under another key.
        """
        try:
            return self._cipher().decrypt(sealed)
        except InvalidToken as error:
            raise Terminal(
                f"this was encrypted under another key than that in {self._key_file}",
                hint="put back the key file that belongs to this catalog",
            ) from error

    def check(self) -> None:
        """Look whether the secrets can be read; a missing key file is not created.

        Raises:
            Terminal: one cannot.
        """
        names = self.names()
        if names and not self._key_file.exists():
            raise Terminal(f"the key of the secrets is missing: there is no {self._key_file}", hint=_KEY)
        for name in names:
            self.get(name)

    def _cipher(self) -> Fernet:
        if not self._key_file.exists():
            _create(self._key_file, Fernet.generate_key())
        try:
            return Fernet(self._key_file.read_bytes())
        except ValueError as error:
            raise Terminal(f"the key of the secrets in {self._key_file} is damaged: {error}", hint=_KEY) from error


def _create(path: Path, content: bytes) -> None:
    """Create a private file atomically, unless another process has created it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, content)
        os.fsync(file)
    finally:
        os.close(file)
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
