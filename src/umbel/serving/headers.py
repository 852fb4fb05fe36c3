"""Request headers, parsed once for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request

from umbel.errors import InvalidValue
from umbel.graph.graph import MAIN

Headers = Mapping[bytes, bytes]
"""The value of each header, by its name in lower case."""

SINGLE = frozenset({b"host", b"origin", b"authorization", b"content-type", b"content-length"})
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""Headers added by proxies: a request that has one does not come from this machine, whatever its address."""
_JOINED = FORWARDED | {b"sec-fetch-site", b"content-encoding"}
_BRANCH = b"x-umbel-branch"
_KEY = "umbel.headers"


def parse_headers(request: Request) -> Headers:
    """Return the headers of a request; `headers_of` returns them again.

    Raises:
        InvalidValue: a header that must be unique is there twice: a proxy may have read the other one.
    """
    raw: Sequence[tuple[bytes, bytes]] = request.scope["headers"]
    found = dict(raw)
    if len(found) < len(raw):
        found = _merged(raw)
    request.scope[_KEY] = found
    return found


def headers_of(request: Request) -> Headers:
    """Return the parsed headers of a request."""
    found: Headers = request.scope[_KEY]
    return found


def branch_of(request: Request) -> str:
    """Return the branch of a request."""
    declared = headers_of(request).get(_BRANCH)
    return MAIN if declared is None else declared.decode("latin-1")


def _merged(raw: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the joined values of repeated headers where each counts, else the first."""
    found = dict[bytes, bytes]()
    for name, value in raw:
        if name not in found:
            found[name] = value
        elif name in SINGLE:
            raise InvalidValue(f"the header {name.decode().title()} is there twice", hint="send it once")
        elif name in _JOINED:
            found[name] += b"," + value
    return found
