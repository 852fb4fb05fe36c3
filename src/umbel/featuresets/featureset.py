"""Compatibility module: the names of `umbel.featuresets`, at their older import path."""

from umbel.api.extractor import Extractor, extractor
from umbel.api.feature import Feature, feature
from umbel.api.featureset import Featureset, featureset

__all__ = ["Extractor", "Feature", "Featureset", "extractor", "feature", "featureset"]
