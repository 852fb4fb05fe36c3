"""Secrets, stored encrypted in the catalog.

The key is in a private file, or in the environment. There may be several keys: the first one encrypts, all decrypt. A
rotation puts a new key first, encrypts everything anew and only then deletes the others, so it can be interrupted anywhere and
repeated.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from umbel.catalog.catalog import Catalog
from umbel.definitions.names import check_secret_name
from umbel.errors import InvalidValue, Terminal, UnknownName
from umbel.state.disk import sync_directory

VARIABLE = "UMBEL_VAULT_KEY"
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
            InvalidValue: there is one of this name, or it cannot be one.
        """
        check_secret_name(name)
        key, data = self._keys()[0], value.encode()
        if not self._catalog.add_secret(name, Fernet(key).encrypt(data)):
            raise InvalidValue(f"there is a secret '{name}' already", hint="update it instead")
        self._settle(name, data, key)

    def update(self, name: str, value: str) -> None:
        """Change a secret.

        Raises:
            UnknownName: there is none of this name.
        """
        self._catalog.secret(name)
        key, data = self._keys()[0], value.encode()
        self._catalog.put_secret(name, Fernet(key).encrypt(data))
        self._settle(name, data, key)

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
        if names and VARIABLE not in os.environ and not self._key_file.exists():
            raise Terminal(f"the key of the secrets is missing: there is no {self._key_file}", hint=_KEY)
        for name in names:
            self.get(name)

    def rotate(self) -> int:
        """Encrypt everything under a new key and delete the old; return the number of secrets.

        A rotation that was interrupted is completed. Keys in the environment are not changed: the first is the new one.

        Raises:
            InvalidValue: the environment has no second key, or the key file cannot be written.
            Terminal: a secret cannot be read.
        """
        if VARIABLE in os.environ:
            if len(keys := self._keys()) == 1:
                hint = f"{VARIABLE}='{fresh_key()} …': a new key, a blank, and the present one; then rotate, then delete that"
                raise InvalidValue(f"{VARIABLE} has no second key", hint=hint)
            return self._encrypt_anew(keys[0])
        self._keys()  # makes the file and its folder, if they are not there
        with _locked(self._key_file.parent):
            keys = self._keys()
            if len(keys) == 1:
                keys = [fresh_key().encode(), *keys]
                _replace(self._key_file, b"\n".join(keys))
            count = self._encrypt_anew(keys[0])
            _replace(self._key_file, keys[0])
            for draft in self._key_file.parent.glob(f".{self._key_file.name}.[0-9]*"):
                draft.unlink(missing_ok=True)  # of a killed process, with an old key
        return count

    def _encrypt_anew(self, key: bytes) -> int:
        names = self.names()
        for name in names:
            try:
                self._exchange(name, self._catalog.secret, self._catalog.exchange_secret, key)
            except UnknownName:
                continue  # it was deleted meanwhile
            except InvalidToken:
                raise Terminal(f"secret '{name}' was encrypted under a key that is not there", hint=_KEY) from None
        found: Mapping[str, bytes] = self._catalog.sealed_requests()
        for job in found:
            try:
                self._exchange(job, found.__getitem__, self._catalog.exchange_request, key)
            except InvalidToken:
                continue  # a query that cannot go on as it is
        return len(names)

    def _exchange(
        self, name: str, read: Callable[[str], bytes], exchange: Callable[[str, bytes, bytes], bool], key: bytes
    ) -> None:
        while not _is_under(key, before := read(name)):
            if exchange(name, before, Fernet(key).encrypt(self._cipher().decrypt(before))) or before == read(name):
                return

    def _settle(self, name: str, data: bytes, key: bytes) -> None:
        """Encrypt a stored secret again if a rotation has begun meanwhile.

        It may have looked before the secret was there.
        """
        while (now := self._keys()[0]) != key:
            self._catalog.put_secret(name, Fernet(now).encrypt(data))
            key = now

    def _keys(self) -> list[bytes]:
        where = f"in {self._key_file}"
        if VARIABLE in os.environ:
            where, keys = f"in {VARIABLE}", os.environ[VARIABLE].encode().split()
        else:
            if not self._key_file.exists():
                _create(self._key_file, Fernet.generate_key())
            keys = self._key_file.read_bytes().split()
        try:
            for key in keys or [b""]:
                Fernet(key)
        except ValueError as error:
            raise Terminal(f"the key of the secrets {where} is damaged: {error}", hint=_KEY) from error
        return keys

    def _cipher(self) -> MultiFernet:
        return MultiFernet([Fernet(key) for key in self._keys()])


def fresh_key() -> str:
    """Return a new key."""
    return Fernet.generate_key().decode()


def _is_under(key: bytes, encrypted: bytes) -> bool:
    try:
        Fernet(key).decrypt(encrypted)
    except InvalidToken:
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process rotate the key in a folder."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _replace(path: Path, content: bytes) -> None:
    """Replace a private file atomically.

    Raises:
        InvalidValue: it cannot be written.
    """
    try:
        fresh = _written(path, content)
        fresh.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise InvalidValue(
            f"the key file {path} cannot be written: {error.strerror}", hint=f"let it be writable, or use {VARIABLE}"
        ) from error


def _create(path: Path, content: bytes) -> None:
    """Create a private file atomically, unless another process has created it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = _written(path, content)
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink(missing_ok=True)  # a rotation deletes it, too
    sync_directory(path.parent)


def _written(path: Path, content: bytes) -> Path:
    """Write a private file beside another one; return its path."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, content)
        os.fsync(file)
    finally:
        os.close(file)
    return fresh
