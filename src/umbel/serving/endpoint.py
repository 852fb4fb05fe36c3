"""Endpoints: routes of Starlette, described by the annotations of their handlers.

A handler has the request as its first argument, then by name: the variable segments of the path, `parameters` of the query string
(a struct), and `body`, a struct or `bytes`. It returns a struct, or a response whose content its annotation describes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from polars.exceptions import PanicException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from umbel.catalog.audit import DONE, FAILED
from umbel.catalog.engine import AWAY, brief_of
from umbel.catalog.engine import remedy_of as remedy_of_database
from umbel.catalog.tokens import Role
from umbel.errors import Damaged, Transient, UmbelError
from umbel.request_errors import Internal
from umbel.serving.headers import branch_of
from umbel.serving.refusals import JSON, refusal
from umbel.serving.requests import INLINE, PROTOBUF, JsonBody, Parameters, answer, body_of
from umbel.state.disk import remedy_of

if TYPE_CHECKING:
    from umbel.serving.gate import Principal

Handler = Callable[..., Coroutine[Any, Any, Any]]
READING = frozenset({"GET", "HEAD"})

log = logging.getLogger("umbel.serve")


class Endpoint(Route):
    """A method on a path.

    Args:
        method: of HTTP.
        path: with `{name}` for a variable segment.
        handler: returns the response.
        role: the role it requires; None if everybody may use it.
        action: its name in the audit log; empty if it is not audited.
        needs_folder: True if it reads or writes the worker's folder.
    """

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        role: Role | None,
        action: str = "",
        *,
        needs_folder: bool | None = None,
    ) -> None:
        super().__init__(path, handler, methods=[method])
        self.app = self._serve  # without Starlette's wrapper, which handles exceptions once more for each request
        self.method, self.handler, self.role, self.action = method, handler, role, action
        self.needs_folder = bool(action) if needs_folder is None else needs_folder
        self.hints: dict[str, Any] = get_type_hints(handler, include_extras=True)
        self.parameters: type[Parameters] | None = self.hints.get("parameters")
        body = self.hints.get("body")
        self._parsed: type[JsonBody] | None = body if isinstance(body, type) and issubclass(body, JsonBody) else None
        self._has_body = body is not None

    @property
    def body(self) -> type[JsonBody] | None:
        """The JSON object in the body, if that is one."""
        described = _described(self.hints.get("body"))
        return described[0] if described and described[0] is not bytes else None

    @property
    def answers(self) -> tuple[Any, ...]:
        """The types of the response's JSON, or its content type."""
        return _described(self.hints["return"])

    @property
    def media(self) -> tuple[str, ...]:
        """The content types of its body; the first is the one that clients should send."""
        if self.hints.get("body") is bytes:
            return (PROTOBUF, "application/octet-stream")
        return (JSON, *(each for each in _described(self.hints.get("body")) if isinstance(each, str)))

    @property
    def takes_compressed(self) -> bool:
        """True if its body may be compressed."""
        return len(self.media) > 1 and self.media[0] == JSON

    @property
    def changes(self) -> bool:
        """True if requests may carry a body or change state."""
        return self.method not in READING

    async def respond(self, request: Request) -> Response:
        """Return the response to a request, and count it."""
        begun, status = time.perf_counter(), 500
        try:
            response = await self._answered(request)
            status = response.status_code
        finally:
            request.app.state.bodies.release(request)
            request.app.state.metrics.answered(self.path, status, time.perf_counter() - begun)
        return response

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.respond(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        try:
            principal = request.scope["umbel.principal"] = await request.app.state.gate.admit(request, self)
            return await (self._audited(request, principal) if self.action else self._call(request))
        except Damaged as error:
            log.error("%s %s: %s", request.method, request.url.path, error.message)
            request.app.state.metrics.damaged(self.path)
            return refusal(error)
        except UmbelError as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)  # the client has gone
        except PanicException as error:  # a BaseException; only the client of this request gets the response
            log.exception("%s %s", request.method, request.url.path)
            return refusal(failed(RuntimeError(f"Polars has panicked: {error}")))
        except (OSError, *AWAY) as error:
            log.exception("%s %s", request.method, request.url.path)
            # the rest of the message names paths and hosts of the server
            reason = getattr(error, "strerror", None) or brief_of(error)
            otherwise = remedy_of_database(error) or "try again; see its log"
            hint = remedy_of(getattr(error, "errno", None), otherwise)
            return refusal(Transient(f"the server cannot reach what it needs: {reason}", hint=hint))

    async def _audited(self, request: Request, principal: Principal) -> Response:
        """Answer a request and record it in the audit log.

        If the audit log cannot be written, the request is not answered.
        """
        audit = request.app.state.audit
        branch = branch_of(request)
        declared = (f"{name}={value}" for name, value in request.query_params.items() if value)
        request.state.subject = " ".join([*request.path_params.values(), f"branch={branch}", *declared])
        entry = await asyncio.to_thread(audit.begin, principal.actor, self.action, request.state.subject)
        outcome = FAILED
        try:
            response = await self._call(request)
            outcome = DONE
        except UmbelError as error:
            outcome = f"{FAILED}: {error.code}"
            raise
        finally:
            await asyncio.to_thread(audit.end, entry, outcome, request.state.subject)
        return response

    async def _call(self, request: Request) -> Response:
        arguments = dict[str, Any](request.path_params)
        if self.parameters is not None:
            arguments["parameters"] = self.parameters.of(request)
        if self._has_body:
            arguments["body"] = await self._body(request)
        found = await self.handler(request, **arguments)
        return found if isinstance(found, Response) else answer(found)

    async def _body(self, request: Request) -> JsonBody | bytes:
        data = await body_of(request, request.app.state.bodies)
        if self._parsed is None:
            return data
        if len(data) <= INLINE:
            return self._parsed.parse(data)
        parsed: JsonBody = await request.app.state.service.threads.parsing.do(self._parsed.parse, data)
        return parsed


def failed(error: Exception) -> Internal:
    """Return the error for clients of an exception.

    It omits the message, which may contain internals of the server.
    """
    return Internal(f"the server has failed: {type(error).__name__}", hint="see the server's log")


def _described(hint: Any) -> tuple[Any, ...]:
    """Return the annotations of a type, or the type itself without any."""
    if hint is None:
        return ()
    return get_args(hint)[1:] if get_origin(hint) is Annotated else (hint,)
