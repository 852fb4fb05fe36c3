"""`secrets.get(name)`: secrets for use in extractors and pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from umbel.errors import UnknownName

PREFIX = "UMBEL_SECRET_"


class Keeper(Protocol):
    """Where secrets are kept."""

    def get(self, name: str) -> str:
        """Return a secret, or raise UnknownName."""


current: ContextVar[Keeper | None] = ContextVar("umbel_secrets", default=None)
_of_process: list[Keeper] = []
"""Who keeps the secrets of a process that runs pipelines, in whichever thread."""


class Secrets:
    """The secrets of whoever runs this code."""

    def get(self, name: str) -> str:
        """Return a secret.

        Where nobody keeps secrets, they are read from the environment: `UMBEL_SECRET_` and the name.

        Raises:
            UnknownName: there is no secret of that name.
        """
        keeper = current.get()
        if keeper is None and PREFIX + name in os.environ:
            return os.environ[PREFIX + name]
        keeper = keeper or next(iter(_of_process), None)
        if keeper is not None:
            return keeper.get(name)
        raise UnknownName(f"secret '{name}' does not exist", hint=f"set {PREFIX}{name}, or add it with add_secret")

    def __getitem__(self, name: str) -> str:
        return self.get(name)


@contextmanager
def kept_by(keeper: Keeper) -> Iterator[None]:
    """Let `secrets.get` ask `keeper` inside the block."""
    token = current.set(keeper)
    try:
        yield
    finally:
        current.reset(token)


def keep_here(keeper: Keeper) -> None:
    """Let `secrets.get` ask `keeper` in this process, where no block says otherwise."""
    _of_process[:] = [keeper]


secrets = Secrets()
