"""Names that are too long for the folders and tables in which they would be stored."""

from __future__ import annotations

import json
from dataclasses import replace
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


def events(name: str, field: str = "uid", webhook: str = "web", endpoint: str = "events") -> Any:
    body = type(name, (), {"__annotations__": {field: int, "t": datetime}, "__module__": __name__})
    rows = Webhook(name=webhook).endpoint(endpoint)
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


UNSTORABLE = [("web", ""), ("", "events"), ("w" * 201, "events"), ("web", "ü" * 34)]


@pytest.mark.parametrize(("webhook", "endpoint"), UNSTORABLE, ids=range(len(UNSTORABLE)))
def test_a_source_that_changes_to_an_unstorable_name_is_refused(tmp_path: Path, webhook: str, endpoint: str) -> None:
    deployment = Deployment.at(tmp_path, shards=1)
    commit(deployment, checked := check_commit([events("E")], []))
    rows = replace(checked.datasets["E"].sources[0], connector=Webhook(name=webhook).endpoint(endpoint))
    changed = replace(checked.datasets["E"], sources=(rows,))
    with pytest.raises(InvalidValue, match="must have 1 to 200 characters once escaped"):
        commit(deployment, Definitions({"E": changed}, {}))
    commit(deployment, check_commit([events("E"), events("F")], []))


def test_the_client_reports_all_unstorable_names_with_their_datasets() -> None:
    sources = [events(f"E{number}", webhook=each[0], endpoint=each[1]) for number, each in enumerate(UNSTORABLE)]
    with pytest.raises(InvalidValue, match="4 faults") as caught:
        check_commit(sources, [])
    assert str(caught.value).count(Path(__file__).name) >= len(UNSTORABLE)
    assert "choose another name" in str(caught.value)
