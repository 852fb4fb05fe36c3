"""Credentials of connectors, resolved when they are used."""

from __future__ import annotations

import json
from typing import Protocol

from umbel.definitions.secret import Credential, Secret
from umbel.errors import NotSupported, Transient, UnknownName


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
    """Refuse a secret that cannot be resolved by this version.

    Raises:
        NotSupported: it is in AWS Secrets Manager.
    """
    if isinstance(credential, Secret) and credential.arn.startswith("arn:"):
        raise NotSupported(
            f"{subject}: secrets in AWS Secrets Manager cannot be read yet: {credential.arn}",
            hint='client.add_secret("name", "value"), and Secret(arn="name") here',
        )


def resolved(credential: Credential) -> str:
    """Return the value of a credential.

    Args:
        credential: the value itself, or the name of a secret of the deployment, with a path into its JSON.

    Raises:
        Transient: there is no such secret yet, or it has no such part.
    """
    if isinstance(credential, str):
        return credential
    check_credential(credential, "credential")
    if not _vaults:
        raise Transient(f"secret '{credential.arn}' cannot be read: this process has no secrets")
    try:
        text = _vaults[0].get(credential.arn)
    except UnknownName as error:
        raise Transient(error.message, hint=f'client.add_secret("{credential.arn}", "...")') from error
    return _part(credential, text) if credential.path else text


def _part(secret: Secret, text: str) -> str:
    try:
        value = json.loads(text)
        for key in secret.path or ():
            value = value[key]
    except (ValueError, KeyError, TypeError):
        where = "".join(f"[{key!r}]" for key in secret.path or ())
        raise Transient(f"secret '{secret.arn}' has no part {where}", hint="its value must be a JSON object") from None
    return value if isinstance(value, str) else json.dumps(value)
