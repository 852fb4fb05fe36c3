"""The store in a bucket on S3 or S3-compatible storage: `s3://bucket/prefix`.

Any number of processes on any number of machines read and write; the bucket has to refuse a put where the name is taken
(`If-None-Match: *`).
"""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.errors import InvalidValue, did_you_mean
from umbel.state.durable import DurableStore, flush_bytes, positive
from umbel.state.runs.shard import ShardOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from obstore.store import ObjectStore

SETTINGS = frozenset({"flush_bytes", "cache", "cache_bytes"})
CACHE_BYTES = 10 << 30
"""Bytes of runs in the cache of a machine, unless a setting says otherwise."""
CACHE = "UMBEL_STATE_CACHE"
"""The variable with the folder of the cache, on every machine."""


class BucketStore(DurableStore):
    """Keyed state in a bucket.

    Args:
        bucket: its name.
        prefix: of the store, empty for the whole bucket.
        shards: number of shards; must equal the number the store was created with.
        cache: the folder of this machine where runs are kept.
        cache_bytes: the limit of that.
        options: sizes of the parts of a shard.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        shards: int,
        *,
        cache: Path,
        cache_bytes: int = CACHE_BYTES,
        options: ShardOptions | None = None,
    ) -> None:
        from umbel.state.runs.cache import RunCache
        from umbel.state.runs.object_files import ObjectClient, ObjectFiles

        title = f"s3://{bucket}" + f"/{prefix}" * bool(prefix)
        self.location = f"{bucket}/{prefix}".rstrip("/")
        """Bucket and prefix."""
        client, runs = ObjectClient(title, partial(_connected, bucket, prefix)), RunCache(cache, cache_bytes)
        super().__init__(lambda folder: ObjectFiles(client, folder, runs), shards, options)


def _connected(bucket: str, prefix: str) -> ObjectStore:
    """Return a client with location and credentials from the environment, as AWS's own tools do."""
    from obstore.store import S3Store

    return S3Store(
        bucket,
        prefix=prefix or None,
        client_options={"allow_http": True, "timeout": "30s", "connect_timeout": "5s"},
        retry_config={"max_retries": 6, "retry_timeout": timedelta(seconds=30)},
    )


def open_url(url: SplitResult, shards: int, settings: Mapping[str, str]) -> BucketStore:
    """Open `s3://bucket/prefix?flush_bytes=<bytes>&cache=<folder>&cache_bytes=<bytes>`.

    Args:
        url: the parts of the URL.
        shards: number of shards.
        settings: the URL's query parameters.

    Raises:
        InvalidValue: bucket or settings do not fit, or the package for buckets is not installed.
    """
    name, prefix = url.netloc, url.path.strip("/")
    shown = f"s3://{name}/{prefix}"
    if not name or "@" in name:
        hint = "s3://bucket/prefix; credentials come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"
        raise InvalidValue("s3:// needs the name of a bucket and nothing else before the path", hint=hint)
    check_prefix(shown, prefix)
    for setting in settings.keys() - SETTINGS:
        raise InvalidValue(f"{shown}: unknown setting '{setting}'{did_you_mean(setting, SETTINGS)}")
    try:
        import obstore  # noqa: F401
    except ModuleNotFoundError as error:
        hint = "pip install 'umbel[s3]'"
        raise InvalidValue(
            f"{shown}: the package 'obstore', which reads buckets, is not installed", hint=hint
        ) from error
    options = ShardOptions(flush_bytes=flush_bytes(shown, settings))
    cache_bytes = positive(shown, settings, "cache_bytes", CACHE_BYTES)
    cache = Path(settings["cache"]) if "cache" in settings else _cache_folder(shown)
    return BucketStore(name, prefix, shards, cache=cache, cache_bytes=cache_bytes, options=options)


def check_prefix(url: str, prefix: str) -> None:
    """Refuse a prefix whose objects storages and clients name in different ways.

    Args:
        url: for the message.
        prefix: without slashes at its ends.

    Raises:
        InvalidValue: it is one.
    """
    if not prefix.isprintable() or (prefix and {"", ".", ".."}.intersection(prefix.split("/"))):
        raise InvalidValue(
            f"{url!r} is no place in a bucket: a part of the path is empty, '.' or '..', or has a control character",
            hint="s3://bucket/folder/folder",
        )


def _cache_folder(url: str) -> Path:
    """Return the folder of this machine for the runs of a store."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "umbel" / "state"
    return Path(os.environ.get(CACHE) or base) / hashlib.sha256(url.encode()).hexdigest()[:16]
