"""Pipeline (c): accounts with their owners, both updated all the time."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Optional

from umbel.connectors import Files, source
from umbel.datasets import dataset, field, pipeline
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

files = Files(name="bank", folder=os.environ.get("PIPELINES_DATA", "benchmarks/.data"))


@source(files.path("accounts-*.ndjson"), disorder="3d", cdc="upsert", every="1s")
@dataset(index=True)
class Account:
    """An account."""

    account: int = field(key=True)
    owner: int
    balance: int
    at: datetime


@source(files.path("owners-*.ndjson"), disorder="3d", cdc="upsert", every="1s")
@dataset(index=True)
class Owner:
    """The owner of accounts."""

    owner: int = field(key=True)
    tier: str
    limit: int
    at: datetime


@dataset(index=True)
class Owned:
    """An account with its owner."""

    account: int = field(key=True)
    owner: int
    balance: int
    tier: Optional[str]
    limit: Optional[int]
    at: datetime

    @pipeline
    @inputs(Account, Owner)
    def joined(cls, accounts, owners):  # type: ignore[no-untyped-def]
        """Join the owner."""
        return accounts.join(owners, how="left", on=["owner"])
