"""What a query is for: its workflow, and whether its answer is to be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umbel.errors import InvalidType, InvalidValue

WORKFLOW = "default"
LONGEST = 128
"""Characters of the longest name of a workflow."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a query is for.

    Args:
        workflow: its name, in metrics and in the feature log.
        is_kept: whether the answer goes to the feature log.
        rate: the share of the rows that do.
    """

    workflow: str = WORKFLOW
    is_kept: bool = False
    rate: float = 1.0


_DEFAULT = Purpose()


def purpose_of(body: Mapping[str, Any]) -> Purpose:
    """Return what the body of a query says it is for.

    Raises:
        UmbelError: the workflow is no name, the rate no share, `log` neither true nor false.
    """
    workflow, is_kept, rate = body.get("workflow"), body.get("log"), body.get("sampling_rate")
    if is_kept is None and rate is None and workflow is None:
        return _DEFAULT
    workflow, is_kept, rate = (
        workflow_of(workflow),
        False if is_kept is None else is_kept,
        1.0 if rate is None else rate,
    )
    if not isinstance(is_kept, bool):
        raise InvalidType(f"'log' must be true or false, found {is_kept!r:.80}", hint="leave it out")
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise InvalidType(f"'sampling_rate' must be a number, found {rate!r:.80}", hint="a share from 0 to 1")
    if not 0 <= rate <= 1:
        raise InvalidValue(f"'sampling_rate' must be from 0 to 1, found {rate!r}", hint="0.1 keeps a tenth of the rows")
    return Purpose(workflow, is_kept, float(rate))


def workflow_of(stated: Any) -> str:
    """Return a workflow as named, the default where it is not.

    Raises:
        UmbelError: it is no name.
    """
    if stated is None:
        return WORKFLOW
    if not isinstance(stated, str):
        raise InvalidType(f"'workflow' must be text, found {stated!r:.80}", hint='"fraud"')
    if not stated or len(stated) > LONGEST or not stated.isprintable():
        raise InvalidValue(
            f"'workflow' must have from 1 to {LONGEST} printable characters, found {stated!r:.200}", hint='"fraud"'
        )
    return stated
