"""Names that are too long for the folders and tables in which they would be stored."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from umbel.api.commit import check_commit
from umbel.api.dataset import dataset
from umbel.api.metadata import meta
from umbel.connectors import Webhook, source
from umbel.definitions.names import LONGEST_NAME
from umbel.definitions.records import Definitions
from umbel.errors import InvalidValue
from umbel.log.ingest import IngestLog
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

AT = "2026-01-01T00:00:00Z"


def events(name: str, field: str = "uid") -> Any:
    body = type(name, (), {"__annotations__": {field: int, "t": datetime}, "__module__": __name__})
    rows = Webhook(name="web").endpoint("events")
    return meta(owner="a@b.c")(source(rows, disorder="1d", cdc="append")(dataset(body)))


def test_all_are_reported_by_the_client() -> None:
    with pytest.raises(InvalidValue) as caught:
        check_commit([events("D" * 201), events("E", "ü" * 101)], [])
    found = str(caught.value)
    assert "dataset 'DDDD" in found
    assert "has 201 bytes, and may have 200" in found
    assert "dataset 'E': the name of field 'üüüü" in found
    assert "has 202 bytes" in found
    assert len(found) < 800


def test_a_server_refuses_them_too(tmp_path: Path) -> None:
    record = events("D" * 300).__dict__["_record"]
    with pytest.raises(InvalidValue, match="has 300 bytes"):
        commit(Deployment.at(tmp_path), Definitions({record.name: record}, {}))


@pytest.mark.parametrize("character", ["D", "日"])
def test_the_longest_is_processed(tmp_path: Path, character: str) -> None:
    name = character * (LONGEST_NAME // len(character.encode()))
    deployment = Deployment.at(tmp_path, shards=1)
    commit(deployment, check_commit([events(name, name)], []))
    log = IngestLog(tmp_path, "web", "events")
    log.append_blocking(json.dumps([{name: 1, "t": AT}], ensure_ascii=False).encode(), 1)
    log.close()
    assert drain(deployment) == 1
