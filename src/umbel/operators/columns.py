"""Checks of the column names operators are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean
from umbel.types.schema import Schema

RESERVED_PREFIXES = ("_at", "_weight", "_seq", "_key", "_time", "_state")
RESERVED = frozenset(
    {"_alive", "_begun", "_begin", "_end", "_from", "_to", "_own", "_since", "_point", "_low", "_high", "_batch"}
)


def check_reserved(names: Iterable[str], owner: str) -> None:
    """Refuse column names that umbel needs for itself."""
    taken = [name for name in names if name in RESERVED or name.startswith(RESERVED_PREFIXES)]
    if taken:
        raise InvalidValue(f"{owner}: column names {quoted(taken)} are reserved", hint="rename the columns")


def check_known(names: Iterable[str], allowed: Sequence[str], owner: str, role: str = "column") -> None:
    """Refuse names that are not among `allowed`, listing what is."""
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise InvalidValue(
            f"{owner}: unknown {role} {quoted(unknown)}{did_you_mean(unknown[0], allowed)}",
            hint=f"the {role}s are: {', '.join(allowed)}",
        )


def check_values(names: Sequence[str], schema: Schema, owner: str) -> None:
    """Refuse names that are not value columns: the timestamp, keys, or unknown ones."""
    if not names:
        raise InvalidValue(f"{owner}: no columns given", hint=f"value columns: {', '.join(schema.value_names)}")
    roles = {schema.timestamp: "the timestamp", **dict.fromkeys(schema.key_names, "a key")}
    for name in names:
        if name in roles:
            candidates = f"value columns: {', '.join(schema.value_names)}"
            raise InvalidValue(f"{owner}: column '{name}' is {roles[name]} and must stay", hint=candidates)
    check_known(names, schema.value_names, owner, "value column")


def check_keyless(schema: Schema, owner: str, kind: type[UmbelError] = InvalidType) -> None:
    """Refuse keyed input."""
    if schema.is_keyed:
        message = f"{owner}: input must be keyless, found key {quoted(schema.key_names)}"
        raise kind(message, hint="changelog makes a keyless dataset of a keyed one")


def quoted(names: Iterable[str]) -> str:
    """Return names for a message."""
    return ", ".join(f"'{name}'" for name in names)
