"""Credentials of connectors, resolved when they are used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from umbel.connectors.aws_secrets import aws_secret, check_arn
from umbel.definitions.secret import Credential, Secret
from umbel.errors import InvalidValue, Transient, UnknownName
from umbel.state.passwords import remember_secret


class SecretVault(Protocol):
    """A store of secrets."""

    def get(self, name: str) -> str:
        """Return a secret, or raise UnknownName."""


_vaults: list[SecretVault] = []
"""The secrets of this process's deployment."""


def provide_vault(vault: SecretVault) -> None:
    """Make this process resolve secrets from `vault`."""
    _vaults[:] = [vault]


def check_credential(credential: Credential | None, subject: str) -> None:
    """Refuse a secret that no provider can resolve.

    Raises:
        InvalidValue: its ARN or its role cannot be one.
        PackageError: it is in AWS, and boto3 is not installed.
    """
    if not isinstance(credential, Secret):
        return
    if credential.arn.startswith(_AWS):
        check_arn(credential, subject)
    elif credential.role_arn is not None:
        raise InvalidValue(
            f"{subject}: secret '{credential.arn}' is not in AWS, and has role_arn=", hint="leave role_arn= out"
        )


def resolved(credential: Credential) -> str:
    """Return the value of a credential.

    Args:
        credential: the value itself, or a secret: `Secret(arn="name")` of the deployment, `"env:NAME"` of the process's
            environment, `"file:/path"`, or an ARN of AWS Secrets Manager; with a path into its JSON.

    Raises:
        Transient: there is no such secret yet, or it has no such part.
    """
    if isinstance(credential, str):
        return credential
    check_credential(credential, "credential")
    kind, separator, rest = credential.arn.partition(":")
    provider = _PROVIDERS.get(kind) if separator else None
    text = provider(rest) if provider else _other(credential)
    found = _part(credential, text) if credential.path else text
    remember_secret(found)
    return found


def _other(secret: Secret) -> str:
    """Return a secret of AWS or of the deployment."""
    if secret.arn.startswith(_AWS):
        return aws_secret(secret)
    if not _vaults:
        raise Transient(f"secret '{secret.arn}' cannot be read: this process has no secrets")
    try:
        return _vaults[0].get(secret.arn)
    except UnknownName as error:
        raise Transient(
            error.message, hint=f'umbel secret set {secret.arn}, or client.add_secret("{secret.arn}", "...")'
        ) from error


def _from_environment(name: str) -> str:
    if name not in os.environ:
        raise Transient(f"secret 'env:{name}': the environment of this process has no {name}", hint=_EVERYWHERE)
    return os.environ[name]


def _from_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise Transient(f"secret 'file:{path}' cannot be read: {reason}", hint=_EVERYWHERE) from None


_AWS = "arn:"
_EVERYWHERE = "it must be there for the server and for each worker"
_PROVIDERS: Mapping[str, Callable[[str], str]] = {"env": _from_environment, "file": _from_file}


def _part(secret: Secret, text: str) -> str:
    try:
        value = json.loads(text)
        for key in secret.path or ():
            value = value[key]
    except (ValueError, KeyError, TypeError):
        where = "".join(f"[{key!r}]" for key in secret.path or ())
        raise Transient(f"secret '{secret.arn}' has no part {where}", hint="its value must be a JSON object") from None
    return value if isinstance(value, str) else json.dumps(value)
