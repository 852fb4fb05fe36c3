"""`secrets.get(name)`: secrets for use in extractors and pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from umbel.connectors.credentials import provide_vault
from umbel.errors import UnknownName

PREFIX = "UMBEL_SECRET_"


class SecretProvider(Protocol):
    """A secret store."""

    def get(self, name: str) -> str:
        """Return a secret, or raise UnknownName."""


current: ContextVar[SecretProvider | None] = ContextVar("umbel_secrets", default=None)
_of_process: list[SecretProvider] = []
"""The secret provider of a process that runs pipelines, for all threads."""


class Secrets:
    """The secrets available to user code in the current process."""

    def get(self, name: str) -> str:
        """Return a secret.

        One that no provider has is read from the environment: `UMBEL_SECRET_` and the name.

        Raises:
            UnknownName: there is no secret of that name.
        """
        provider, variable = current.get() or next(iter(_of_process), None), PREFIX + name
        if provider is not None:
            try:
                return provider.get(name)
            except UnknownName:
                if variable not in os.environ:
                    raise
        elif variable not in os.environ:
            raise UnknownName(f"secret '{name}' does not exist", hint=f"set {variable}, or add it with add_secret")
        return os.environ[variable]

    def __getitem__(self, name: str) -> str:
        return self.get(name)


@contextmanager
def secrets_from(provider: SecretProvider) -> Iterator[None]:
    """Make `secrets.get` use `provider` inside the block."""
    token = current.set(provider)
    try:
        yield
    finally:
        current.reset(token)


def provide_secrets(provider: SecretProvider) -> None:
    """Make `secrets.get` use `provider` in this process, outside `secrets_from` blocks, and connectors as well."""
    _of_process[:] = [provider]
    provide_vault(provider)


secrets = Secrets()
