"""Errors that only HTTP requests have, for servers and clients."""

from __future__ import annotations

from collections.abc import Mapping

from umbel.errors import Overloaded, Transient, UmbelError


class RequestError(UmbelError):
    """The root of errors that only HTTP requests have."""

    headers: Mapping[str, str] = {}
    """Headers of the response, besides the usual ones."""


class NoSuchRoute(RequestError):
    """A request has a path that no route has."""

    code = "no-such-route"
    status = 404


class WrongMethod(RequestError):
    """A request has a method that its path does not accept."""

    code = "wrong-method"
    status = 405


class Internal(RequestError):
    """The server itself failed."""

    code = "internal"
    status = 500


class Unhealthy(RequestError):
    """The server answers, but events are not processed as they should be."""

    code = "unhealthy"
    status = 503
    retry_after = 5.0


class TooLarge(RequestError):
    """A request body is larger than the server reads."""

    code = "too-large"
    status = 413


class OverQuota(Overloaded):
    """A key has used up its quota of events."""

    code = "over-quota"

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None, wait: float = 1.0) -> None:
        super().__init__(message, where=where, hint=hint)
        self.retry_after = max(1.0, wait)


class TooSlow(RequestError):
    """A request body does not arrive in time."""

    code = "too-slow"
    status = 408


class UnsupportedMedia(RequestError):
    """A request body has a content type the server does not read."""

    code = "unsupported-media"
    status = 415


class Unauthenticated(RequestError, PermissionError):
    """A request needs a valid token."""

    code = "unauthenticated"
    status = 401
    headers = {"WWW-Authenticate": "Bearer"}  # noqa: RUF012


class Forbidden(RequestError, PermissionError):
    """The role of a token does not permit a request."""

    code = "forbidden"
    status = 403


class HostNotAllowed(RequestError, PermissionError):
    """A request addresses the server by a host name that is not allowed."""

    code = "host-not-allowed"
    status = 403


class OriginNotAllowed(RequestError, PermissionError):
    """A request was made by a page of another site."""

    code = "origin-not-allowed"
    status = 403


class TooManyAttempts(RequestError, PermissionError):
    """An address has sent too many requests with wrong tokens."""

    code = "too-many-attempts"
    status = 429
    retry_after = 1.0


class Backfilling(Transient):
    """The requested object is committed, but its backfill is not complete."""

    code = "backfilling"
