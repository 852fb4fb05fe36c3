"""The mock client's secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from umbel.errors import InvalidValue, UnknownName


class Secrets:
    """Texts by name."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, name: str) -> str:
        """Return a secret."""
        if name not in self._values:
            raise UnknownName(f"secret '{name}' does not exist")
        return self._values[name]

    def add(self, name: str, value: str) -> None:
        """Keep a secret under a new name."""
        if name in self._values:
            raise InvalidValue(f"secret '{name}' exists already", hint="use update_secret")
        self._values[name] = value

    def update(self, name: str, value: str) -> None:
        """Change a secret."""
        self.get(name)
        self._values[name] = value

    def delete(self, name: str) -> None:
        """Forget a secret."""
        self.get(name)
        del self._values[name]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Answer `umbel.lib.secrets.get` from here while user code runs."""
        yield
