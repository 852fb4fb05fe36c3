"""Tag inheritance along the lineage.

Computed objects inherit the tags of their inputs, unless they cancel them with `~tag`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from umbel.definitions.records import Definitions, ExtractorDefinition

CANCEL = "~"


@dataclass
class Tags:
    """The tags of all committed objects, including inherited ones.

    Args:
        definitions: the committed definitions.
    """

    definitions: Definitions
    _datasets: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _features: dict[str, frozenset[str]] = field(default_factory=dict, init=False)

    def dataset(self, name: str) -> frozenset[str]:
        """Return a dataset's own tags and those of its input datasets."""
        if name not in self._datasets:
            found = self.definitions.datasets[name]
            self._datasets[name] = _final(found.meta.tags, [self.dataset(each) for each in found.inputs])
        return self._datasets[name]

    def feature(self, fqn: str) -> frozenset[str]:
        """Return a feature's own tags, its featureset's and its extractor's inputs'."""
        if fqn not in self._features:
            featureset = self.definitions.featuresets[fqn.partition(".")[0]]
            maker = next((each for each in featureset.extractors if fqn in each.outputs), None)
            above = _final(featureset.meta.tags, self._sources(maker))
            own = featureset.feature(fqn.partition(".")[2]).meta.tags
            self._features[fqn] = _final(own, [above])
        return self._features[fqn]

    def _sources(self, extractor: ExtractorDefinition | None) -> list[frozenset[str]]:
        if extractor is None:
            return []
        known = self.definitions.datasets
        features = [self.feature(each) for each in extractor.inputs]
        return [*features, *(self.dataset(each) for each in extractor.datasets if each in known)]


def _final(own: Iterable[str], inherited: Iterable[frozenset[str]]) -> frozenset[str]:
    provided = frozenset(own)
    cancelled = {tag.removeprefix(CANCEL) for tag in provided if tag.startswith(CANCEL)}
    retained = frozenset[str]().union(*inherited) - cancelled
    return retained | {tag for tag in provided if not tag.startswith(CANCEL)}


def all_tags(definitions: Definitions) -> Mapping[str, frozenset[str]]:
    """Return the tags of every dataset and feature by name."""
    tags = Tags(definitions)
    features = (each.fqn for featureset in definitions.featuresets.values() for each in featureset.features)
    return {
        **{name: tags.dataset(name) for name in definitions.datasets},
        **{fqn: tags.feature(fqn) for fqn in features},
    }
