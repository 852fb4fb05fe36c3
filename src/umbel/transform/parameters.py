"""Parameters of steps: dataclass fields with checks, JSON schema and documentation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from datetime import date
from typing import Any, get_type_hints

from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean, misspelt

KEY = "parameter"
_KINDS: dict[Any, tuple[str, str]] = {
    str: ("string", "a text"),
    int: ("integer", "an integer"),
    bool: ("boolean", "true or false"),
    dict[str, Any]: ("object", "a mapping"),
}


@dataclass(frozen=True, slots=True)
class StepParameter:
    """A parameter of a step.

    Args:
        name: in the configuration.
        doc: the description, for the reference.
        kind: its type; Any for any value of JSON.
        default: MISSING if it is required.
        choices: the permitted values; any if there are none.
        check: raises a `ValueError` for a wrong value.
    """

    name: str
    doc: str
    kind: Any
    default: Any
    choices: tuple[str, ...] = ()
    check: Callable[[Any], object] | None = None

    @property
    def is_required(self) -> bool:
        """True if a step must have it."""
        return self.default is MISSING

    def checked(self, value: Any) -> Any:
        """Return a valid value.

        Raises:
            UmbelError: it is invalid; the message names the parameter.
        """
        if self.kind in _KINDS and (
            not isinstance(value, _plain(self.kind)) or (self.kind is int and isinstance(value, bool))
        ):
            if value is None and self.default is None:
                return None
            raise InvalidType(f"'{self.name}' must be {_KINDS[self.kind][1]}, found {value!r:.60}")
        if self.choices and value not in self.choices:
            raise InvalidValue(f"'{self.name}' cannot be {value!r:.60}{did_you_mean(str(value), self.choices)}")
        json_value(value, f"'{self.name}'")
        if self.check is not None and value is not None:
            try:
                self.check(value)
            except UmbelError:
                raise
            except ValueError as error:
                raise InvalidValue(f"'{self.name}': {error}") from error
        return value

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        found: dict[str, Any] = {"description": self.doc}
        if self.kind in _KINDS:
            found["type"] = _KINDS[self.kind][0]
        if self.choices:
            found["enum"] = list(self.choices)
        if not self.is_required and self.default is not None:
            found["default"] = self.default
        return found


def parameter(
    doc: str, *, default: Any = MISSING, choices: tuple[str, ...] = (), check: Callable[[Any], object] | None = None
) -> Any:
    """Return the dataclass field of a parameter.

    Args:
        doc: its description, for the reference.
        default: its value where it is left out; without one it is required.
        choices: the permitted values.
        check: raises a `ValueError` for a wrong value.
    """
    return dataclasses.field(default=default, metadata={KEY: (doc, choices, check)}, kw_only=True)


def parameters_of(kind: type) -> tuple[StepParameter, ...]:
    """Return the parameters that a step class declares."""
    hints = get_type_hints(kind)
    declared = [each for each in dataclasses.fields(kind) if KEY in each.metadata]
    return tuple(
        StepParameter(f.name, f.metadata[KEY][0], _base(hints[f.name]), f.default, *f.metadata[KEY][1:])
        for f in declared
    )


MOST_UNKNOWN = 3
"""How many unknown names an error lists."""


def check_names(found: Mapping[str, Any], known: Mapping[str, bool], subject: str) -> None:
    """Check the names of a mapping.

    Args:
        found: the mapping.
        known: the permitted names, and whether they are required.
        subject: what it is, for messages.

    Raises:
        InvalidValue: a name is unknown, or a required one is missing.
    """
    missing = [name for name, is_required in known.items() if is_required and name not in found]
    unknown = [name for name in found if name not in known]
    if missing:
        close = misspelt(missing, unknown)
        listed = ", ".join(f"'{name}'" for name in missing)
        raise InvalidValue(f"{subject}: {listed} {'is' if len(missing) == 1 else 'are'} missing{close}")
    if unknown:
        listed = " and no ".join(f"'{name}'{did_you_mean(str(name), known)}" for name in unknown[:MOST_UNKNOWN])
        raise InvalidValue(f"{subject}: there is no {listed}")


def json_value(value: Any, subject: str = "the record") -> None:
    """Check that a value of a configuration is one of JSON.

    Raises:
        InvalidValue: it, or one inside of it, is not.
    """
    if isinstance(value, dict):
        for name, each in value.items():
            json_value(name, subject)
            json_value(each, subject)
    elif isinstance(value, list):
        for each in value:
            json_value(each, subject)
    elif not isinstance(value, str | int | float | date | None):
        raise InvalidValue(f"{subject}: {value!r:.60} is not a value of JSON")


def _base(hint: Any) -> Any:
    """Return the type of a hint `T | None`."""
    parts = [each for each in getattr(hint, "__args__", ()) if each is not type(None)]
    return parts[0] if type(None) in getattr(hint, "__args__", ()) and len(parts) == 1 else hint


def _plain(kind: Any) -> type:
    found: type = getattr(kind, "__origin__", None) or kind
    return found
