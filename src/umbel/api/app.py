"""An app: the datasets and featuresets that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umbel.api.dataset import Dataset
from umbel.api.featureset import Featureset


@dataclass(frozen=True)
class App:
    """What `umbel run module:app` runs.

    Args:
        datasets: to commit.
        featuresets: to commit.
    """

    datasets: Sequence[Dataset] = ()
    featuresets: Sequence[Featureset] = ()
