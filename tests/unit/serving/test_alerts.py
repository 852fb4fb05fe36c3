"""The rules for Prometheus: each metric in them is one that a running server exports, and promtool accepts them."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.docs.test_snippets import ROOT
from tests.unit.serving.conftest import Served
from umbel.processes.status import RUNNING, write_status

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
METRIC = re.compile(r"\b(umbel_\w+)")
LABEL = re.compile(r'\{(\w+)="(\w+)"\}')


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_the_metrics_of_a_rule_are_exported(flights: Served, rule: dict[str, Any]) -> None:
    write_status(flights.deployment.directory, RUNNING)
    lines = flights.http.get("/api/v1/metrics").text.splitlines()
    known = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert set(METRIC.findall(rule["expr"])) <= known
    labels = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    by = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"]))))
    assert labels <= (by or {"branch", "dataset", "expectation"})


def test_an_outcome_and_a_state_in_a_rule_exist(flights: Served) -> None:
    text = flights.http.get("/api/v1/metrics").text
    assert 'umbel_worker_state{state="running"}' in text
    named = {found for rule in rules() for found in LABEL.findall(rule["expr"])}
    assert named == {("state", "running"), ("outcome", "dead"), ("outcome", "late")}


def test_promtool_accepts_them() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("NOT TESTED by promtool, which is not installed\nremedy: apt-get install prometheus")
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout
