"""Featuresets: declare features, and the extractors computing them at query time."""

# isort: off
# The submodule first: the function of the same name replaces it as attribute.
import umbel.featuresets.featureset  # noqa: F401
from umbel.api.extractor import Extractor, extractor
from umbel.api.feature import Feature, feature
from umbel.api.featureset import Featureset, featureset
# isort: on

__all__ = ["Extractor", "Feature", "Featureset", "extractor", "feature", "featureset"]
