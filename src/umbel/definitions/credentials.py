"""Definitions without the credentials written in their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from umbel.definitions.arguments import DataConnector, DataSource
from umbel.definitions.records import DatasetDefinition, Definitions, SinkDefinition, SourceDefinition
from umbel.state.passwords import HIDDEN

End = TypeVar("End", SourceDefinition, SinkDefinition)


def without_credentials(definitions: Definitions) -> Definitions:
    """Return definitions with each credential that a source has as text replaced by `***`.

    References to secrets remain.
    """
    datasets: Mapping[str, DatasetDefinition] = {
        name: replace(each, sources=_masked(each.sources), sinks=_masked(each.sinks))
        for name, each in definitions.datasets.items()
    }
    return replace(definitions, datasets=datasets)


def _masked(ends: tuple[End, ...]) -> tuple[End, ...]:
    return tuple(replace(each, connector=_without(each.connector)) for each in ends)


def _without(connector: DataConnector) -> DataConnector:
    found: DataSource = connector.source
    hidden: dict[str, Any] = {
        each.name: HIDDEN
        for each in fields(found)
        if "Credential" in str(each.type) and isinstance(getattr(found, each.name), str)
    }
    return replace(connector, source=replace(found, **hidden)) if hidden else connector
