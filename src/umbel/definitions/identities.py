"""Identities of what versions and branches of a dataset may share."""

from __future__ import annotations

from umbel.definitions.records import DatasetDefinition
from umbel.functions.fingerprint import fingerprint


def input_of(dataset: DatasetDefinition) -> str:
    """Return the identity of what sources bring into a dataset."""
    return fingerprint(dataset.sources, dataset.ingestion)


def erasure_of(dataset: DatasetDefinition) -> str:
    """Return the identity of all versions whose rows are erased by the same keys."""
    types = dataset.dtypes
    return fingerprint("erase keys", dataset.name, sorted((name, types[name]) for name in dataset.erase_keys))
