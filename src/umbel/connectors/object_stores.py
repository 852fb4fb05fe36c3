"""Connections to buckets, by the credentials of their sources.

As offline queries (`umbel.connectors.buckets`), sources find buckets as folders of a local folder with `UMBEL_BUCKETS=file:///folder`,
and S3 at `AWS_ENDPOINT_URL` if that is set.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any, TypeAlias

from umbel.connectors.buckets import ENDPOINTS, LOCATION, REGION, REGIONS, check_name, folder_of
from umbel.connectors.credentials import check_credential, resolved
from umbel.connectors.gcs import GCS
from umbel.connectors.objects import CLIENT, RETRIES, import_store
from umbel.connectors.roles import assumed, sts
from umbel.connectors.s3 import S3
from umbel.errors import InvalidValue

Keys: TypeAlias = tuple[str, str, str | None]


def s3_bucket(source: S3, bucket: str) -> Any:
    """Return a bucket of S3, or the folder in its place.

    Raises:
        InvalidValue: half of a key is given, or the name is not one of a bucket.
        Transient: a secret does not exist.
    """
    import_store()
    check_name(bucket, f"S3 '{source.name}', bucket '{bucket}'")
    if location := os.environ.get(LOCATION):
        return _folder(str(folder_of(location) / bucket))
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None)
    region = next((os.environ[name] for name in REGIONS if os.environ.get(name)), REGION)
    return _on_s3(bucket, endpoint, region, keys_of(source))


def keys_of(source: S3) -> Keys | None:
    """Return key, secret and session token; None for the worker's own credentials.

    Raises:
        InvalidValue: the source's role may not be assumed.
    """
    key, secret = source.aws_access_key_id, source.aws_secret_access_key
    own = None if key is None or secret is None else (resolved(key), resolved(secret), None)
    if not source.role_arn:
        return own
    found = assumed(f"S3 '{source.name}'", source.role_arn, *(own or (None, None))[:2])
    return found.key, found.secret, found.token


def check_s3(source: S3) -> None:
    """Refuse credentials that cannot be used.

    Raises:
        InvalidValue: half of a key is given.
        NotSupported: they are in another place than can be read.
        PackageError: they are of a role, and the package that assumes roles is not installed.
    """
    key, secret = source.aws_access_key_id, source.aws_secret_access_key
    if (key is None) != (secret is None):
        raise InvalidValue(
            f"{type(source).__name__} '{source.name}': aws_access_key_id and aws_secret_access_key go together",
            hint="give both; or neither, and the worker's own credentials are used",
        )
    for each in (key, secret):
        check_credential(each, f"S3 '{source.name}'")
    if source.role_arn:
        sts()


@lru_cache(maxsize=64)
def _on_s3(bucket: str, endpoint: str | None, region: str, keys: Keys | None) -> Any:
    from obstore.store import S3Store

    config: dict[str, Any] = {"region": region}
    if endpoint is not None:
        config["endpoint"] = endpoint
    if keys is not None:
        names = ("access_key_id", "secret_access_key", "session_token")
        config |= {name: value for name, value in zip(names, keys, strict=True) if value is not None}
    client: Any = {**CLIENT, "allow_http": endpoint is not None and endpoint.startswith("http:")}
    return S3Store(bucket, config=config, client_options=client, retry_config=RETRIES)


def gcs_bucket(source: GCS, bucket: str) -> Any:
    """Return a bucket of Google's, or the folder in its place.

    Raises:
        InvalidValue: the key is none of a service account, or the name is not one of a bucket.
        Transient: a secret does not exist.
    """
    import_store()
    from obstore.exceptions import BaseError

    check_name(bucket, f"GCS '{source.name}', bucket '{bucket}'")
    if location := os.environ.get(LOCATION):
        return _folder(str(folder_of(location) / bucket))
    key = source.service_account_key
    try:
        return _on_gcs(bucket, None if key is None else resolved(key))
    except BaseError:  # whose text has parts of the key
        what = "the worker's own credentials are none" if key is None else "its service_account_key is no key"
        raise InvalidValue(
            f"GCS '{source.name}': {what} of a service account",
            hint="the JSON that Google Cloud gives for a key of a service account, as it is",
        ) from None


@lru_cache(maxsize=64)
def _on_gcs(bucket: str, key: str | None) -> Any:
    from obstore.store import GCSStore

    config: Any = {} if key is None else {"service_account_key": key}
    address = _address(key)
    client: Any = {**CLIENT, "allow_http": address.startswith("http:")}
    return GCSStore(bucket, config=config, client_options=client, retry_config=RETRIES)


def _address(key: str | None) -> str:
    """Return the address of another server than Google's that a key may have."""
    try:
        return str(json.loads(key or "{}").get("gcs_base_url", ""))
    except (ValueError, AttributeError):
        return ""  # the client refuses the key


@lru_cache(maxsize=64)
def _folder(path: str) -> Any:
    from obstore.store import LocalStore

    return LocalStore(path)
