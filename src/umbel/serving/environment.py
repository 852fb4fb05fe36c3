"""The environment variables by which a server hands on what its processes need. Imports nothing heavy."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The folder in which several server processes keep their figures together; prometheus_client's name for it."""
PLACE = "UMBEL_PLACE"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a deployment is, as options have it.

    Args:
        directory: umbel's folder.
        catalog: URL of the catalog, None for the one in the folder.
        store: URL of the store, None for the one in the folder.
        shards: in how many parts a new deployment keeps its state, None for the default.
    """

    directory: str
    catalog: str | None = None
    store: str | None = None
    shards: int | None = None

    def hand_on(self) -> None:
        """Tell the processes that this one starts."""
        os.environ[PLACE] = json.dumps(asdict(self))

    @staticmethod
    def handed_on() -> Place:
        """Return what the process that started this one told it."""
        return Place(**json.loads(os.environ[PLACE]))

    def opened(self) -> Deployment:
        """Return the deployment."""
        from umbel.runtime.deployment import SHARDS, Deployment

        directory, shards = Path(self.directory), self.shards or SHARDS
        return Deployment.at(directory, catalog_url=self.catalog, store_url=self.store, shards=shards)
