"""Resolution: the extractors that compute requested features from inputs, in dependency order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umbel.definitions.records import AliasExtractor, ExtractorDefinition, FeatureDefinition, FeaturesetDefinition
from umbel.errors import InvalidType, InvalidValue, UnknownName, did_you_mean
from umbel.types.dtypes import Optional


def name_of(item: Any) -> str:
    """Return the name of a feature or featureset, passed as object or text.

    Raises:
        InvalidType: the item is of another type.
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
    """The committed features, and the extractor of each.

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
        self.features.update(self._uncommitted())

    def _uncommitted(self) -> dict[str, FeatureDefinition]:
        """Return the alias targets in uncommitted featuresets: they can be inputs."""
        found: dict[str, FeatureDefinition] = {}
        for extractor in self.extractors.values():
            if isinstance(extractor, AliasExtractor) and extractor.inputs[0] not in self.features:
                featureset, _, name = extractor.inputs[0].partition(".")
                alias = self.features[extractor.outputs[0]].dtype
                dtype = alias if extractor.default is None else Optional(alias)
                found[extractor.inputs[0]] = FeatureDefinition(name=name, featureset=featureset, dtype=dtype)
        return found

    def feature(self, fqn: str) -> FeatureDefinition:
        """Return the feature with a fully qualified name."""
        if fqn not in self.features:
            raise self._unknown(fqn)
        return self.features[fqn]

    def expanded(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return fully qualified feature names without duplicates, with featuresets expanded.

        A featureset is expanded to its features, in order of definition, without those marked as deleted.

        Raises:
            InvalidValue: a feature is marked as deleted.
        """
        found: dict[str, None] = {}
        for name in names:
            members = self.featuresets[name].features if name in self.featuresets else (self._alive(name),)
            found.update((member.fqn, None) for member in members if not member.meta.deleted)
        return tuple(found)

    def _alive(self, fqn: str) -> FeatureDefinition:
        """Return a feature that is not marked as deleted."""
        feature = self.feature(fqn)
        if feature.meta.deleted:
            raise InvalidValue(f"feature '{fqn}' is deleted", hint="leave it out, or commit it without deleted=True")
        return feature

    def provided(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the fully qualified names of input features without duplicates.

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

    def need(self, fqn: str) -> None:
        """Add the extractors a feature needs, in dependency order."""
        path, pending = list[str](), [iter((fqn,))]  # no recursion: a chain may be longer than Python's stack
        while pending:
            following = next(pending[-1], None)
            if following is None:
                pending.pop()
                if path:
                    extractor = self.catalogue.extractors[path.pop()]
                    self.order[extractor.featureset, extractor.name] = extractor
            elif (inputs := self._missing(following, path)) is not None:
                path.append(following)
                pending.append(iter(inputs))

    def _missing(self, fqn: str, path: Sequence[str]) -> tuple[str, ...] | None:
        """Return the inputs of the missing extractor of a feature, None if none is missing."""
        if fqn in self.provided:
            return None
        extractor = self.catalogue.extractors.get(fqn)
        if extractor is None:
            raise _no_extractor(self.catalogue.feature(fqn), path)
        return None if (extractor.featureset, extractor.name) in self.order else tuple(extractor.inputs)


def resolve(catalogue: Catalogue, inputs: Sequence[str], outputs: Sequence[str]) -> list[ExtractorDefinition]:
    """Return the fewest extractors that compute the outputs, in dependency order.

    Args:
        catalogue: the committed features.
        inputs: fully qualified names of the input features; they are never computed.
        outputs: fully qualified names of the requested features.

    Raises:
        InvalidValue: a feature is neither an input nor computed by any extractor.
    """
    search = _Search(catalogue, frozenset(inputs))
    for fqn in outputs:
        search.need(fqn)
    return list(search.order.values())


def _no_extractor(feature: FeatureDefinition, path: Sequence[str]) -> InvalidValue:
    deleted = ", which is deleted" if feature.meta.deleted else ""
    chain = f" (needed by {' <- '.join(reversed(path))})" if path else ""
    hint = "give it as an input, or define an extractor for it (one whose `env` is selected)"
    return InvalidValue(f"No extractor found for feature {feature.fqn}{deleted}{chain}", hint=hint)
