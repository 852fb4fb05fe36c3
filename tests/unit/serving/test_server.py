"""The settings of server processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from umbel.serving.policy import Policy
from umbel.serving.server import _config


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    logs = [logging.getLogger(f"uvicorn.{each}") for each in ("error", "access", "asgi")]
    before = [each.level for each in logs]
    yield
    for log, level in zip(logs, before, strict=True):
        log.setLevel(level)


def test_mistakes_of_clients_are_not_logged() -> None:
    _config(Policy(), 1, 1)
    assert not logging.getLogger("uvicorn.error").isEnabledFor(logging.WARNING)
    assert logging.getLogger("uvicorn.error").isEnabledFor(logging.ERROR)
