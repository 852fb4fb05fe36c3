"""Temporary passwords of Redshift for a role of AWS."""

from __future__ import annotations

import re
from typing import Any

from umbel.connectors.roles import PATIENCE, assumed, sts
from umbel.errors import InvalidValue, Transient, UmbelError

LIFETIME = 900
"""Seconds in which a password can log in; a connection outlives it."""
_CLUSTER = re.compile(r"([a-z0-9-]+)\.[a-z0-9]+\.([a-z0-9-]+)\.redshift\.amazonaws\.com(\.cn)?")
_WORKGROUP = re.compile(r"([a-z0-9-]+)\.\d{12}\.([a-z0-9-]+)\.redshift-serverless\.amazonaws\.com(\.cn)?")
_RIGHTS = {
    "redshift": "redshift:GetClusterCredentialsWithIAM",
    "redshift-serverless": "redshift-serverless:GetCredentials",
}
_LASTING = {
    "AccessDenied": "a policy of the role must allow {right} on it",
    "AccessDeniedException": "a policy of the role must allow {right} on it",
    "ClusterNotFound": "correct host= of the source: there is no such cluster",
    "ResourceNotFoundException": "correct host= of the source: there is no such workgroup",
    "ValidationException": "correct host= and db_name= of the source",
}
"""Codes of errors that trying again does not mend, with remedies."""


def temporary_login(title: str, role: str, host: str, database: str) -> tuple[str, str]:
    """Return the user of a role in a database, with a password for some minutes.

    Args:
        title: of the source, for messages.
        role: its ARN.
        host: the endpoint of the cluster or the workgroup.
        database: that is connected to.

    Raises:
        InvalidValue: the host is no endpoint, or the role may not connect.
        Transient: a service does not answer.
    """
    service, name, region = endpoint_of(title, host)
    key = assumed(title, role, None, None)
    boto3 = sts()
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    patience = Config(connect_timeout=PATIENCE, read_timeout=PATIENCE, retries={"total_max_attempts": 3})
    session = boto3.session.Session(key.key, key.secret, key.token, region)
    try:
        return _requested(session.client(service, config=patience), service, name, database)
    except ClientError as error:
        raise _refused(title, role, service, str(error.response.get("Error", {}).get("Code", ""))) from None
    except BotoCoreError as error:
        raise Transient(
            f"{title}: no password of role {role}: {type(error).__name__}",
            hint=f"see that the service {service} of {region} can be reached",
        ) from None


def endpoint_of(title: str, host: str) -> tuple[str, str, str]:
    """Return the service, the cluster or workgroup, and the region of an endpoint.

    Raises:
        InvalidValue: it is none.
    """
    for service, pattern in (("redshift", _CLUSTER), ("redshift-serverless", _WORKGROUP)):
        if found := pattern.fullmatch(host.lower()):
            return service, found[1], found[2]
    raise InvalidValue(
        f"{title}: a role needs the endpoint of a cluster or a workgroup as host=, found '{host}'",
        hint="as cluster.abc123xyz789.eu-west-1.redshift.amazonaws.com, or workgroup.123456789012.eu-west-1."
        "redshift-serverless.amazonaws.com; another name needs username= and password=",
    )


def _requested(client: Any, service: str, name: str, database: str) -> tuple[str, str]:
    if service == "redshift":
        found = client.get_cluster_credentials_with_iam(
            ClusterIdentifier=name, DbName=database, DurationSeconds=LIFETIME
        )
        return found["DbUser"], found["DbPassword"]
    found = client.get_credentials(workgroupName=name, dbName=database, durationSeconds=LIFETIME)
    return found["dbUser"], found["dbPassword"]


def _refused(title: str, role: str, service: str, code: str) -> UmbelError:
    if code in _LASTING:
        hint = _LASTING[code].format(right=_RIGHTS[service])
        return InvalidValue(f"{title}: no password of role {role}: {code}", hint=hint)
    return Transient(f"{title}: no password of role {role} now: {code}")
