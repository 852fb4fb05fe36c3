"""Featuresets: declare features, and extractors that compute them when a query asks."""

# isort: off
# The submodule first: the function of the same name takes its place.
import umbel.featuresets.featureset  # noqa: F401
from umbel.api.extractor import Extractor, extractor
from umbel.api.feature import Feature, feature
from umbel.api.featureset import Featureset, featureset
# isort: on

__all__ = ["Extractor", "Feature", "Featureset", "extractor", "feature", "featureset"]
