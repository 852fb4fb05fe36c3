"""The registry of steps: parameters, meaning, Polars form and schema in one class."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

from umbel.errors import UnknownName, did_you_mean
from umbel.transform.native import Native, NotNative
from umbel.transform.parameters import StepParameter, parameters_of
from umbel.transform.python_code import FunctionBody

ON_ERROR = ("dead_letter", "null", "drop", "fail")
_COMMON = {
    "on_error": {
        "enum": [*ON_ERROR, None],
        "default": "dead_letter",
        "description": "What happens to a record that the step fails for.",
    }
}


@dataclass(frozen=True)
class TransformStep(ABC):
    """One transformation of a value.

    Its docstring is its documentation.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[StepParameter, ...]]
    takes_null: ClassVar[bool] = False
    """Whether it is applied to null, too; else null stays null."""

    @abstractmethod
    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        """Return the new value of a record; this is the step's meaning.

        Raises:
            Exception: the step fails for the value.
        """

    def apply_all(self, values: Sequence[Any]) -> list[Any] | None:
        """Return the results for many values that are not null; exceptions where `apply` raises them.

        Returns None if there is nothing faster than one by one.
        """
        return None

    def native(self, value: Native) -> Native:
        """Return the new values of a column, guarded to rows where they equal `apply`.

        Raises:
            NotNative: there is no proven form.
        """
        raise NotNative(f"{self.name} has no form in Polars")

    def python(self) -> FunctionBody | None:
        """Return the code of the user that it runs, None if there is none."""
        return None

    @property
    def needs_limits(self) -> bool:
        """True if it may take any time, or any memory, for a record."""
        return self.python() is not None

    @classmethod
    def doc(cls) -> str:
        """Return its documentation."""
        return inspect.getdoc(cls) or ""

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the step in a configuration."""
        own = {each.name: each.schema() for each in cls.parameters}
        return {
            "type": "object",
            "description": cls.doc().partition("\n")[0],
            "properties": {"name": {"const": cls.name}, **own, **_COMMON},
            "required": ["name", *(each.name for each in cls.parameters if each.is_required)],
            "additionalProperties": False,
        }


S = TypeVar("S", bound=type[TransformStep])
_steps: dict[str, type[TransformStep]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def step(kind: S) -> S:
    """Register a class as the step of the name in its attribute `name`."""
    made: S = dataclass(frozen=True)(kind)  # type: ignore[assignment]
    made.parameters = parameters_of(made)
    _steps[made.name] = made
    return made


def steps() -> dict[str, type[TransformStep]]:
    """Return all steps by name."""
    import umbel.transform.steps  # noqa: F401  registers them

    return _steps


def step_named(name: str) -> type[TransformStep]:
    """Return a step class by its name.

    Raises:
        UnknownName: there is none.
    """
    known = steps()
    if name not in known:
        raise UnknownName(f"there is no step '{name}'{did_you_mean(name, known)}")
    return known[name]
