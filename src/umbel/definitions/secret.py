"""References to credentials stored in a secret manager."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from umbel.definitions.arguments import Declared


@dataclass(frozen=True, kw_only=True)
class Secret(Declared):
    """A secret, or a part of one: `secret["key"]["sub"]`. It is resolved when it is used.

    Args:
        arn: of a secret in AWS Secrets Manager; the name of a secret of the deployment; `env:NAME`, a variable of the
            environment of the server and each worker; or `file:/path`, a file of theirs.
        role_arn: of the role that may read it in AWS.
        path: the keys of the nested part, outermost first.
    """

    hides_values: ClassVar[bool] = True

    arn: str
    role_arn: str | None = None
    path: list[str] | tuple[str, ...] | None = None

    def __getitem__(self, key: str) -> Secret:
        return replace(self, path=(*(self.path or ()), key))


Credential = str | Secret
