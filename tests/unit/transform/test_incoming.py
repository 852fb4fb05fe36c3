"""The transformation as a stage: rows of a source pass a configuration before preproc and validation."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Optional

import pandas as pd
import pytest

from tests.deployed import Deployed
from umbel.connectors import Webhook, ref, source
from umbel.datasets import Dataset, dataset, field
from umbel.errors import InvalidType, InvalidValue
from umbel.runtime.batch import drain
from umbel.testing import MockClient
from umbel.transform.configuration import loads
from umbel.transform.incoming import _reason
from umbel.transform.parts import Letter

CONFIG = """source_field: properties
target_field: name
transformations:
  - name: custom_code
    language: python
    code: |
      year = datetime.now().strftime("%Y")
      return source_field.get("config_name").lower()
---
source_field: sent_at
target_field: ts
transformations:
  - {name: parse_datetime, format: "%Y-%m-%dT%H:%M:%SZ"}
  - {name: cast, type: epoch_ms}
---
source_field: id
target_field: key
---
source_field: test
transformations:
  - {name: filter, code: return source_field is None}
"""
__owner__ = "test@umbel.dev"

web = Webhook(name="web")
EVENTS = [
    {"id": 1, "properties": {"config_name": "Dark"}, "sent_at": "2024-01-01T00:00:00Z"},
    {"id": 2, "properties": None, "sent_at": "2024-01-01T00:00:00Z"},
    {"id": 3, "properties": {"config_name": "Light"}, "sent_at": "2024-01-01T00:00:01Z", "test": True},
    {"id": 4, "properties": {"config_name": "LIGHT"}, "sent_at": "2024-01-01T00:00:02Z"},
    {"id": "x", "properties": {"config_name": "a"}, "sent_at": "2024-01-01T00:00:02Z"},
]


def made(**options: object) -> Dataset:
    options = {"transform": loads(CONFIG, "c.yaml"), "cdc": "upsert", **options}

    @source(web.endpoint("e"), disorder="14d", preproc={"user": ref("key")}, **options)
    @dataset(index=True)
    class Changed:
        user: int = field(key=True)
        name: Optional[str]
        ts: datetime

    return Changed


def test_rows_pass_the_configuration_in_process() -> None:
    client = MockClient()
    client.commit("m", datasets=[made()])
    client.log("web", "e", pd.DataFrame([EVENTS[0], EVENTS[2], EVENTS[3]]))
    found = client.get_dataset_df("Changed")
    assert found[["user", "name"]].values.tolist() == [[1, "dark"], [4, "light"]]


def test_rows_pass_the_configuration_in_a_deployment(tmp_path: Path) -> None:
    place = Deployed(tmp_path)
    place.commit([made()])
    for events in (EVENTS[:3], EVENTS[3:]):
        place.log("e", events)
        drain(place.deployment)
    counts = {name: count for (_, name), count in place.deployment.catalog.counts().items()}
    assert (counts["rows"], counts["dead"]) == (2, 2)
    letters = sorted(place.deployment.catalog.dead_letters("Changed"), key=lambda each: each.reason)
    assert [each.reason.partition(",")[0] for each in letters][1] == (
        "transform: step custom_code of 'name' (c.yaml:8): AttributeError: 'NoneType' object has no attribute 'get'"
    )
    assert letters[1].raw.startswith(b'{"id":2')


def test_the_text_of_the_configuration_is_part_of_the_version() -> None:
    from umbel.functions.fingerprint import fingerprint
    from umbel.transform.incoming import TransformedRows

    assert fingerprint(TransformedRows("a", "x.yaml")) == fingerprint(TransformedRows("a", "y.yaml"))
    assert fingerprint(TransformedRows("a")) != fingerprint(TransformedRows("b"))


ENDING = "import os\n      os._exit(3) if source_field == 'x' else 0\n      return 1"


@pytest.mark.parametrize("code", ["return int(source_field)", ENDING])
def test_a_step_that_is_to_fail_stops_no_dataset(tmp_path: Path, code: str) -> None:
    """It ended the worker, and again after each restart, also when the configuration had been corrected."""
    text = f"""passthrough: true
---
source_field: id
target_field: key
transformations:
  - name: custom_code
    on_error: fail
    code: |
      {code}
"""
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([made(transform=loads(text, "c.yaml"))])
    deployed.log("e", [{"id": number, "name": "a", "ts": "2024-01-01T00:00:00Z"} for number in ("1", "x", "1")])
    assert drain(deployed.deployment) == 1
    (letter,) = deployed.deployment.catalog.dead_letters("Changed", 10)
    assert letter.reason.startswith("transform: step custom_code")
    assert deployed.changes("Changed")["user"].to_list() == [1]
    deployed.close()


def test_what_cannot_be_a_stage_is_refused(tmp_path: Path) -> None:
    explode = loads("source_field: a\ntarget_field: b\ntransformations: [{name: explode}]", "c.yaml")
    with pytest.raises(InvalidValue, match=r"explode makes several rows of one \(at c\.yaml:3\)"):
        made(transform=explode)
    with pytest.raises(InvalidValue, match="cannot be used with cdc 'debezium'"):
        made(cdc="debezium")
    with pytest.raises(InvalidType, match="expected a configuration or its file, found 3"):
        made(transform=3)
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert made(transform=tmp_path / "c.yaml")


def test_the_reason_of_code_that_ended_its_process_names_no_field() -> None:
    ended = Letter(0, b"{}", "custom_code", "", "", "LimitExceeded", "its process ended: exit code 3")
    assert _reason(ended) == "transform: step custom_code: LimitExceeded: its process ended: exit code 3"
    failed = Letter(0, b"{}", "cast", "a.b", "c.yaml:3", "ValueError", "no")
    assert _reason(failed) == "transform: step cast of 'a.b' (c.yaml:3): ValueError: no"
