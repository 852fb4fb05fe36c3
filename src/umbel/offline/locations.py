"""Output locations and working folders of offline queries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from umbel.connectors.buckets import Bucket, FolderBucket, bucket_of
from umbel.connectors.s3 import S3Connector
from umbel.errors import InvalidValue
from umbel.formats.declarations import CSV
from umbel.offline.outputs import Output
from umbel.offline.request import PARQUET, OfflineRequest, connector_of, revealed
from umbel.runtime.deployment import Deployment

OFFLINE, ANSWERS, WORK = "offline", "answers", "work"
"""Folders: of offline queries, in umbel's folder; in it, of answers without an output bucket, and of temporary files."""


def work_folder(deployment: Deployment, request: str) -> Path:
    """Return the folder of a job's temporary files."""
    return deployment.directory / OFFLINE / WORK / request


@contextmanager
def own_folder(deployment: Deployment, request: str) -> Iterator[Path]:
    """Make a folder of a job's temporary files for the length of a block.

    Two tasks that answer the same part share none.
    """
    folder = work_folder(deployment, request) / uuid4().hex
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def target_of(requested_target: object) -> S3Connector:
    """Return the connector of an output.

    Raises:
        InvalidValue: its path has wildcards or dates.
    """
    found = connector_of(requested_target, "output")
    if found.suffix:
        raise InvalidValue(
            f"'output': the path of an answer has no wildcards or dates, found '{found.suffix}'", hint='prefix="folder"'
        )
    return found


def prefix_of(target: S3Connector | None, request: str) -> str:
    """Return the key prefix of all objects of a request."""
    folder = "" if target is None else target.prefix.strip("/")
    return f"{folder}/{request}/" if folder else f"{request}/"


def bucket_name(deployment: Deployment, target: S3Connector | None) -> str:
    """Return the bucket name of an output, as reported to clients.

    It is the URL of a folder if the client named no bucket.
    """
    return (deployment.directory / OFFLINE / ANSWERS).as_uri() if target is None else target.bucket


def bucket_for(deployment: Deployment, target: S3Connector | None) -> Bucket:
    """Return the bucket of an output."""
    if target is not None:
        return bucket_of(target, revealed(deployment.vault))
    folder = deployment.directory / OFFLINE
    (folder / ANSWERS).mkdir(parents=True, exist_ok=True)
    return FolderBucket(folder, ANSWERS, f"the folder {folder / ANSWERS}")


def form_of(target: S3Connector | None) -> str | CSV:
    """Return the format of an output."""
    return PARQUET if target is None else target.format


def output_of(deployment: Deployment, prefix: str, request: OfflineRequest) -> Output:
    """Return the output of a job."""
    target = None if request.target is None else target_of(request.target)
    return Output(bucket_for(deployment, target), prefix, form_of(target))
