"""A deployment that sells: it processes waves of rows of a webhook, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.deployed import Deployed
from tests.sales import USERS, Row, base, sales
from umbel.runtime.batch import drain
from umbel.runtime.recovery import checkpoint
from umbel.runtime.recovery.backup import PACKED, backup
from umbel.runtime.recovery.repository import Repository
from umbel.state.runs.maintenance import maintain


class Shop:
    """A deployment that processes sales, and what was sold so far."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = settings
        self.folder, self.rows, self.users, self.waves = folder, list[Row](), list[Row](), 0
        self.deployed = Deployed(folder / "umbel", **settings)
        self.deployed.commit(base(folder / "files"))

    @classmethod
    def opened(cls, folder: Path, waves: int) -> Shop:
        """Open what a shop has left, after so many waves."""
        shop = cls.__new__(cls)
        shop.settings, shop.folder, shop.rows, shop.users, shop.waves = {}, folder, [], [], waves
        shop.deployed = Deployed(folder / "umbel")
        return shop

    def sell(self) -> None:
        """Send a wave of rows, and process it."""
        rows = sales(self.waves * 100, 100)
        self.deployed.log("sales", rows)
        self.rows += rows
        if self.waves < len(USERS):
            self.users += USERS[self.waves]
            self.deployed.log("users", USERS[self.waves])
        self.waves += 1
        self.process()

    def process(self) -> None:
        """Process all rows that have come."""
        drain(self.deployed.deployment)

    def reopened(self) -> Deployed:
        """Open the deployment anew, as another process would."""
        self.deployed.close()
        self.deployed = Deployed(self.folder / "umbel", **self.settings)
        return self.deployed

    def write_checkpoint(self) -> None:
        """Write the checkpoint that a worker would have."""
        checkpoint.write(self.deployed.deployment.catalog, self.folder / "umbel")

    def flush(self) -> None:
        """Write the state that is in memory as runs."""
        for shard in self.deployed.deployment.store._shards:  # type: ignore[attr-defined]
            maintain(shard, flush_bytes=1)

    def log_features(self) -> list[Path]:
        """Have a feature log of a few objects of its own."""
        day = self.folder / "umbel" / "features" / "main" / "w" / "2026-01-01"
        day.mkdir(parents=True)
        paths = [day / f"{number}.sum.ndjson" for number in range(3)]
        for path in paths:
            path.write_bytes(os.urandom(PACKED + 1))
        return paths

    def moved(self, repository: Repository) -> int:
        """Back up; return the bytes written."""
        return backup(self.deployed.deployment, repository).written
