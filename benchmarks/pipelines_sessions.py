"""Pipeline (d): clicks without those sent twice, then sessions of users."""

from __future__ import annotations

import os
from datetime import datetime

from umbel.connectors import Files, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Session, Tumbling, Window
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

files = Files(name="site", folder=os.environ.get("PIPELINES_DATA", "benchmarks/.data"))


@source(files.path("clicks-*.ndjson"), disorder="3d", cdc="append", every="1s")
@dataset
class Click:
    """A click."""

    click: int
    user: int
    page: int
    dwell: int
    at: datetime


@dataset
class Once:
    """A click, once."""

    click: int
    user: int
    page: int
    dwell: int
    at: datetime

    @pipeline
    @inputs(Click)
    def distinct(cls, clicks):  # type: ignore[no-untyped-def]
        """Take each click of a day once."""
        return clicks.dedup("click", window=Tumbling("1d"))


@dataset(index=True)
class Visit:
    """A session of a user."""

    user: int = field(key=True)
    window: Window = field(key=True)
    clicks: int
    dwell: int
    at: datetime

    @pipeline
    @inputs(Once)
    def sessions(cls, clicks):  # type: ignore[no-untyped-def]
        """Count and sum by session."""
        return clicks.groupby("user", window=Session("30m")).aggregate(clicks=Count(), dwell=Sum(of="dwell"))
