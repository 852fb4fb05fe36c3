"""Tests that share a Spark session run in one process."""

from __future__ import annotations

import pytest


def test_groups_are_seen_by_the_scheduler(request: pytest.FixtureRequest) -> None:
    is_grouped = bool(request.config.getoption("loadgroup", False))
    assert request.node.nodeid.endswith("@spark") == is_grouped
