"""Checks of the column names in operator arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean
from umbel.types.schema import Schema

RESERVED_PREFIXES = ("_at", "_weight", "_seq", "_key", "_time", "_state")
RESERVED = frozenset(
    {
        "_alive",
        "_begun",
        "_begin",
        "_end",
        "_from",
        "_to",
        "_own",
        "_since",
        "_point",
        "_low",
        "_high",
        "_batch",
        "_part",
        "_hash",
        "_removed",
        "_has_retracted",
    }
)


def check_reserved(names: Iterable[str], subject: str) -> None:
    """Reject column names reserved for umbel, and those that Polars reads as patterns of names."""
    taken = [name for name in names if name in RESERVED or name.startswith(RESERVED_PREFIXES) or _is_pattern(name)]
    if taken:
        raise InvalidValue(f"{subject}: column names {quoted(taken)} are reserved", hint="rename the columns")


def _is_pattern(name: str) -> bool:
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def check_known(names: Iterable[str], allowed: Sequence[str], subject: str, role: str = "column") -> None:
    """Reject names that are not in `allowed`; the error lists the allowed names."""
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise InvalidValue(
            f"{subject}: unknown {role} {quoted(unknown)}{did_you_mean(unknown[0], allowed)}",
            hint=f"the {role}s are: {', '.join(allowed)}",
        )


def check_values(names: Sequence[str], schema: Schema, subject: str) -> None:
    """Reject names that are not value columns: the timestamp, keys, or unknown ones."""
    if not names:
        raise InvalidValue(f"{subject}: no columns given", hint=f"value columns: {', '.join(schema.value_names)}")
    roles = {schema.timestamp: "the timestamp", **dict.fromkeys(schema.key_names, "a key")}
    for name in names:
        if name in roles:
            candidates = f"value columns: {', '.join(schema.value_names)}"
            raise InvalidValue(f"{subject}: column '{name}' is {roles[name]} and must stay", hint=candidates)
    check_known(names, schema.value_names, subject, "value column")


def check_keyless(schema: Schema, subject: str, kind: type[UmbelError] = InvalidType) -> None:
    """Reject keyed input."""
    if schema.is_keyed:
        message = f"{subject}: input must be keyless, found key {quoted(schema.key_names)}"
        raise kind(message, hint="changelog makes a keyless dataset of a keyed one")


def quoted(names: Iterable[str]) -> str:
    """Return names quoted and joined by commas, for a message."""
    return ", ".join(f"'{name}'" for name in names)
