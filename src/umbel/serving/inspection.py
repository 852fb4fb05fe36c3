"""Routes that show what is there: dead letters, rows, branches, lineage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from umbel.catalog.catalog import DeadLetter
from umbel.client.plain import plain
from umbel.errors import UnknownName, did_you_mean
from umbel.plan.definitions import DatasetDefinition, FeaturesetDefinition
from umbel.plan.expecting import results
from umbel.plan.tags import Tags
from umbel.query.answer import Answer
from umbel.runtime.newest import newest
from umbel.serving.requests import JSON, answer, count
from umbel.serving.service import Service

MOST = 10_000
"""Rows or records in one answer."""


async def dead_letters(request: Request) -> Response:
    """Return the newest refused records of a dataset."""
    service: Service = request.app.state.service
    in_force, name = await service.of(request), request.path_params["name"]
    in_force.engine.dataset(name)
    limit = count(request, "n", 100, MOST)
    letters = await asyncio.to_thread(service.deployment.catalog.dead_letters, in_force.graph.names[name], limit)
    return answer([_letter(each) for each in letters])


async def expectations(request: Request) -> Response:
    """Return what the expectations of a dataset have judged so far."""
    service: Service = request.app.state.service
    in_force, name = await service.of(request), request.path_params["name"]
    definition = in_force.engine.dataset(name)
    counts = await asyncio.to_thread(service.deployment.catalog.counts)
    return answer([plain(each.plain) for each in results(definition, in_force.graph.names[name], counts)])


async def inspect(request: Request) -> Response:
    """Return the newest rows of a dataset; of one whose values depend on the instant, those of now of the newest groups."""
    service: Service = request.app.state.service
    name, limit = request.path_params["name"], count(request, "n", 10, MOST)
    in_force = await service.of(request)
    definition = in_force.engine.dataset(name)

    def run() -> bytes:
        rows = in_force.erased.without(name, newest(service.deployment, in_force.graph, name, limit))
        columns = {field: rows.get_column(field) for field in definition.dtypes}
        return orjson.dumps({"data": Answer(columns, definition.dtypes).to_json()})

    return Response(await service.threads.reading.do(run), media_type=JSON)


async def lineage(request: Request) -> Response:
    """Return what depends on what: objects by name, each with what it reads."""
    in_force = await request.app.state.service.of(request)
    definitions = in_force.definitions
    datasets = {name: {"kind": "dataset", "reads": _reads(each)} for name, each in definitions.datasets.items()}
    features = {name: {"kind": "featureset", "reads": _uses(each)} for name, each in definitions.featuresets.items()}
    return answer({**datasets, **features})


async def xray(request: Request) -> Response:
    """Return properties of datasets and featuresets; of all when none is named."""
    in_force = await request.app.state.service.of(request)
    wanted = request.query_params.getlist("properties")
    definitions, tags = in_force.definitions, Tags(in_force.definitions)
    shown = {
        "datasets": _chosen(request, "datasets", definitions.datasets, partial(_dataset, tags)),
        "featuresets": _chosen(request, "featuresets", definitions.featuresets, partial(_featureset, tags)),
    }
    if not wanted:
        return answer(shown)
    return answer(
        {
            kind: [{name: value for name, value in each.items() if name in {"name", *wanted}} for each in found]
            for kind, found in shown.items()
        }
    )


def _chosen(request: Request, kind: str, known: Mapping[str, Any], show: Any) -> list[dict[str, Any]]:
    names = request.query_params.getlist(kind)
    for name in names:
        if name not in known:
            raise UnknownName(f"{kind[:-1]} '{name}' is not committed{did_you_mean(name, known)}")
    is_asked = names or not {"datasets", "featuresets"} & set(request.query_params)
    return [show(known[name]) for name in names or known] if is_asked else []


def _dataset(tags: Tags, each: DatasetDefinition) -> dict[str, Any]:
    return {
        "name": each.name,
        "version": each.version,
        "owner": each.meta.owner,
        "description": each.meta.description,
        "tags": sorted(tags.dataset(each.name)),
        "keys": each.schema.key_names,
        "timestamp": each.schema.timestamp,
        "fields": {name: str(dtype) for name, dtype in each.dtypes.items()},
        "reads": _reads(each),
        "is_online": each.online,
        "is_offline": each.offline,
    }


def _featureset(tags: Tags, each: FeaturesetDefinition) -> dict[str, Any]:
    return {
        "name": each.name,
        "owner": each.meta.owner,
        "description": each.meta.description,
        "tags": each.meta.tags,
        "features": {feature.name: str(feature.dtype) for feature in each.features},
        "feature_tags": {feature.name: sorted(tags.feature(feature.fqn)) for feature in each.features},
        "reads": _uses(each),
    }


def _reads(dataset: DatasetDefinition) -> list[str]:
    sources = [f"{source.connector.kind}:{source.connector.source_name}" for source in dataset.sources]
    return [*sources, *dataset.inputs]


def _uses(featureset: FeaturesetDefinition) -> list[str]:
    datasets = [name for each in featureset.extractors for name in each.datasets]
    others = [fqn.partition(".")[0] for each in featureset.extractors for fqn in each.inputs]
    return [name for name in dict.fromkeys([*datasets, *others]) if name != featureset.name]


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "position": letter.position,
        "field": letter.field,
        "reason": letter.reason,
        "raw": letter.raw.decode("utf-8", "backslashreplace"),
        "size": letter.size,
        "at": letter.at and letter.at.isoformat(),
    }
