"""The names of `umbel.featuresets`, where older programs import them from."""

from umbel.api.extractor import Extractor, extractor
from umbel.api.feature import Feature, feature
from umbel.api.featureset import Featureset, featureset

__all__ = ["Extractor", "Feature", "Featureset", "extractor", "feature", "featureset"]
