"""Where the answers of an offline query may lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.serving.conftest import NOON, Served
from tests.unit.serving.jobs import OUTPUTS, PATH, lines, place
from umbel.catalog.offline_jobs import OfflineJobs

APART: list[tuple[dict[str, str], str, bool]] = [
    ({"prefix": "in/apart"}, "in/apart", False),
    ({"prefix": "in/apart/"}, "in/apart/answers", False),
    ({"prefix": "in/apart"}, "in/apart-answers", False),
    ({"path": "in/apart/**/*.json"}, "in/apart", False),
    ({"prefix": ""}, "out", False),
    ({"prefix": "in/apart/"}, "in/apart-answers", True),
    ({"prefix": "in/apart/"}, "in/apart/_answers", True),
    ({"path": "in/apart/*.json"}, "in/apart", True),
]


@pytest.mark.parametrize(("source", "target", "is_apart"), APART)
def test_answers_are_no_input_of_the_next_query(
    idle: Served, buckets: Path, source: dict[str, str], target: str, is_apart: bool
) -> None:
    lines(buckets / "data/in/apart/a.json", [{"Origin.origin": "JFK", "at": NOON}])
    query = {"inputs": ["Origin.origin"], "outputs": OUTPUTS, "timestamp_column": "at"}
    places = {"input": {"bucket": "data", "format": "json", **source}, "output": place(target)}
    answer = idle.post(PATH, query | places)
    assert (answer.status_code == 200) is is_apart, answer.text
    if is_apart:
        OfflineJobs(idle.deployment.catalog).cancel(answer.json()["request_id"])
    else:
        assert "would be input of the next query" in answer.json()["message"]
