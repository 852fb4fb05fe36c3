"""The chart: rendered by helm, checked by the schemas of Kubernetes and KEDA, its commands parsed, its queries run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.collecting import CollectorProcess
from tests.deploy.kubernetes import problems
from tests.deployed import Deployed, wait_until
from tests.docs.test_commands import check_call
from tests.scenarios.server import ServerProcess
from tests.servers.missing import missing
from tests.servers.prometheus import scraping
from umbel.connectors import Webhook, source
from umbel.datasets import dataset
from umbel.log.collected import log_of
from umbel.log.readers import note_position
from umbel.log.segments import ORIGIN

__owner__ = "tests@example.com"
ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "umbel"
EVERYTHING = {
    "keda.enabled": "true",
    "keda.collector.enabled": "true",
    "ingress.enabled": "true",
    "ingress.className": "nginx",
    "ingress.tlsSecret": "tls",
    "ingress.collectorHost": "events.example.com",
    "collector.keysSecret": "keys",
    "collector.schema": '{"type":"object"}',
    "collector.streams[0]": "clicks",
    "server.storage.className": "fast",
    "collector.storage.className": "fast",
    "server.environment.UMBEL_BACKLOG_AGE": "10m",
    "server.environmentSecrets[0]": "catalog",
    "worker.environmentSecrets[0]": "catalog",
    "collector.environmentSecrets[0]": "kafka",
    "podAnnotations.team": "features",
    "nodeSelector.disk": "ssd",
    "tolerations[0].key": "dedicated",
    "image.pullSecrets[0].name": "registry",
}
VALUES: dict[str, dict[str, str]] = {
    "as it is": {},
    "everything": EVERYTHING,
    "the server alone": {"worker.enabled": "false", "collector.enabled": "false"},
    "the collector alone": {"server.enabled": "false", "worker.enabled": "false", "collector.to": ""},
    "a worker from zero": {"keda.enabled": "true", "keda.worker.minReplicas": "0"},
    "a fixed number": {"collector.autoscaling.enabled": "false", "collector.replicas": "3"},
}


@cache
def helm() -> str:
    """Return the path of helm."""
    there = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    remedy = "install helm, https://helm.sh/docs/intro/install"
    return shutil.which("helm", path=there) or missing("helm", "it is not installed", remedy)


def rendered(values: dict[str, str], release: str = "shop") -> list[dict[str, Any]]:
    """Return the objects of the chart for these values."""
    done = _template(values, release)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def _template(values: dict[str, str], release: str) -> subprocess.CompletedProcess[str]:
    options = [
        part
        for name, value in values.items()
        for part in ("--set-string" if "schema" in name else "--set", f"{name}={_escaped(value)}")
    ]
    command = [helm(), "template", release, str(CHART), "--kube-version", "1.31", "--namespace", "features"]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def _escaped(value: str) -> str:
    return re.sub(r"([,{}])", r"\\\1", value)


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for each in objects:
        if "template" in each.get("spec", {}):
            yield each, each["spec"]["template"]["spec"]


def containers(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for _, pod in pods(objects):
        yield from (*pod.get("initContainers", ()), *pod["containers"])


def queries(objects: list[dict[str, Any]]) -> dict[str, str]:
    found = (trigger for each in objects if each["kind"] == "ScaledObject" for trigger in each["spec"]["triggers"])
    return {each["name"]: each["metadata"]["query"] for each in found if each["type"] == "prometheus"}


def test_helm_finds_nothing_wrong() -> None:
    command = [helm(), "lint", str(CHART), "--strict", "--kube-version", "1.31"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", VALUES)
def test_objects_are_those_of_kubernetes(name: str) -> None:
    objects = rendered(VALUES[name])
    assert objects
    assert [f"{each['kind']} {each['metadata']['name']}: {found}" for each in objects for found in problems(each)] == []
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)


WRONG: dict[str, dict[str, str]] = {
    "replcas": {"collector.replcas": "3"},
    "worker.tasks": {"worker.tasks": "all"},
    "server.allowedHosts": {"server.allowedHosts[0]": "*.example.com"},
    "collector.schema": {"collector.schema.type": "object"},
    "image.tag": {"image.tag": "20261128"},
    "minReplicas must be one of": {"keda.worker.minReplicas": "2"},
    "the worker needs the server": {"server.enabled": "false"},
    "there is no collector": {"collector.enabled": "false", "ingress.enabled": "true", "ingress.collectorHost": "a.b"},
    "it has no host": {"server.enabled": "false", "worker.enabled": "false", "ingress.enabled": "true"},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_values_are_refused(message: str) -> None:
    done = _template(WRONG[message], "shop")
    assert done.returncode != 0
    assert message in done.stderr


def test_names_of_a_long_release_are_distinct() -> None:
    objects = rendered(EVERYTHING, "r" * 42)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    assert max(len(each["metadata"]["name"]) for each in objects if each["kind"] == "StatefulSet") <= 52
    assert "at most 42 characters" in _template({}, "r" * 43).stderr


def test_large_numbers_are_written_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(
        "{server: {environment: {UMBEL_BACKLOG_BYTES: 2147483648}},"
        " keda: {enabled: true, collector: {enabled: true, backlogRows: 50000000}}}"
    )
    command = [helm(), "template", "shop", str(CHART), "--values", str(tmp_path / "values.yaml")]
    objects = list(yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    (server,) = [each for each in containers(objects) if each["name"] == "server"]
    assert {"name": "UMBEL_BACKLOG_BYTES", "value": "2147483648"} in server["env"]
    triggers = [each for one in objects if one["kind"] == "ScaledObject" for each in one["spec"]["triggers"]]
    assert "50000000" in [each["metadata"].get("threshold") for each in triggers]


def test_passwords_come_from_secrets() -> None:
    found = {each["name"]: each.get("envFrom") for each in containers(rendered(EVERYTHING))}
    catalog = [{"secretRef": {"name": "catalog"}}]
    kafka = [{"secretRef": {"name": "kafka"}}]
    assert found == {"first-token": catalog, "server": catalog, "worker": catalog, "collector": kafka}


def test_a_changed_schema_starts_collectors_anew() -> None:
    def collector(schema: str) -> dict[str, Any]:
        (found,) = [
            owner for owner, _ in pods(rendered({"collector.schema": schema})) if owner["kind"] == "StatefulSet"
        ]
        return found["spec"]["template"]

    assert collector('{"type":"object"}') == collector('{"type":"object"}')
    assert collector('{"type":"object"}') != collector('{"type":"object","required":["n"]}')


def test_wrong_objects_are_found() -> None:
    objects = {each["kind"]: each for each in rendered(EVERYTHING)}
    for change in (
        lambda: objects["StatefulSet"]["spec"]["template"]["spec"].update(graceSeconds=1),
        lambda: objects["Service"]["spec"]["ports"][0].update(port="http"),
        lambda: objects["ScaledObject"]["spec"].update(minReplicas=1),
        lambda: objects["ScaledObject"]["spec"]["triggers"][0]["metadata"].update(threshold=1),
        lambda: objects["Deployment"]["spec"].update(replicas=None),
    ):
        before = sum(len(problems(each)) for each in objects.values())
        change()
        assert sum(len(problems(each)) for each in objects.values()) == before + 1


@pytest.mark.parametrize("name", VALUES)
def test_references_between_objects_hold(name: str) -> None:
    objects = rendered(VALUES[name])
    known = {(each["kind"], each["metadata"]["name"]) for each in objects}
    for each in objects:
        target = each["spec"].get("scaleTargetRef") if "spec" in each else None
        assert target is None or (target["kind"], target["name"]) in known
    for owner, pod in pods(objects):
        labels = owner["spec"]["template"]["metadata"]["labels"]
        assert owner["spec"]["selector"]["matchLabels"].items() <= labels.items()
        volumes = {each["name"]: each for each in pod.get("volumes", ())}
        claims = [each["metadata"]["name"] for each in owner["spec"].get("volumeClaimTemplates", ())]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            mounted = {each["name"] for each in container["volumeMounts"]}
            assert mounted <= {*volumes, *claims}
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim is None or ("PersistentVolumeClaim", claim) in known or "server.enabled" in VALUES[name]
    for service in (each for each in objects if each["kind"] == "Service"):
        chosen = [
            each
            for each, _ in pods(objects)
            if service["spec"]["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert len(chosen) == 1


@pytest.mark.parametrize("name", VALUES)
def test_pods_have_no_rights(name: str) -> None:
    for _, pod in pods(rendered(VALUES[name])):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] > 0
        assert not pod["automountServiceAccountToken"]
        assert pod["shareProcessNamespace"]  # else SIGTERM is lost on a process that starts
    for container in containers(rendered(VALUES[name])):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("name", VALUES)
def test_containers_run_commands_of_umbel(name: str, tmp_path: Path) -> None:
    found = 0
    for container in containers(rendered(VALUES[name])):
        if "command" in container:
            continue
        arguments = [str(each) for each in container["args"]]
        for path in ("/etc/umbel/schema/schema.json", "/etc/umbel/keys/keys.toml"):
            (tmp_path / Path(path).name).touch()
            arguments = [each.replace(path, str(tmp_path / Path(path).name)) for each in arguments]
        check_call(arguments, is_whole=True)
        found += 1
    assert found


def test_the_worker_is_scaled_between_zero_and_one() -> None:
    (scaled,) = [each for each in rendered(VALUES["a worker from zero"]) if each["kind"] == "ScaledObject"]
    assert (scaled["spec"]["minReplicaCount"], scaled["spec"]["maxReplicaCount"]) == (0, 1)
    (worker,) = [
        owner for owner, _ in pods(rendered(VALUES["a worker from zero"])) if "worker" in owner["metadata"]["name"]
    ]
    assert "replicas" not in worker["spec"]  # an upgrade must not undo what KEDA has set
    autoscaled = {each["kind"] for each in rendered(EVERYTHING)}
    assert "HorizontalPodAutoscaler" not in autoscaled  # two scalers of one collector would fight
    assert "HorizontalPodAutoscaler" in {each["kind"] for each in rendered({})}


@source(Webhook(name="web").endpoint("clicks"), disorder="1d", cdc="append")
@dataset
class Click:
    n: int
    at: datetime


def test_queries_of_keda_give_the_backlog_of_a_running_exporter(tmp_path: Path) -> None:
    chart = rendered({**EVERYTHING, "keda.selector": r'job=~"collector|server"'})
    found = queries(chart)
    assert sorted(found) == ["backlog-rows", "lag-bytes", "lag-seconds"]
    deployed = Deployed(tmp_path / "server" / "umbel")
    deployed.commit([Click])
    deployed.log("clicks", [{"n": n, "at": "2026-03-01T00:00:00Z"} for n in range(2)])
    deployed.close()
    server, collector = ServerProcess(tmp_path / "server"), CollectorProcess(tmp_path)
    server.wait_until_ready()
    collector.wait()
    collector.post([{"n": 1}] * 7)
    note_position(log_of(collector.directory, "clicks"), "r", "a test", ORIGIN)
    scraped = _scraped(chart)
    targets = [("server", server.port, scraped["server"]), ("collector", collector.port, scraped["collector"])]
    with scraping(tmp_path, targets) as prometheus:
        wait_until(lambda: prometheus.value(found["backlog-rows"]) == 7, lambda: collector.said)
        wait_until(lambda: prometheus.value(found["lag-bytes"]) > 10, lambda: server.said)
        assert prometheus.value(found["lag-seconds"]) > 0
        for name in sorted(set(re.findall(r"\bumbel_\w+", json.dumps(list(found.values()))))):
            assert prometheus.series(name), f"{name} is not exported"
        nothing = re.sub(r"\{.*?\}", '{job="none"}', found["lag-seconds"])
        assert prometheus.value(nothing) == 0
    assert collector.stop() == 0
    server.stop()


def _scraped(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Return the path of metrics by component, as the annotations have it."""
    found = {}
    for owner, _ in pods(objects):
        meta = owner["spec"]["template"]["metadata"]
        if "prometheus.io/path" in meta.get("annotations", {}):
            found[meta["labels"]["app.kubernetes.io/component"]] = meta["annotations"]["prometheus.io/path"]
    return found


POD = "192.0.2.7"


@contextmanager
def _served(tmp_path: Path) -> Iterator[tuple[ServerProcess, dict[str, Any], str]]:
    """Run the first token's container and the server's; yield the server, its container and the token."""
    first, server = (each for each in containers(rendered({})) if each["name"] in {"first-token", "server"})
    (tmp_path / "umbel").mkdir(mode=0o755)
    (script,) = (each.replace("/var/lib/umbel", str(tmp_path / "umbel")) for each in first["args"])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    subprocess.run(
        [*first["command"], script], cwd=tmp_path / "umbel", env=environment, capture_output=True, check=True
    )
    options = [each for each in server["args"][1:] if not each.startswith(("--dir", "--port", "--host"))]
    running = ServerProcess(tmp_path, *(each.replace("$(POD_IP)", POD) for each in options))
    yield running, server, (tmp_path / "umbel" / "admin-token").read_text().strip()
    running.stop()


def test_probes_of_the_chart_succeed(tmp_path: Path) -> None:
    import httpx

    with _served(tmp_path) as (running, server, _):
        probes = [server[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]

        def succeed() -> bool:
            headers = {"Host": f"{POD}:8425"}
            try:
                return all(
                    httpx.get(f"http://127.0.0.1:{running.port}{each['path']}", headers=headers).status_code == 200
                    for each in probes
                )
            except httpx.TransportError:
                return False

        wait_until(succeed, lambda: running.said)
    assert (tmp_path / "umbel" / "admin-token").stat().st_mode & 0o777 == 0o600


def test_the_server_answers_prometheus_and_clients_inside_of_the_cluster(tmp_path: Path) -> None:
    import httpx

    with _served(tmp_path) as (running, _, token):
        running.wait_until_ready()
        for host, status in {
            f"{POD}:8425": 200,
            "shop-server:8425": 200,
            "shop-server.features.svc:8425": 200,
            "shop-server.features.svc.cluster.local:8425": 200,
            "features.example.com": 200,
            "another.example.com": 403,
        }.items():
            headers = {"Host": host, "Authorization": f"Bearer {token}"}
            assert httpx.get(f"http://127.0.0.1:{running.port}/api/v1/metrics", headers=headers).status_code == status


def test_the_image_is_slim_and_not_of_root() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    lines = [each for each in text.replace("\\\n", " ").splitlines() if each and not each.startswith("#")]
    bases = [each.split()[1] for each in lines if each.startswith("FROM")]
    assert all(each.endswith("-slim") for each in bases)
    final = lines[max(n for n, each in enumerate(lines) if each.startswith("FROM")) :]
    assert [each for each in final if each.startswith("USER")] == ["USER 10001:10001"]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            for name in line.split()[1:-1]:
                assert (ROOT / name).exists()
                assert f"!{name}" in ignored
    assert {each["securityContext"]["runAsUser"] for _, each in pods(rendered({}))} == {10001}
