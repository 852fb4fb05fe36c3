"""Routes for inspection: newest rows, dead letters, expectations and lineage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from umbel.catalog.catalog import DeadLetter
from umbel.client.plain import plain
from umbel.definitions.records import DatasetDefinition, FeaturesetDefinition
from umbel.definitions.tags import Tags
from umbel.errors import UnknownName, did_you_mean
from umbel.query.answer import Answer
from umbel.runtime.newest import newest
from umbel.serving.refusals import JSON
from umbel.serving.requests import REVISION_HEADER, DatasetName, Parameters
from umbel.serving.service import Service

MOST = 10_000
"""Rows or records in one answer."""
Count = Annotated[int, Meta(description="Rows or records in the answer, at most.", ge=0, le=MOST)]
Several = Annotated[list[str], Meta(description="Can be repeated; all when left out.")]


class LetterParameters(Parameters, frozen=True):
    """The number of dead letters."""

    n: Count = 100


class InspectParameters(Parameters, frozen=True):
    """The number of rows."""

    n: Count = 10


class InspectResponse(msgspec.Struct):
    """The columns of the newest rows."""

    data: dict[str, list[Any]]


class DeadLetterReport(msgspec.Struct, frozen=True):
    """A rejected or late record: position, field, reason and content."""

    position: str
    field: str
    reason: str
    raw: str
    size: int
    at: str | None


class ExpectationReport(msgspec.Struct, frozen=True):
    """The cumulative result of an expectation."""

    dataset: str
    expectation: str
    version: int
    arguments: dict[str, Any]
    mostly: float
    rows: int
    failed: int
    unjudged: int
    share: float
    holds: bool


class Dependencies(msgspec.Struct, frozen=True):
    """The inputs of a dataset or featureset, by name."""

    kind: str
    reads: list[str]


class XrayParameters(Parameters, frozen=True):
    """The objects to describe, and the properties to return."""

    datasets: Several
    featuresets: Several
    properties: Several


class DatasetProperties(msgspec.Struct, frozen=True):
    """Properties of a dataset; only the requested ones are there."""

    name: str
    version: int | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    fields: dict[str, str] | UnsetType = UNSET
    reads: list[str] | UnsetType = UNSET
    is_online: bool | UnsetType = UNSET
    is_offline: bool | UnsetType = UNSET


class FeaturesetProperties(msgspec.Struct, frozen=True):
    """Properties of a featureset; only the requested ones are there."""

    name: str
    owner: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    features: dict[str, str] | UnsetType = UNSET
    feature_tags: dict[str, list[str]] | UnsetType = UNSET
    reads: list[str] | UnsetType = UNSET


class XrayResponse(msgspec.Struct, frozen=True):
    """Properties of datasets and featuresets."""

    datasets: list[DatasetProperties]
    featuresets: list[FeaturesetProperties]


Named = TypeVar("Named")
Properties = TypeVar("Properties", DatasetProperties, FeaturesetProperties)


async def dead_letters(request: Request, name: DatasetName, parameters: LetterParameters) -> list[DeadLetterReport]:
    """Return the newest dead letters of a dataset."""
    service: Service = request.app.state.service
    in_force = await service.of(request)
    in_force.dataset(name)
    limit, catalog, names = parameters.n, service.deployment.catalog, in_force.names(name)

    def run() -> list[DeadLetter]:
        found = [letter for each in names for letter in catalog.dead_letters(each, limit)]
        return sorted(found, key=lambda letter: str(letter.at), reverse=True)[:limit] if len(names) > 1 else found

    return [_letter(each) for each in await asyncio.to_thread(run)]


async def expectations(request: Request, name: DatasetName) -> list[ExpectationReport]:
    """Return the results of a dataset's expectations so far."""
    service: Service = request.app.state.service
    in_force = await service.of(request)
    in_force.dataset(name)
    counts = await asyncio.to_thread(service.deployment.catalog.counts)
    return [ExpectationReport(**plain(each.plain)) for each in in_force.expectations(name, counts)]


async def inspect(
    request: Request, name: DatasetName, parameters: InspectParameters
) -> Annotated[Response, InspectResponse]:
    """Return the newest rows of a dataset.

    For a dataset whose values depend on the instant: the values as of now, of the newest groups.
    """
    service: Service = request.app.state.service
    in_force = await service.of(request)
    definition = in_force.dataset(name)

    def run() -> bytes:
        rows = in_force.erased.without(name, newest(service.deployment, in_force.graph, name, parameters.n))
        columns = {field: rows.get_column(field) for field in definition.dtypes}
        return msgspec.json.encode(InspectResponse(Answer(columns, definition.dtypes).to_json()))

    revision = {REVISION_HEADER: str(in_force.revision)}
    return Response(await service.threads.reading.do(run), media_type=JSON, headers=revision)


async def lineage(request: Request) -> dict[str, Dependencies]:
    """Return the dependencies between objects: each by name, with its inputs."""
    in_force = await request.app.state.service.of(request)
    definitions = in_force.definitions
    datasets = {name: Dependencies("dataset", _reads(each)) for name, each in definitions.datasets.items()}
    features = {name: Dependencies("featureset", _uses(each)) for name, each in definitions.featuresets.items()}
    return {**datasets, **features}


_PROPERTIES = {*DatasetProperties.__struct_fields__, *FeaturesetProperties.__struct_fields__}


async def xray(request: Request, parameters: XrayParameters) -> XrayResponse:
    """Return properties of datasets and featuresets; of all when none is named.

    Raises:
        UnknownName: neither has such a property, or no object such a name.
    """
    definitions = (await request.app.state.service.of(request)).definitions
    for name in parameters.properties:
        if name not in _PROPERTIES:
            raise UnknownName(f"no object has a property '{name}'{did_you_mean(name, _PROPERTIES)}")
    tags, is_of_all = Tags(definitions), not (parameters.datasets or parameters.featuresets)
    datasets = _named(parameters.datasets, definitions.datasets, "dataset", is_of_all=is_of_all)
    featuresets = _named(parameters.featuresets, definitions.featuresets, "featureset", is_of_all=is_of_all)
    return XrayResponse(
        [_requested(_dataset(tags, each), parameters.properties) for each in datasets],
        [_requested(_featureset(tags, each), parameters.properties) for each in featuresets],
    )


def _named(names: list[str], known: Mapping[str, Named], kind: str, *, is_of_all: bool) -> list[Named]:
    for name in names:
        if name not in known:
            raise UnknownName(f"{kind} '{name}' is not committed{did_you_mean(name, known)}")
    return list(known.values()) if is_of_all else [known[name] for name in names]


def _requested(found: Properties, names: list[str]) -> Properties:
    """Return an object with the requested properties only, or all if none is requested."""
    if not names:
        return found
    return type(found)(
        **{name: value for name, value in msgspec.structs.asdict(found).items() if name in {"name", *names}}
    )


def _dataset(tags: Tags, each: DatasetDefinition) -> DatasetProperties:
    return DatasetProperties(
        each.name,
        each.version,
        each.meta.owner,
        each.meta.description,
        sorted(tags.dataset(each.name)),
        each.schema.key_names,
        each.schema.timestamp,
        {name: str(dtype) for name, dtype in each.dtypes.items()},
        _reads(each),
        each.online,
        each.offline,
    )


def _featureset(tags: Tags, each: FeaturesetDefinition) -> FeaturesetProperties:
    return FeaturesetProperties(
        each.name,
        each.meta.owner,
        each.meta.description,
        list(each.meta.tags),
        {feature.name: str(feature.dtype) for feature in each.features},
        {feature.name: sorted(tags.feature(feature.fqn)) for feature in each.features},
        _uses(each),
    )


def _reads(dataset: DatasetDefinition) -> list[str]:
    sources = [f"{source.connector.kind}:{source.connector.source_name}" for source in dataset.sources]
    return [*sources, *dataset.inputs]


def _uses(featureset: FeaturesetDefinition) -> list[str]:
    datasets = [name for each in featureset.extractors for name in each.datasets]
    others = [fqn.partition(".")[0] for each in featureset.extractors for fqn in each.inputs]
    return [name for name in dict.fromkeys([*datasets, *others]) if name != featureset.name]


def _letter(letter: DeadLetter) -> DeadLetterReport:
    raw, at = letter.raw.decode("utf-8", "backslashreplace"), letter.at.isoformat() if letter.at else None
    return DeadLetterReport(letter.position, letter.field, letter.reason, raw, letter.size, at)
