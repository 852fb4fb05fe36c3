"""Definitions without the credentials written in their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from umbel.definitions.arguments import is_credential
from umbel.definitions.records import DatasetDefinition, Definitions, SinkDefinition, SourceDefinition
from umbel.definitions.secret import Secret
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


def _without(connector: Any) -> Any:
    """Return a record with its credentials hidden, and those of the records in it."""
    hidden = dict[str, Any]()
    for each in fields(connector):
        value = getattr(connector, each.name)
        if not each.init or isinstance(value, Secret):
            continue
        if is_credential(each) or not each.repr:
            hidden[each.name] = _hidden(value)
        elif is_dataclass(value):
            hidden[each.name] = _without(value)
    return replace(connector, **{name: value for name, value in hidden.items() if value != getattr(connector, name)})


def _hidden(value: Any) -> Any:
    """Return a value with its texts hidden; the names of options and headers remain."""
    if isinstance(value, str):
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: _hidden(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple((name, _hidden(each)) for name, each in value)
    return value
