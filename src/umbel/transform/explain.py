"""Explanation of a configuration: which documents run in the plan, and which as Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from umbel.transform.configuration import Configuration
from umbel.transform.leaves import assumed_kinds, seen_kinds
from umbel.transform.native import JSON_KINDS
from umbel.transform.plan import PlannedDocument, compiled
from umbel.transform.values import BadRecord, parse


def explained(configuration: Configuration, sample: Sequence[bytes] | None) -> Iterator[str]:
    """Yield a line for each document.

    Args:
        configuration: the configuration.
        sample: records from which the types are taken; None for all types that a value can have.
    """
    if sample is not None:
        for each in compiled(configuration, seen_kinds(list(_readable(sample)))).documents:
            yield _line(configuration, each, "native" if each.native is not None else f"Python: {each.reason}")
        return
    plans = [(kind, compiled(configuration, assumed_kinds(kind))) for kind in JSON_KINDS]
    for number, each in enumerate(plans[0][1].documents):
        kinds = [kind.value for kind, plan in plans if plan.documents[number].native is not None]
        if kinds:
            yield _line(configuration, each, f"native for {', '.join(kinds)}")
        else:
            yield _line(configuration, each, f"Python: {each.reason}")


def _line(configuration: Configuration, compiled: PlannedDocument, how: str) -> str:
    document = compiled.document
    steps = " → ".join(applied.step.name for applied in document.steps) or "copy"
    return f"{configuration.file}:{document.line}: {document.source} → {document.target or '(filter)'}: {steps}: {how}"


def _readable(sample: Sequence[bytes]) -> Iterator[dict[str, object]]:
    for line in sample:
        try:
            yield parse(line)
        except BadRecord:
            continue
