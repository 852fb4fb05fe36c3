"""What an offline query that runs as a job is asked, as it is kept until the job ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from umbel.catalog.vault import Vault
from umbel.connectors.buckets import Reveal
from umbel.connectors.formats import CSV
from umbel.connectors.s3 import S3, S3Connector
from umbel.connectors.secret import Credential, Secret
from umbel.errors import InvalidType, InvalidValue, NotSupported

PARQUET = "parquet"
READABLE = ("json", PARQUET)


@dataclass(frozen=True, slots=True)
class Asked:
    """An offline query.

    Args:
        inputs: names of the features given.
        outputs: names of the features and featuresets wanted.
        timestamp: the column of the instants.
        columns: for each input the column that holds it.
        workflow: what it is for.
        revision: the definitions it was planned on.
        owners: which operator answers for each dataset it looks up.
        source: where its input is, as JSON; None where the rows came along.
        files: the objects to read: key and size.
        target: where its answer goes, as JSON; None for umbel's own folder.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    timestamp: str
    columns: Mapping[str, str]
    workflow: str
    revision: int
    owners: Mapping[str, str]
    source: Mapping[str, Any] | None = None
    files: tuple[tuple[str, int], ...] = ()
    target: Mapping[str, Any] | None = field(default=None)

    def encode(self) -> bytes:
        """Return it as JSON."""
        return orjson.dumps({name: getattr(self, name) for name in self.__slots__})

    @staticmethod
    def decode(data: bytes) -> Asked:
        """Return what `encode` wrote."""
        found = orjson.loads(data)
        for name in ("inputs", "outputs"):
            found[name] = tuple(found[name])
        found["files"] = tuple((path, size) for path, size in found["files"])
        return Asked(**found)


def connector_of(stated: Any, what: str) -> S3Connector:
    """Return the connector that a client described.

    Args:
        stated: JSON: `bucket`, `prefix` or `path`, `format`, and in `source` the name and the credentials.
        what: what it is, for messages.

    Raises:
        UmbelError: it is none.
    """
    if not isinstance(stated, Mapping):
        raise InvalidType(f"'{what}' must be an object, found {stated!r:.80}", hint='{"bucket": …, "prefix": …}')
    kind = stated.get("type", S3Connector.__name__)
    if kind != S3Connector.__name__:
        raise NotSupported(f"'{what}' must be a place on S3, found a {kind!s:.80}", hint="S3(...).bucket(...)")
    bucket, source = stated.get("bucket"), _source(stated.get("source") or {}, what)
    if not isinstance(bucket, str):
        raise InvalidValue(f"'{what}' lacks its 'bucket'", hint='{"bucket": …, "prefix": …}')
    form = _format(stated.get("format", PARQUET), what)
    if stated.get("path") is not None:
        return source.bucket(bucket, path=_text(stated, "path", what), format=form)
    declared = source.bucket(bucket, prefix=_text(stated, "prefix", what), format=form)
    if stated.get("suffix") is None:
        return declared
    path = f"{declared.prefix.rstrip('/')}/{_text(stated, 'suffix', what)}".strip("/")
    return source.bucket(bucket, path=path, format=form) if stated["suffix"] else _exact(declared)


def _exact(declared: S3Connector) -> S3Connector:
    assert isinstance(declared.source, S3)
    return declared.source.bucket(declared.bucket, path=declared.prefix, format=declared.format)


def _source(stated: Any, what: str) -> S3:
    if not isinstance(stated, Mapping):
        raise InvalidType(f"'{what}': 'source' must be an object, found {stated!r:.80}", hint='{"name": …}')
    names = ("aws_access_key_id", "aws_secret_access_key")
    keys = {name: _credential(stated.get(name), what) for name in names}
    return S3(name=str(stated.get("name") or what), role_arn=stated.get("role_arn"), **keys)


def _credential(stated: Any, what: str) -> Credential | None:
    if stated is None or isinstance(stated, str):
        return stated
    if not isinstance(stated, Mapping) or "arn" not in stated:
        raise InvalidType(f"'{what}': a credential must be text or a secret", hint='{"arn": …}')
    return Secret(**{name: stated[name] for name in ("arn", "role_arn", "path") if stated.get(name) is not None})


def _format(stated: Any, what: str) -> str | CSV:
    if isinstance(stated, Mapping):
        return CSV(**{name: stated[name] for name in ("delimiter", "headers") if stated.get(name) is not None})
    if stated not in READABLE:
        known = ", ".join(map(repr, READABLE))
        raise NotSupported(
            f"'{what}': files of format {stated!r:.80} cannot be read or written by an offline query",
            hint=f"{known}, or CSV: {{'delimiter': ','}}",
        )
    return str(stated)


def _text(stated: Mapping[str, Any], name: str, what: str) -> str:
    found = stated.get(name)
    if not isinstance(found, str):
        raise InvalidType(f"'{what}': '{name}' must be text, found {found!r:.80}", hint='{"bucket": …, "prefix": …}')
    return found


def revealed(vault: Vault) -> Reveal:
    """Return what turns credentials into text: a `Secret` is what the server keeps under the secret's arn."""

    def reveal(credential: Credential) -> str:
        if isinstance(credential, str):
            return credential
        value: Any = vault.get(credential.arn)
        for part in credential.path or ():
            value = _member(value, part, credential.arn)
        return str(value)

    return reveal


def _member(value: Any, name: str, arn: str) -> Any:
    try:
        found = orjson.loads(value) if isinstance(value, str) else value
        return found[name]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise InvalidValue(f"secret '{arn}' has no member '{name}'", hint="it must be JSON that has it") from None
