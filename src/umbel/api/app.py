"""An app: the datasets and featuresets that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class App:
    """What `umbel run module:app` runs.

    Type checkers take a decorated class for the class it was, hence `Any`.

    Args:
        datasets: to commit.
        featuresets: to commit.
    """

    datasets: Sequence[Any] = ()
    featuresets: Sequence[Any] = ()
