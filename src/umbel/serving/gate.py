"""The gate before every endpoint: checks host, origin, content type, token and role.

No byte of a body is read before a request has passed it. A token is verified by scrypt once in a process; from then on it is
found by a keyed hash. The valid tokens are read from the catalog twice a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from starlette.requests import Request

from umbel.catalog.audit import Actor
from umbel.catalog.tokens import LONGEST, Role, TokenRecord, Tokens
from umbel.errors import InvalidValue
from umbel.request_errors import Forbidden, HostNotAllowed, OriginNotAllowed, TooManyAttempts, Unauthenticated
from umbel.runtime.home import elsewhere
from umbel.serving.attempts import Attempts
from umbel.serving.headers import FORWARDED, Headers, parse_headers
from umbel.serving.policy import LOOPBACK_NAMES, Policy, is_loopback
from umbel.serving.requests import check_media
from umbel.serving.threads import ThreadPool

if TYPE_CHECKING:
    from umbel.serving.endpoint import Endpoint

EVERY = 0.5
"""Seconds between two looks at which tokens are valid."""
MOST_KNOWN = 10_000
"""Verified tokens, and names of hosts, that are remembered."""
EVERYWHERE = frozenset({"0.0.0.0", "[::]"})  # noqa: S104  no names of a server, though it may listen there
OWN_SITE = frozenset({b"none", b"same-origin"})
HINT = "Authorization: Bearer …; umbel token create NAME --role … makes a token"
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_.])?)(?P<port>:\d{1,5})?")
_ORIGIN = re.compile(r"https?://(?P<host>[^/?#@]+)")

log = logging.getLogger("umbel.serve")


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated client of a request.

    Args:
        name: of the token; None without one.
        role: its permissions.
        address: of the peer.
    """

    name: str | None
    role: Role
    address: str

    @property
    def actor(self) -> Actor:
        """The client as an actor of the audit log."""
        return Actor("nobody" if self.name is None else f"token {self.name}", self.address)


class Gate:
    """Admits requests to endpoints.

    Args:
        policy: the access policy of the server.
        tokens: of the deployment.
    """

    def __init__(self, policy: Policy, tokens: Tokens) -> None:
        self._tokens, self._is_behind_proxy, self._queries_only = tokens, policy.is_behind_proxy, policy.queries_only
        self._has_open_parts = policy.is_local and not policy.requires_token
        named = {each.lower() for each in policy.allowed_hosts}
        self._extra = frozenset(named)
        self._names = LOOPBACK_NAMES | named | ({_bracketed(policy.host)} - EVERYWHERE)
        self._hosts = dict[bytes, bool]()
        self._key = secrets.token_bytes(32)
        self._verified = dict[bytes, str]()
        self._valid = dict[str, TokenRecord]()
        self._pending = dict[bytes, asyncio.Task[TokenRecord | None]]()
        self._attempts = Attempts()
        self._threads = ThreadPool("token", 1)

    async def admit(self, request: Request, endpoint: Endpoint) -> Principal:
        """Authenticate and authorise a request; return its principal.

        Raises:
            UmbelError: the request is refused.
        """
        scope = request.scope
        found = parse_headers(request)
        host = found.get(b"host")
        if host is None:
            raise InvalidValue("the request has no Host header", hint="HTTP needs one: Host: localhost:8425")
        address = self._address(scope["client"], found)
        role = endpoint.role
        if role is None and not scope["query_string"]:
            return Principal(None, Role.READER, address)
        self._check_host(host)
        self._check_origin(found, host)
        if endpoint.changes:
            encoding = None if endpoint.takes_compressed else found.get(b"content-encoding")
            check_media(found.get(b"content-type"), encoding, endpoint.media)
        principal = await self._principal(found, address)
        _check_role(principal, role or Role.READER)
        if self._queries_only and endpoint.needs_folder:
            raise elsewhere(f"answer {endpoint.method} {endpoint.path}")
        return principal

    async def follow(self) -> None:
        """Reload the valid tokens twice a second, until cancelled."""
        while True:
            try:
                valid = await self._threads.do(self._tokens.valid)
                self._valid = {each.id: each for each in valid}
            except Exception as error:  # noqa: BLE001  without the catalog, the tokens loaded last stay in force
                log.error("cannot look up which tokens are valid: %s", error)
            await asyncio.sleep(EVERY)

    def close(self) -> None:
        """Stop its threads."""
        self._threads.close()

    def _check_host(self, host: bytes) -> None:
        is_allowed = self._hosts.get(host)
        if is_allowed is None:
            parts = _HOST.fullmatch(host.decode("latin-1").lower())
            if parts is None:
                raise InvalidValue(f"the Host header is none: {host.decode('latin-1')!r:.80}", hint="Host: localhost")
            is_allowed = parts["name"].rstrip(".") in self._names
            if len(self._hosts) < MOST_KNOWN:
                self._hosts[host] = is_allowed
        if not is_allowed:
            raise HostNotAllowed(
                f"this server does not answer to the name {host.decode('latin-1')!r:.80}",
                hint="start it with --allowed-host NAME, if that is how it is to be reached",
            )

    def _check_origin(self, found: Headers, host: bytes) -> None:
        """Refuse cross-site requests sent by a browser."""
        origin = found.get(b"origin")
        if origin is None:
            is_own = found.get(b"sec-fetch-site", b"none") in OWN_SITE
        else:
            parts = _ORIGIN.fullmatch(origin.decode("latin-1").lower())
            name = parts["host"] if parts else ""
            is_own = bool(parts) and (name == host.decode("latin-1").lower() or _without_port(name) in self._extra)
        if not is_own:
            report = "another site" if origin is None else f"{origin.decode('latin-1')!r:.80}"
            raise OriginNotAllowed(
                f"a page of {report} may not use this server", hint="--allowed-host NAME allows pages of that host"
            )

    def _address(self, client: tuple[str, int] | None, found: Headers) -> str:
        forwarded = found.get(b"x-forwarded-for") if self._is_behind_proxy else None
        if forwarded is not None:  # the last address is the one the proxy itself has seen
            return forwarded.decode("latin-1").rpartition(",")[2].strip()[:64]
        return client[0] if client else ""

    async def _principal(self, found: Headers, address: str) -> Principal:
        declared = found.get(b"authorization")
        if declared is None:
            if self._is_open(found, address):
                return Principal(None, Role.WRITER, address)
            raise Unauthenticated("this needs a token", hint=HINT)
        scheme, _, text = declared.partition(b" ")
        token = text.strip()
        if scheme.lower() != b"bearer" or not token:
            raise Unauthenticated("the Authorization header has no bearer token", hint="Authorization: Bearer …")
        digest = hashlib.blake2b(token, key=self._key, digest_size=32).digest()
        record = self._valid.get(self._verified.get(digest, ""))
        if record is None:
            record = await self._verify(digest, token, address)
        return Principal(record.name, record.role, address)

    def _is_open(self, found: Headers, address: str) -> bool:
        """Return whether a request may read and log without a token.

        It may if it certainly comes from this machine.
        """
        return self._has_open_parts and FORWARDED.isdisjoint(found) and (not address or _is_own(address))

    async def _verify(self, digest: bytes, token: bytes, address: str) -> TokenRecord:
        """Return the record of a token; concurrent requests with it share one verification."""
        task = self._pending.get(digest)
        if task is None:
            wait = self._attempts.begin(address)
            if wait:
                raise _attempts_exceeded(wait)
            task = asyncio.ensure_future(
                self._threads.do(self._tokens.verified, token[: LONGEST + 1].decode("latin-1"))
            )
            self._pending[digest] = task
            task.add_done_callback(lambda _: self._pending.pop(digest, None))
            try:
                record = await asyncio.shield(task)
            except Exception:  # the catalog is unreachable: not an error of the client
                self._attempts.succeeded(address)
                raise
            if record is not None:
                self._attempts.succeeded(address)
        else:
            record = await asyncio.shield(task)
        if record is None:
            raise Unauthenticated("the token is not valid", hint="it was revoked, is of another server, or is mistyped")
        if len(self._verified) >= MOST_KNOWN:
            self._verified.clear()
        self._verified[digest] = record.id
        self._valid[record.id] = record
        return record


def _attempts_exceeded(wait: float) -> TooManyAttempts:
    report = "too many requests with wrong tokens from this address"
    error = TooManyAttempts(report, hint=f"wait {math.ceil(wait)} s")
    error.retry_after = wait
    return error


def _check_role(principal: Principal, role: Role) -> None:
    if principal.role >= role:
        return
    if principal.name is None:
        raise Unauthenticated(f"this needs a token with the role {role.label}", hint=HINT)
    raise Forbidden(
        f"token '{principal.name}' has the role {principal.role.label}, and this needs {role.label}",
        hint=f"use a token of that role: umbel token create NAME --role {role.label}",
    )


@lru_cache(maxsize=1024)
def _is_own(address: str) -> bool:
    return is_loopback(address)


def _bracketed(host: str) -> str:
    return f"[{host.lower()}]" if ":" in host and not host.startswith("[") else host.lower()


def _without_port(host: str) -> str:
    parts = _HOST.fullmatch(host)
    return parts["name"] if parts else ""
