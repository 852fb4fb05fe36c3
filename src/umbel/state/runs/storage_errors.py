"""Errors of an object store's client, translated into umbel's."""

from __future__ import annotations

import re

from umbel.errors import Transient

_STATUS = re.compile(r"status code: (\d{3}[A-Za-z -]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_REQUEST = re.compile(r"Error performing ([A-Z]+ \S+) in ")
_CREDENTIALS = "check the credentials: they have to read, write, list and delete objects"
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
_AGAIN = "try again; is the storage reachable?"


def no_bucket(title: str) -> Transient:
    """Return the error of a missing bucket."""
    return Transient(f"{title}: there is no such bucket", hint="create it")


def translated(title: str, error: Exception) -> Transient:
    """Return the error that tells of a client's one.

    It omits most of its text, which has parts of the credentials.

    Args:
        title: of the bucket.
        error: of `obstore`.
    """
    text = str(error)
    status, code, request = (_group(pattern, text) for pattern in (_STATUS, _CODE, _REQUEST))
    answer = f"{status}, {code}" if code else status
    place = ": ".join(each for each in (request, answer) if each)
    place = f" ({place})" if place else ""
    if code == "NoSuchBucket":
        return no_bucket(title)
    if code in _EXPIRED:
        return Transient(f"{title}: the credentials have expired{place}", hint="renew them, and start anew")
    if code == "RequestTimeTooSkewed":
        return Transient(f"{title}: the clock of this machine is wrong{place}", hint="set it")
    if isinstance(error, PermissionError) or status[:3] in {"401", "403"}:
        return Transient(f"{title}: access is denied{place}", hint=_CREDENTIALS)
    if "Received redirect" in text:
        return Transient(f"{title}: the bucket is in another region{place}", hint="AWS_REGION says which")
    if status.startswith("4"):
        return Transient(f"{title}: the storage refuses{place}", hint=f"{_CREDENTIALS}, and not be expired")
    if status:
        return Transient(f"{title}: the storage fails{place}", hint=_AGAIN)
    return Transient(f"{title}: the storage does not answer, or not wholly{place}", hint=_AGAIN)


def _group(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1].strip() if found else ""
