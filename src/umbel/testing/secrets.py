"""The mock client's secrets."""

from __future__ import annotations

from contextlib import AbstractContextManager

from umbel.api.secrets import secrets_from
from umbel.errors import InvalidValue, UnknownName


class MockSecrets:
    """An in-memory secret store."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, name: str) -> str:
        """Return a secret."""
        if name not in self._values:
            raise UnknownName(f"there is no secret '{name}'", hint="add_secret makes one")
        return self._values[name]

    def add(self, name: str, value: str) -> None:
        """Store a secret under a new name."""
        if name in self._values:
            raise InvalidValue(f"there is a secret '{name}' already", hint="update it instead")
        self._values[name] = value

    def update(self, name: str, value: str) -> None:
        """Change a secret."""
        self.get(name)
        self._values[name] = value

    def delete(self, name: str) -> None:
        """Delete a secret."""
        self.get(name)
        del self._values[name]

    def in_force(self) -> AbstractContextManager[None]:
        """Make `umbel.lib.secrets.get` use these secrets inside the block."""
        return secrets_from(self)
