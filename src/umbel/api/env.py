"""Environment selectors: which sources, sinks, pipelines and extractors a commit takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from umbel.errors import InvalidType, InvalidValue


@dataclass(frozen=True, slots=True)
class Selector:
    """The environments something is for.

    Args:
        names: the environments; empty for all of them.
        excludes: whether it is for all but these.
    """

    names: frozenset[str] = frozenset()
    excludes: bool = False

    def selects(self, env: str | None) -> bool:
        """Whether a commit for `env` takes it; a commit for no environment takes everything."""
        return env is None or not self.names or (env in self.names) != self.excludes

    def shared_with(self, other: Selector) -> str | None:
        """Return an environment both are for, as text, or None."""
        if not self.names or not other.names:
            return "every environment"
        if self.excludes and other.excludes:
            return "all but " + ", ".join(sorted(self.names | other.names))
        both = other.names - self.names if self.excludes else self.names - other.names
        common = both if self.excludes != other.excludes else self.names & other.names
        return ", ".join(sorted(common)) or None


def selector(env: str | Sequence[str] | None, owner: str) -> Selector:
    """Return the selector that `env=` stands for.

    Args:
        env: None for all; names; or names that begin with "~" for all but these.
        owner: for messages.
    """
    if env is None:
        return Selector()
    given: Any = [env] if isinstance(env, str) else env
    names: list[Any] = list(given) if isinstance(given, Sequence) else [None]
    if not all(isinstance(name, str) for name in names):
        raise InvalidType(
            f"{owner}: env must be a string or a list of strings, found {env!r}",
            hint='env="prod", env=["a", "b"] or env="~prod"',
        )
    for name in names:
        if not name.removeprefix("~").strip() or any(letter.isspace() for letter in name):
            raise InvalidValue(f"{owner}: invalid env {name!r}", hint="a name without spaces, or '~' and a name")
    excluded = [name for name in names if name.startswith("~")]
    if excluded and len(excluded) != len(names):
        raise InvalidValue(f"{owner}: env {names!r} mixes names with '~' names", hint="use either kind")
    return Selector(frozenset(name.removeprefix("~") for name in names), bool(excluded))


def check_env(env: str | None) -> None:
    """Refuse a commit for something that is not the name of one environment."""
    if env is None:
        return
    if not isinstance(env, str):
        raise InvalidType(f"commit: env must be a string, found {type(env).__name__}", hint='commit(env="prod")')
    if env.startswith("~") or not env or any(letter.isspace() for letter in env):
        raise InvalidValue(f"commit: invalid env {env!r}", hint="the name of one environment")
