"""Environment selectors of sources, sinks, pipelines and extractors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from umbel.errors import InvalidType, InvalidValue


@dataclass(frozen=True, slots=True)
class Selector:
    """A set of environments, declared by inclusion or exclusion.

    Args:
        names: the environments; empty for all of them.
        excludes: True if it selects all environments except these.
    """

    names: frozenset[str] = frozenset()
    excludes: bool = False

    def selects(self, env: str | None) -> bool:
        """Return True if a commit for `env` includes the object.

        A commit for no environment includes everything.
        """
        return env is None or not self.names or (env in self.names) != self.excludes

    def shared_with(self, other: Selector) -> str | None:
        """Return an environment selected by both, as text, or None."""
        if not self.names or not other.names:
            return "every environment"
        if self.excludes and other.excludes:
            return "all but " + ", ".join(sorted(self.names | other.names))
        both = other.names - self.names if self.excludes else self.names - other.names
        common = both if self.excludes != other.excludes else self.names & other.names
        return ", ".join(sorted(common)) or None


EVERY = Selector()
"""Selects all environments."""


def selector(env: str | Sequence[str] | None, subject: str) -> Selector:
    """Return the selector of an `env=` argument.

    Args:
        env: None for all; names; or names that begin with "~" for all but these.
        subject: the declared object, for messages.
    """
    if env is None:
        return EVERY
    provided: Any = [env] if isinstance(env, str) else env
    names: list[Any] = list(provided) if isinstance(provided, Sequence) else [None]
    if not all(isinstance(name, str) for name in names):
        raise InvalidType(
            f"{subject}: env must be a string or a list of strings, found {env!r}",
            hint='env="prod", env=["a", "b"] or env="~prod"',
        )
    if not names:
        raise InvalidValue(f"{subject}: env is an empty list", hint="leave it out for every environment, or name some")
    for name in names:
        plain = name.removeprefix("~")
        if not plain or plain.startswith("~") or any(letter.isspace() for letter in name):
            raise InvalidValue(f"{subject}: invalid env {name!r}", hint="a name without spaces, or '~' and a name")
    excluded = [name for name in names if name.startswith("~")]
    if excluded and len(excluded) != len(names):
        raise InvalidValue(f"{subject}: env {names!r} mixes names with '~' names", hint="use either kind")
    return Selector(frozenset(name.removeprefix("~") for name in names), bool(excluded))


def check_env(env: str | None) -> None:
    """Refuse a commit environment other than a single name."""
    if env is None:
        return
    if not isinstance(env, str):
        raise InvalidType(f"commit: env must be a string, found {type(env).__name__}", hint='commit(env="prod")')
    if env.startswith("~") or not env or any(letter.isspace() for letter in env):
        raise InvalidValue(f"commit: invalid env {env!r}", hint="the name of one environment")
