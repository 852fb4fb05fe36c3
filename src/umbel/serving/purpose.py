"""The purpose of a query: its workflow, and whether to log its answer."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.errors import InvalidValue

WORKFLOW = "default"
LONGEST = 128
"""Characters of the longest name of a workflow."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """The purpose of a query.

    Args:
        workflow: its name, in metrics and in the feature log.
        is_logged: whether the answer goes to the feature log.
        rate: the share of its rows that are logged.
    """

    workflow: str = WORKFLOW
    is_logged: bool = False
    rate: float = 1.0


_DEFAULT = Purpose()


def purpose_of(workflow: str | None, is_logged: bool | None, rate: float | None) -> Purpose:
    """Return the purpose of a query; None stands for the default.

    Raises:
        InvalidValue: the workflow is no valid name, or the rate no share.
    """
    if is_logged is None and rate is None and workflow is None:
        return _DEFAULT
    workflow, rate = workflow_of(workflow), 1.0 if rate is None else rate
    if not 0 <= rate <= 1:
        raise InvalidValue(f"'sampling_rate' must be from 0 to 1, found {rate!r}", hint="0.1 keeps a tenth of the rows")
    return Purpose(workflow, bool(is_logged), rate)


def workflow_of(declared: str | None) -> str:
    """Return the workflow's name, or the default without one.

    Raises:
        InvalidValue: it is no valid name.
    """
    if declared is None:
        return WORKFLOW
    if not declared or len(declared) > LONGEST or not declared.isprintable():
        raise InvalidValue(
            f"'workflow' must have from 1 to {LONGEST} printable characters, found {declared!r:.200}", hint='"fraud"'
        )
    return declared
