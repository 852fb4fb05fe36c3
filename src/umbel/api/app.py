"""An app: the datasets and featuresets that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class App:
    """An app as run by `umbel run module:app`.

    Type checkers see a decorated class as the original class, hence `Any`.

    Args:
        datasets: to commit.
        featuresets: to commit.
    """

    datasets: Sequence[Any] = ()
    featuresets: Sequence[Any] = ()
