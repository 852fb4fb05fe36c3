"""Positions of sources that change within a version.

A version of a dataset may get other sources: one is added, removed, or takes another topic. What was read of a source belongs to
its place, wherever it stands among them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace

from umbel.definitions.records import DatasetDefinition, SourceDefinition
from umbel.functions.fingerprint import fingerprint

_Known = dict[str, SourceDefinition]


def resumed(dataset: DatasetDefinition, earlier: Iterable[DatasetDefinition]) -> DatasetDefinition:
    """Return a dataset whose sources have the positions of equal ones before.

    Args:
        dataset: to be committed.
        earlier: what was committed under its name and version, the newest first; read until all sources are known.
    """
    known, found = _Known(), list[str]()
    for former in earlier:
        for number, each in enumerate(former.sources):
            known.setdefault(each.position or str(number), each)
        found = _found(dataset.sources, known)
        if all(found):
            break
    if not known:
        return dataset
    used, sources = set(known), list[SourceDefinition]()
    for number, (each, position) in enumerate(zip(dataset.sources, found, strict=True)):
        chosen = position or _new(each, used)
        used.add(chosen)
        sources.append(replace(each, position="" if chosen == str(number) else chosen))
    return replace(dataset, sources=tuple(sources))


def _found(sources: Sequence[SourceDefinition], known: _Known) -> list[str]:
    """Return the position of each source, empty for none.

    It is that of a source with the same place and name, else that of one with the same place.
    """
    found = [""] * len(sources)
    ways: tuple[Callable[[SourceDefinition], object], ...] = (
        lambda one: (one.connector.place, one.connector.source_name),
        lambda one: one.connector.place,
    )
    for way in ways:
        for number, one in enumerate(sources):
            fits = (name for name, other in known.items() if name not in found and way(other) == way(one))
            found[number] = found[number] or next(fits, "")
    return found


def _new(source: SourceDefinition, used: Container[str]) -> str:
    number = 0
    while (name := fingerprint(source.connector.place, source.connector.source_name, number)[:8]) in used:
        number += 1
    return name
