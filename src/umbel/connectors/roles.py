"""Roles of AWS that sources assume: temporary keys, renewed before they expire."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from umbel.errors import InvalidValue, PackageError, Transient

SESSION = "umbel"
"""The name of the session, which the logs of AWS show."""
MARGIN = timedelta(minutes=10)
"""The time before their expiry from which on keys are renewed; half their life if that is less."""
PATIENCE = 10
"""Seconds to connect to the service, and to wait for its answer."""
_LASTING = {
    "AccessDenied": "the role's trust policy must allow sts:AssumeRole to the worker's identity",
    "AccessDeniedException": "the role's trust policy must allow sts:AssumeRole to the worker's identity",
    "InvalidClientTokenId": "correct the key that the role is assumed with",
    "SignatureDoesNotMatch": "correct the secret of the key that the role is assumed with",
    "ExpiredToken": "renew the worker's own credentials",
    "RegionDisabledException": "activate the region for the Security Token Service, or set AWS_REGION",
    "ValidationError": "role_arn is like arn:aws:iam::123456789012:role/reader",
}
"""Codes of errors that trying again does not mend, with remedies."""


@dataclass(frozen=True, slots=True)
class TemporaryKey:
    """A key of a role.

    Args:
        key: its id.
        secret: its secret.
        token: of the session.
        begun: when it was made.
        expires: when it expires.
    """

    key: str
    secret: str
    token: str
    begun: datetime
    expires: datetime

    def is_fresh(self, now: datetime) -> bool:
        """Return whether it need not be renewed."""
        return now < self.expires - min(MARGIN, (self.expires - self.begun) / 2)

    def __repr__(self) -> str:
        return f"TemporaryKey(expires={self.expires.isoformat()})"


_KEYS: dict[tuple[str, str | None, str | None], TemporaryKey] = {}
_GUARD = threading.Lock()


def assumed(title: str, role: str, key: str | None, secret: str | None) -> TemporaryKey:
    """Return a key of a role, which is valid for some minutes at least.

    Args:
        title: of the source, for messages.
        role: its ARN.
        key: the id of the key that assumes it; None for the credentials of this process.
        secret: the secret of that key.

    Raises:
        InvalidValue: it may not be assumed.
        Transient: the service does not answer.
    """
    with _GUARD:
        now, found = datetime.now(UTC), _KEYS.get((role, key, secret))
        if found is not None and found.is_fresh(now):
            return found
        try:
            _KEYS[role, key, secret] = _assume(title, role, key, secret)
        except Transient:
            if found is None or now >= found.expires:
                raise
            return found  # it is still valid: another attempt comes
        return _KEYS[role, key, secret]


def sts() -> Any:
    """Return the package that assumes roles.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import boto3
    except ImportError as error:
        raise PackageError("assuming a role needs the package boto3", hint="pip install 'umbel[aws]'") from error
    return boto3


def _assume(title: str, role: str, key: str | None, secret: str | None) -> TemporaryKey:
    boto3 = sts()
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    patience = Config(connect_timeout=PATIENCE, read_timeout=PATIENCE, retries={"total_max_attempts": 3})
    begun = datetime.now(UTC)
    try:
        session = boto3.session.Session(aws_access_key_id=key, aws_secret_access_key=secret)
        client = session.client("sts", region_name=session.region_name or "us-east-1", config=patience)
        found = client.assume_role(RoleArn=role, RoleSessionName=SESSION)["Credentials"]
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _LASTING:
            raise InvalidValue(f"{title}: role {role} cannot be assumed: {code}", hint=_LASTING[code]) from None
        raise Transient(f"{title}: role {role} cannot be assumed now: {code}") from None
    except NoCredentialsError:
        raise InvalidValue(
            f"{title}: role {role} cannot be assumed: the worker has no credentials of AWS",
            hint="give the source a key, or the worker AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
        ) from None
    except BotoCoreError as error:
        name = type(error).__name__
        raise Transient(
            f"{title}: the Security Token Service does not answer: {name}", hint="see that it can be reached"
        ) from None
    made = found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]
    return TemporaryKey(*made, begun=begun, expires=found["Expiration"].astimezone(UTC))
