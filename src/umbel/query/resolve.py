"""Resolution: which extractors turn the features given into the features wanted, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umbel.errors import InvalidType, InvalidValue, UnknownName, did_you_mean
from umbel.plan.definitions import ExtractorDefinition, FeatureDefinition, FeaturesetDefinition


def name_of(item: Any) -> str:
    """Return the name of a feature or featureset, given as such or as text.

    Raises:
        InvalidType: it is something else.
    """
    if isinstance(item, str):
        return item
    if callable(fqn := getattr(item, "fqn", None)):
        return str(fqn())
    is_dataset = hasattr(item, "key_fields")
    if isinstance(item, Iterable | type) or is_dataset or not hasattr(item, "__name__"):
        raise InvalidType(
            f"expected a feature, a featureset or the name of one, got {item!r:.80}",
            hint='Features.name, or its text "Features.name"',
        )
    return str(item.__name__)


class Catalogue:
    """The features that are committed, and what computes each.

    Args:
        featuresets: by name.
    """

    def __init__(self, featuresets: Mapping[str, FeaturesetDefinition]) -> None:
        self.featuresets = featuresets
        self.features: dict[str, FeatureDefinition] = {}
        self.extractors: dict[str, ExtractorDefinition] = {}
        for featureset in featuresets.values():
            self.features.update((feature.fqn, feature) for feature in featureset.features)
            for extractor in featureset.extractors:
                self.extractors.update(dict.fromkeys(extractor.outputs, extractor))

    def feature(self, fqn: str) -> FeatureDefinition:
        """Return the feature of a fully qualified name."""
        if fqn not in self.features:
            raise self._unknown(fqn)
        return self.features[fqn]

    def expanded(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return fully qualified names, each once: featuresets stand for their features, in order of definition."""
        found: dict[str, None] = {}
        for name in names:
            members = self.featuresets[name].features if name in self.featuresets else (self.feature(name),)
            found.update((member.fqn, None) for member in members)
        return tuple(found)

    def given(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the fully qualified names of input features, each once.

        Raises:
            InvalidValue: one is a featureset.
        """
        found: dict[str, None] = {}
        for name in names:
            if name in self.featuresets:
                members = ", ".join(member.fqn for member in self.featuresets[name].features)
                raise InvalidValue(
                    f"input '{name}' is a featureset, and inputs must be features; it has: {members}",
                    hint="name its features one by one",
                )
            found[self.feature(name).fqn] = None
        return tuple(found)

    def _unknown(self, fqn: str) -> UnknownName | InvalidValue:
        featureset, dot, name = fqn.partition(".")
        if not dot:
            return UnknownName(
                f"featureset '{fqn}' is not committed{did_you_mean(fqn, self.featuresets)}", hint="commit it first"
            )
        if featureset not in self.featuresets:
            known = did_you_mean(featureset, self.featuresets)
            return InvalidValue(
                f"feature '{fqn}': featureset '{featureset}' is not committed{known}", hint="commit it first"
            )
        features = [member.name for member in self.featuresets[featureset].features]
        return InvalidValue(
            f"featureset '{featureset}' has no feature '{name}'{did_you_mean(name, features)}",
            hint="name one of its features",
        )


@dataclass(slots=True)
class _Search:
    catalogue: Catalogue
    provided: frozenset[str]
    order: dict[tuple[str, str], ExtractorDefinition] = field(default_factory=dict)

    def need(self, fqn: str, path: tuple[str, ...]) -> None:
        """Add the extractors a feature needs, after those these need."""
        if fqn in self.provided:
            return
        extractor = self.catalogue.extractors.get(fqn)
        if extractor is None:
            raise _no_extractor(self.catalogue.feature(fqn).fqn, path)
        if (extractor.featureset, extractor.name) in self.order:
            return
        if fqn in path:
            raise InvalidValue(
                f"extractors depend on each other in a cycle: {' <- '.join((*path, fqn))}",
                hint="no feature can be made of itself: break the cycle",
            )
        for each in extractor.inputs:
            self.need(each, (*path, fqn))
        self.order[extractor.featureset, extractor.name] = extractor


def resolve(catalogue: Catalogue, inputs: Sequence[str], outputs: Sequence[str]) -> list[ExtractorDefinition]:
    """Return the fewest extractors that give the outputs, each after those it depends on.

    Args:
        catalogue: what is committed.
        inputs: fully qualified names of the features given; they are never computed.
        outputs: fully qualified names of the features wanted.

    Raises:
        InvalidValue: a feature is neither given nor computed by any extractor, or extractors form a cycle.
    """
    search = _Search(catalogue, frozenset(inputs))
    for fqn in outputs:
        search.need(fqn, ())
    return list(search.order.values())


def _no_extractor(fqn: str, path: tuple[str, ...]) -> InvalidValue:
    chain = f" (needed by {' <- '.join(reversed(path))})" if path else ""
    hint = "give it as an input, or define an extractor for it (one whose `env` is selected)"
    return InvalidValue(f"No extractor found for feature {fqn}{chain}", hint=hint)
