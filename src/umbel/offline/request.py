"""The request of an offline query job, as stored in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from umbel.catalog.vault import Vault
from umbel.connectors.buckets import Reveal
from umbel.connectors.s3 import S3, S3Connector
from umbel.definitions.secret import Credential, Secret
from umbel.errors import InvalidType, InvalidValue, NotSupported
from umbel.formats.declarations import CSV
from umbel.state.passwords import remember

PARQUET = "parquet"
READABLE = ("json", PARQUET)
SOURCE_MEMBERS = frozenset(each.name for each in fields(S3))
SECRET_MEMBERS = frozenset(each.name for each in fields(Secret))
CSV_MEMBERS = frozenset(each.name for each in fields(CSV))
PLACE_MEMBERS = frozenset(each.name for each in fields(S3Connector)) | {"type", "path"}

ENDPOINT = "an endpoint other than that of AWS is set where the server runs: AWS_ENDPOINT_URL"
DEEPEST = 5
"""Levels of lists and objects in the description of a place, at most; the path of a key's secret is the deepest there is."""


@dataclass(frozen=True, slots=True)
class OfflineRequest:
    """An offline query.

    Args:
        inputs: names of the provided features.
        outputs: names of the requested features and featuresets.
        timestamp: the column of the instants.
        columns: for each input its column in the files.
        workflow: for metrics and the feature log.
        revision: the definitions it was planned on.
        state_ids: the state id of each dataset it looks up.
        source: the input's connector, as JSON; None if the rows were sent with the request.
        files: the objects to read: key, size and time of writing; none of a job of an older version.
        target: the output's connector, as JSON; None for umbel's own folder.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    timestamp: str
    columns: Mapping[str, str]
    workflow: str
    revision: int
    state_ids: Mapping[str, str]
    source: Mapping[str, Any] | None = None
    files: tuple[tuple[str, int, int], ...] = ()
    target: Mapping[str, Any] | None = field(default=None)

    def encode(self) -> bytes:
        """Encode it as JSON."""
        return orjson.dumps({name: getattr(self, name) for name in self.__slots__})

    @staticmethod
    def decode(data: bytes) -> OfflineRequest:
        """Decode the bytes written by `encode`."""
        found = orjson.loads(data)
        for name in ("inputs", "outputs"):
            found[name] = tuple(found[name])
        found["files"] = tuple((*each, 0)[:3] for each in found["files"])
        return OfflineRequest(**found)


def connector_of(spec: Any, what: str) -> S3Connector:
    """Return the connector described by a client.

    Args:
        spec: JSON: `bucket`, `prefix` or `path`, `format`, and in `source` the name and the credentials.
        what: its role, for messages.

    Raises:
        UmbelError: it describes no valid connector.
    """
    if _is_deeper(spec, DEEPEST):
        raise InvalidValue(f"'{what}' is nested too deeply", hint='{"bucket": …, "prefix": …}')
    if not isinstance(spec, Mapping):
        raise InvalidType(f"'{what}' must be an object, found {spec!r:.80}", hint='{"bucket": …, "prefix": …}')
    _check_members(spec, PLACE_MEMBERS, what)
    kind = spec.get("type", S3Connector.__name__)
    if kind != S3Connector.__name__:
        raise NotSupported(f"'{what}' must be a place on S3, found a {kind!s:.80}", hint="S3(...).bucket(...)")
    bucket, source = spec.get("bucket"), _source(spec.get("source") or {}, what)
    if not isinstance(bucket, str):
        raise InvalidValue(f"'{what}' lacks its 'bucket'", hint='{"bucket": …, "prefix": …}')
    form = _format(spec.get("format", PARQUET), what)
    if spec.get("path") is not None:
        _refuse_beside_path(spec, what)
        return source.bucket(bucket, path=_text(spec, "path", what), format=form)
    declared = source.bucket(bucket, prefix=_text(spec, "prefix", what), format=form)
    if spec.get("suffix") is None:
        return declared
    path = f"{declared.prefix.rstrip('/')}/{_text(spec, 'suffix', what)}".strip("/")
    return source.bucket(bucket, path=path, format=form) if spec["suffix"] else _exact(declared)


def _is_deeper(value: Any, levels: int) -> bool:
    """Return True if a value is nested in more levels."""
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return levels < 0 or any(_is_deeper(each, levels - 1) for each in members)


def _refuse_beside_path(spec: Mapping[str, Any], what: str) -> None:
    twice = next((name for name in ("prefix", "suffix") if spec.get(name) is not None), None)
    if twice is not None:
        raise InvalidValue(
            f"'{what}' has both 'path' and {twice!r}: one of them says where the files are",
            hint='{"bucket": …, "path": "folder/%Y/*"}, or {"bucket": …, "prefix": "folder/"}',
        )


def _exact(declared: S3Connector) -> S3Connector:
    assert isinstance(declared.source, S3)
    return declared.source.bucket(declared.bucket, path=declared.prefix, format=declared.format)


def _source(spec: Any, what: str) -> S3:
    if not isinstance(spec, Mapping):
        raise InvalidType(f"'{what}': 'source' must be an object, found {spec!r:.80}", hint='{"name": …}')
    _check_members(spec, SOURCE_MEMBERS, f"{what}.source")
    role = None if spec.get("role_arn") is None else _text(spec, "role_arn", what)
    names = ("aws_access_key_id", "aws_secret_access_key")
    keys = {name: _credential(spec.get(name), what) for name in names}
    return S3(name=str(spec.get("name") or what), role_arn=role, **keys)


def _credential(spec: Any, what: str) -> Credential | None:
    if spec is None or isinstance(spec, str):
        return spec
    if not isinstance(spec, Mapping) or "arn" not in spec:
        raise InvalidType(f"'{what}': a credential must be text or a secret", hint='{"arn": …}')
    _check_members(spec, SECRET_MEMBERS, f"{what}.source", hint='{"arn": …}')
    path = spec.get("path")
    if not isinstance(path, list | tuple | None) or not all(isinstance(each, str) for each in path or ()):
        raise InvalidType(f"'{what}': the path of a secret is a list of texts, found {path!r:.80}", hint='["key"]')
    role = None if spec.get("role_arn") is None else _text(spec, "role_arn", what)
    return Secret(arn=_text(spec, "arn", what), role_arn=role, path=path)


def _check_members(spec: Mapping[str, Any], known: frozenset[str], what: str, hint: str = ENDPOINT) -> None:
    """Refuse unknown members instead of ignoring them.

    The storage endpoint, for one, is configured by the operator of umbel and not by clients.
    """
    strange = sorted(str(name) for name in spec.keys() - known)
    if strange:
        raise InvalidValue(
            f"'{what}' cannot have {strange[0]!r:.80}; it has {', '.join(sorted(known))}",
            hint=hint,
        )


def _format(spec: Any, what: str) -> str | CSV:
    if isinstance(spec, Mapping):
        _check_members(spec, CSV_MEMBERS, f"{what}.format", hint='{"delimiter": ",", "headers": ["a", "b"]}')
        return CSV(**{name: spec[name] for name in CSV_MEMBERS if spec.get(name) is not None})
    if spec not in READABLE:
        known = ", ".join(map(repr, READABLE))
        raise NotSupported(
            f"'{what}': files of format {spec!r:.80} cannot be read or written by an offline query",
            hint=f"{known}, or CSV: {{'delimiter': ','}}",
        )
    return str(spec)


def _text(spec: Mapping[str, Any], name: str, what: str) -> str:
    found = spec.get(name)
    if not isinstance(found, str):
        raise InvalidType(f"'{what}': '{name}' must be text, found {found!r:.80}", hint='{"bucket": …, "prefix": …}')
    return found


def revealed(vault: Vault) -> Reveal:
    """Return a function that resolves credentials: text, or a `Secret` by its arn."""

    def reveal(credential: Credential) -> str:
        if isinstance(credential, str):
            return credential
        value: Any = vault.get(credential.arn)
        for part in credential.path or ():
            value = _member(value, part, credential.arn)
        remember(str(value))  # for redaction: messages of the storage may contain it
        return str(value)

    return reveal


def _member(value: Any, name: str, arn: str) -> Any:
    try:
        found = orjson.loads(value) if isinstance(value, str) else value
        return found[name]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise InvalidValue(f"secret '{arn}' has no member '{name}'", hint="it must be JSON that has it") from None
