"""Where the answers of offline queries go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from umbel.catalog.offline import OfflineJob
from umbel.connectors.buckets import Bucket, FolderBucket, bucket_of
from umbel.connectors.formats import CSV
from umbel.connectors.s3 import S3Connector
from umbel.errors import InvalidValue
from umbel.runtime.deployment import Deployment
from umbel.runtime.offline.asked import PARQUET, Asked, connector_of, revealed
from umbel.runtime.offline.outputs import Output
from umbel.types.dtype import DType

OFFLINE, ANSWERS, WORK = "offline", "answers", "work"
"""In umbel's folder: what belongs to offline queries; there, answers that have no other place, and files on the way."""


def work_folder(deployment: Deployment, request: str) -> Path:
    """Return the folder for the files that a job has on the way."""
    return deployment.directory / OFFLINE / WORK / request


def own_folder(deployment: Deployment, job: OfflineJob) -> Path:
    """Return the folder for the files of whoever has claimed a job; who was believed dead has another."""
    return work_folder(deployment, job.id) / str(job.epoch)


def target_of(asked_target: object) -> S3Connector:
    """Return the connector of the place for an answer.

    Raises:
        InvalidValue: it is many places.
    """
    found = connector_of(asked_target, "output")
    if found.suffix:
        raise InvalidValue(
            f"'output': the path of an answer has no wildcards or dates, found '{found.suffix}'", hint='prefix="folder"'
        )
    return found


def prefix_of(target: S3Connector | None, request: str) -> str:
    """Return what the keys of all that belongs to a request begin with."""
    folder = "" if target is None else target.prefix.strip("/")
    return f"{folder}/{request}/" if folder else f"{request}/"


def bucket_name(deployment: Deployment, target: S3Connector | None) -> str:
    """Return the bucket of an answer, as it is told; a URL of a folder where nobody named a bucket."""
    return (deployment.directory / OFFLINE / ANSWERS).as_uri() if target is None else target.bucket


def bucket_for(deployment: Deployment, target: S3Connector | None) -> Bucket:
    """Return the bucket of an answer."""
    if target is not None:
        return bucket_of(target, revealed(deployment.vault))
    (deployment.directory / OFFLINE / ANSWERS).mkdir(parents=True, exist_ok=True)
    return FolderBucket(deployment.directory / OFFLINE, ANSWERS, "umbel's own folder")


def form_of(target: S3Connector | None) -> str | CSV:
    """Return the format of an answer."""
    return PARQUET if target is None else target.format


def output_of(
    deployment: Deployment, job: OfflineJob, asked: Asked, types: Mapping[str, DType], folder: Path
) -> Output:
    """Return where the parts of a job go."""
    target = None if asked.target is None else target_of(asked.target)
    return Output(bucket_for(deployment, target), job.prefix, form_of(target), types, folder)
