"""The environment variables that pass settings from a server to its processes.

Imports nothing heavy.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder of several server processes' metrics; prometheus_client's name."""
LOCATION = "UMBEL_PLACE"


@dataclass(frozen=True, slots=True)
class DeploymentLocation:
    """The location and fixed settings of a deployment, as command line options provide them.

    Args:
        directory: umbel's folder.
        catalog: URL of the catalog, None for the one in the folder.
        store: URL of the store, None for the one in the folder.
        shards: the number of state shards of a new deployment, None for the default.
        accuracy: of a new deployment's continuous windows, None for the default.
        exact_instants: the number of distinct instants their tiles store, None for the default.
    """

    directory: str
    catalog: str | None = field(default=None, repr=False)
    store: str | None = field(default=None, repr=False)
    shards: int | None = None
    accuracy: float | None = None
    exact_instants: int | None = None

    def hand_on(self) -> None:
        """Write the location to the environment of child processes."""
        os.environ[LOCATION] = json.dumps(asdict(self))

    @staticmethod
    def handed_on() -> DeploymentLocation:
        """Read the location from the environment set by the parent process."""
        return DeploymentLocation(**json.loads(os.environ[LOCATION]))

    def opened(self) -> Deployment:
        """Return the deployment."""
        from umbel.runtime.deployment import Deployment

        return Deployment.at(
            Path(self.directory),
            catalog_url=self.catalog,
            store_url=self.store,
            shards=self.shards,
            accuracy=self.accuracy,
            exact_instants=self.exact_instants,
        )
