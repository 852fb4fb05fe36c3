"""The mock client's secrets."""

from __future__ import annotations

from contextlib import AbstractContextManager

from umbel.api.secrets import kept_by
from umbel.errors import InvalidValue, UnknownName


class Secrets:
    """Texts by name."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, name: str) -> str:
        """Return a secret."""
        if name not in self._values:
            raise UnknownName(f"secret '{name}' does not exist", hint="add_secret makes one")
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

    def in_force(self) -> AbstractContextManager[None]:
        """Answer `umbel.lib.secrets.get` from here inside the block, where user code runs."""
        return kept_by(self)
