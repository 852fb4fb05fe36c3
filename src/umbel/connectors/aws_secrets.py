"""Secrets in AWS Secrets Manager, read with the process's credentials or a role."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from umbel.connectors.roles import PATIENCE, assumed
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, PackageError, Transient

ARN = re.compile(r"arn:aws[\w-]*:secretsmanager:([a-z0-9-]+):\d{12}:secret:[\w/+=.@-]+")
RETAINED_FOR = 60.0
"""Seconds for which a value is not asked for again: sources connect often."""
_REMEDIES = {
    "AccessDeniedException": "allow secretsmanager:GetSecretValue on it, and kms:Decrypt on its key, to the worker or the role",
    "DecryptionFailure": "allow kms:Decrypt on its key, to the worker or the role",
    "ResourceNotFoundException": "correct the ARN, or create the secret in that region",
    "InvalidRequestException": "it may be marked for deletion: restore it",
    "UnrecognizedClientException": "correct the worker's credentials of AWS",
    "InvalidSignatureException": "correct the worker's credentials of AWS",
    "ExpiredTokenException": "renew the worker's credentials of AWS",
}
_VALUES: dict[tuple[str, str | None], tuple[float, str]] = {}
_GUARD = threading.Lock()


def check_arn(secret: Secret, subject: str) -> None:
    """Refuse an ARN that is of no secret.

    Raises:
        InvalidValue: it is another ARN.
        PackageError: boto3 is not installed.
    """
    if not ARN.fullmatch(secret.arn):
        raise InvalidValue(
            f"{subject}: {secret.arn} is no ARN of a secret in AWS Secrets Manager",
            hint="arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-abcdef",
        )
    try:
        import boto3  # noqa: F401
    except ImportError as error:
        raise PackageError(
            f"{subject}: secrets in AWS need the package boto3", hint="pip install 'umbel[aws]'"
        ) from error


def aws_secret(secret: Secret) -> str:
    """Return the value of a secret, up to a minute old.

    Raises:
        Transient: it cannot be read now.
    """
    with _GUARD:
        key, now = (secret.arn, secret.role_arn), time.monotonic()
        found = _VALUES.get(key)
        if found is None or now - found[0] > RETAINED_FOR:
            found = _VALUES[key] = (now, _requested(secret))
        return found[1]


def _requested(secret: Secret) -> str:
    check_arn(secret, "credential")
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    region, keys = secret.arn.split(":")[3], dict[str, Any]()
    if secret.role_arn is not None:
        role = assumed(f"secret {secret.arn}", secret.role_arn, None, None)
        keys = {"aws_access_key_id": role.key, "aws_secret_access_key": role.secret, "aws_session_token": role.token}
    patience = Config(connect_timeout=PATIENCE, read_timeout=PATIENCE, retries={"total_max_attempts": 3})
    try:
        client = boto3.session.Session(**keys).client("secretsmanager", region_name=region, config=patience)
        answer = client.get_secret_value(SecretId=secret.arn)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        raise Transient(f"secret {secret.arn} cannot be read: {code}", hint=_REMEDIES.get(code)) from None
    except NoCredentialsError:
        raise Transient(
            f"secret {secret.arn} cannot be read: this process has no credentials of AWS",
            hint="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the machine",
        ) from None
    except BotoCoreError as error:
        reason = type(error).__name__
        raise Transient(
            f"secret {secret.arn} cannot be read: {reason}", hint="see that Secrets Manager can be reached"
        ) from None
    text = answer.get("SecretString")
    return str(text) if text is not None else answer["SecretBinary"].decode(errors="replace")
