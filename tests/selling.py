"""A deployment that sells: it processes waves of rows of every kind of source, without Spark."""

from __future__ import annotations

import os
from pathlib import Path

from tests.deployed import Deployed, wait_until
from tests.sales import USERS, Row, base, put_everywhere
from umbel.runtime.batch import drain
from umbel.runtime.recovery.backup import PACKED, backup
from umbel.runtime.recovery.repository import Repository
from umbel.state.runs.maintenance import maintain


class Shop:
    """A deployment that processes sales, and what was sold so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows, self.users, self.waves = folder, list[Row](), list[Row](), 0
        self.deployed = Deployed(folder / "umbel")
        self.deployed.commit(base(folder / "files"))

    def sell(self) -> None:
        """Process a wave of rows of all sources."""
        self.rows += put_everywhere(self.folder / "files", self.deployed, self.waves)
        if self.waves < len(USERS):
            self.users += USERS[self.waves]
            self.deployed.log("users", USERS[self.waves])
        self.waves += 1

        def is_done() -> bool:
            drain(self.deployed.deployment)  # folders are listed once a second
            return self.deployed.taken() == {"Sales": len(self.rows), "Users": len(self.users)}

        wait_until(is_done, self.deployed.taken)

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
