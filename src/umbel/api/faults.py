"""Collecting what is wrong with a definition, so that all of it is told at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from umbel.errors import UmbelError


@contextmanager
def located(where: str) -> Iterator[None]:
    """Say where the definition is that is at fault, if the fault does not know better."""
    try:
        yield
    except UmbelError as fault:
        fault.where = fault.where or where
        raise


class Faults:
    """The faults of one definition.

    Args:
        owner: what is defined, for messages.
        where: `file:line` of faults that do not know better.
    """

    def __init__(self, owner: str, where: str | None = None) -> None:
        self.owner, self.where = owner, where
        self.found: list[UmbelError] = []

    def add(self, *faults: UmbelError) -> None:
        """Note faults."""
        for fault in faults:
            fault.where = fault.where or self.where
            self.found.append(fault)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is raised inside the block, and go on after it."""
        try:
            yield
        except UmbelError as fault:
            self.add(fault)

    def check(self) -> None:
        """Raise the fault, or one of the kind of the first that lists them all."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            lines = "".join(f"\n  - {fault.told()}" for fault in self.found)
            raise type(self.found[0])(f"{self.owner}: {len(self.found)} faults{lines}")
