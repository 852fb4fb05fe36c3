"""Strict checks of objects by the schemas of Kubernetes' own client and of KEDA."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import jsonschema_rs
import yaml

from tests.servers.golang import module

CLIENT = "k8s.io/client-go@v0.37.0"
KEDA = "github.com/kedacore/keda/v2@v2.17.2"
GROUPS = {
    "": "core",
    "apps": "apps",
    "autoscaling": "autoscaling",
    "networking.k8s.io": "networking",
    "policy": "policy",
}


@cache
def types() -> dict[str, Any]:
    """Return the types of Kubernetes by their names, as its client knows them."""
    text = (module(CLIENT) / "applyconfigurations/internal/internal.go").read_text(encoding="utf-8")
    found = re.search(r"YAMLObject\(`(.*?)`\)", text, re.DOTALL)
    assert found is not None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {each["name"]: each for each in yaml.load(found[1], loader)["types"]}


@cache
def scaled_object() -> Any:
    """Return the validator of KEDA's ScaledObject, by its CRD."""
    path = module(KEDA) / "config/crd/bases/keda.sh_scaledobjects.yaml"
    (version,) = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["versions"]
    return jsonschema_rs.validator_for(_strict(version["schema"]["openAPIV3Schema"]))


def _strict(schema: Any) -> Any:
    """Return a schema that admits no other properties; Kubernetes drops them silently."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _strict(each) for name, each in schema.items()}
    if "properties" in found and isinstance(schema.get("type"), str) and "additionalProperties" not in found:
        found["additionalProperties"] = False
    return found


def problems(found: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an object."""
    if found["apiVersion"].startswith("keda.sh/"):
        outline = {**found, "metadata": {}}
        return [f"{each.instance_path} {each.message}" for each in scaled_object().iter_errors(outline)]
    group, _, version = found["apiVersion"].rpartition("/")
    name = f"io.k8s.api.{GROUPS[group]}.{version}.{found['kind']}"
    return list(_problems(found, {"namedType": name}, found["kind"]))


def _problems(value: Any, declared: Mapping[str, Any], path: str) -> Iterator[str]:
    if "namedType" in declared:
        if declared["namedType"] not in types():
            yield f"{path}: there is no type {declared['namedType']}"
            return
        declared = types()[declared["namedType"]]
    if value is None:
        yield f"{path}: it is empty"
    elif "scalar" in declared:
        kinds = {"string": str, "numeric": (int, float), "boolean": bool, "untyped": object}
        expected: Any = kinds[declared["scalar"]]
        if not isinstance(value, expected) or (declared["scalar"] == "numeric" and isinstance(value, bool)):
            yield f"{path}: expected {declared['scalar']}, found {value!r}"
    elif "list" in declared:
        if not isinstance(value, list):
            yield f"{path}: expected a list"
            return
        for number, each in enumerate(value):
            yield from _problems(each, declared["list"]["elementType"], f"{path}[{number}]")
    else:
        yield from _of_map(value, declared["map"], path)


def _of_map(value: Any, declared: Mapping[str, Any], path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected an object, found {value!r}"
        return
    fields = {each["name"]: each["type"] for each in declared.get("fields", ())}
    for name, each in value.items():
        kind = fields.get(name, declared.get("elementType"))
        if kind is None:
            yield f"{path}: it has no field '{name}'"
        else:
            yield from _problems(each, kind, f"{path}.{name}")
