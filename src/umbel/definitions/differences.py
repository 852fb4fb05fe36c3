"""The parts in which two definitions of one name differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from umbel.definitions.records import DatasetDefinition, ExtractorDefinition, FeaturesetDefinition, operator_signature
from umbel.functions.fingerprint import fingerprint
from umbel.operators.leaf import leaves


def dataset_differences(old: DatasetDefinition, new: DatasetDefinition) -> list[str]:
    """Return the differences of two definitions of a dataset, as words, without descriptions."""
    found = [] if old.version == new.version else [f"version {old.version} → {new.version}"]
    found += _columns(old.dtypes, new.dtypes, "field")
    if old.dtypes == new.dtypes and old.schema != new.schema:
        found.append("keys")
    before, after = _parts(old), _parts(new)
    found += [word for word in after if fingerprint(before[word]) != fingerprint(after[word])]
    read, reads = _inputs(old), _inputs(new)
    found += [f"reads version {v} of {name}" for name, v in reads.items() if name in read and read[name] != v]
    return found


def _parts(each: DatasetDefinition) -> dict[str, Any]:
    return {
        "history": each.history,
        "pipeline": operator_signature(each.output),
        "sources": (each.sources, each.ingestion),
        "sinks": each.sinks,
        "index": (each.online, each.offline),
        "erase keys": each.erase_keys,
        "expectations": each.expectations,
        "metadata": (each.meta.owner, each.meta.tags, each.meta.deleted, each.meta.deprecated),
    }


def _inputs(each: DatasetDefinition) -> dict[str, int]:
    return {leaf.dataset: leaf.version for leaf in leaves(each.output)}


def featureset_differences(old: FeaturesetDefinition, new: FeaturesetDefinition) -> list[str]:
    """Return the differences of two definitions of a featureset, as words, without descriptions."""
    types = [{each.name: each.dtype for each in one.features} for one in (old, new)]
    found = list(_columns(types[0], types[1], "feature"))
    before, after = ({each.name: each for each in one.extractors} for one in (old, new))
    names = dict.fromkeys([*before, *after])
    changed = [name for name in names if _identity(before.get(name)) != _identity(after.get(name))]
    return found + [f"extractor {name}" for name in changed]


def _identity(each: ExtractorDefinition | None) -> str:
    return "" if each is None else fingerprint(each)


def _columns(old: Mapping[str, Any], new: Mapping[str, Any], word: str) -> Iterator[str]:
    """Yield the added, removed and retyped columns."""
    yield from (f"{word} {name} added" for name in new if name not in old)
    yield from (f"{word} {name} removed" for name in old if name not in new)
    yield from (
        f"{word} {name} is {new[name]}, was {old[name]}" for name in new if name in old and old[name] != new[name]
    )
