"""Tags flow down the lineage: what is computed from something has its tags, unless it cancels them with `~tag`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from umbel.plan.definitions import Definitions, ExtractorDefinition

CANCEL = "~"


@dataclass
class Tags:
    """The tags of everything that is committed, inherited ones included.

    Args:
        definitions: what is committed.
    """

    definitions: Definitions
    _datasets: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _features: dict[str, frozenset[str]] = field(default_factory=dict, init=False)

    def dataset(self, name: str) -> frozenset[str]:
        """Return the tags of a dataset: its own and those of the datasets it is computed from."""
        if name not in self._datasets:
            found = self.definitions.datasets[name]
            self._datasets[name] = _settled(found.meta.tags, [self.dataset(each) for each in found.inputs])
        return self._datasets[name]

    def feature(self, fqn: str) -> frozenset[str]:
        """Return the tags of a feature: its own, its featureset's, and those of what its extractor reads."""
        if fqn not in self._features:
            featureset = self.definitions.featuresets[fqn.partition(".")[0]]
            maker = next((each for each in featureset.extractors if fqn in each.outputs), None)
            above = _settled(featureset.meta.tags, self._sources(maker))
            own = featureset.feature(fqn.partition(".")[2]).meta.tags
            self._features[fqn] = _settled(own, [above])
        return self._features[fqn]

    def _sources(self, extractor: ExtractorDefinition | None) -> list[frozenset[str]]:
        if extractor is None:
            return []
        known = self.definitions.datasets
        features = [self.feature(each) for each in extractor.inputs]
        return [*features, *(self.dataset(each) for each in extractor.datasets if each in known)]


def _settled(own: Iterable[str], inherited: Iterable[frozenset[str]]) -> frozenset[str]:
    given = frozenset(own)
    cancelled = {tag.removeprefix(CANCEL) for tag in given if tag.startswith(CANCEL)}
    kept = frozenset[str]().union(*inherited) - cancelled
    return kept | {tag for tag in given if not tag.startswith(CANCEL)}


def all_tags(definitions: Definitions) -> Mapping[str, frozenset[str]]:
    """Return the tags of every dataset and feature by name."""
    tags = Tags(definitions)
    features = (each.fqn for featureset in definitions.featuresets.values() for each in featureset.features)
    return {
        **{name: tags.dataset(name) for name in definitions.datasets},
        **{fqn: tags.feature(fqn) for fqn in features},
    }
