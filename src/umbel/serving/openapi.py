"""The OpenAPI document of the HTTP interface, and a page to try requests."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from umbel import __version__
from umbel.serving.refusals import JSON, ErrorBody
from umbel.serving.requests import BRANCH_HEADER, HTML, parameters_of

if TYPE_CHECKING:
    from umbel.serving.endpoint import Endpoint

_REFERENCE = "#/components/schemas/{name}"
_BRANCH = {
    "name": BRANCH_HEADER,
    "in": "header",
    "description": "The branch; `main` when left out.",
    "schema": {"type": "string", "default": "main"},
}
_PAGE = files("umbel.serving").joinpath("docs.html").read_text(encoding="utf-8")


async def description(request: Request) -> Annotated[Response, dict[str, Any]]:
    """Return the description of the HTTP interface, as OpenAPI 3.1."""
    state = request.app.state
    if not hasattr(state, "openapi"):
        state.openapi = msgspec.json.encode(document(request.app.routes))
    return Response(state.openapi, media_type=JSON)


async def page(_: Request) -> Annotated[Response, HTML]:
    """Return a page to try requests."""
    return Response(_PAGE, media_type=HTML, headers={"Content-Security-Policy": _POLICY, "X-Frame-Options": "DENY"})


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of endpoints."""
    paths = dict[str, dict[str, Any]]()
    known = list(endpoints)
    schemas, components = _schemas(known)
    for each in known:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "umbel", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(endpoints: list[Endpoint]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of each type, by its text, and their components."""
    types = {repr(each): each for endpoint in endpoints for each in (*_types(endpoint), ErrorBody)}
    schemas, components = msgspec.json.schema_components(types.values(), ref_template=_REFERENCE)
    return dict(zip(types, schemas, strict=True)), components


def _types(endpoint: Endpoint) -> Iterator[Any]:
    if endpoint.body is not None:
        yield endpoint.body
    if endpoint.parameters is not None:
        yield from (each.type for each in parameters_of(endpoint.parameters))
    yield from (endpoint.hints[name] for name in endpoint.param_convertors)
    yield from (each for each in endpoint.answers if not isinstance(each, str))


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    summary, _, rest = (endpoint.handler.__doc__ or "").partition("\n")
    role = f"Needs the role {endpoint.role.label}." if endpoint.role is not None else "Needs no token."
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.handler.__module__.rpartition('.')[2]}_{endpoint.handler.__name__}",
        "summary": summary.strip(),
        "description": " ".join([*rest.split(), role]),
        "security": [] if endpoint.role is None else [{"token": []}],
        "parameters": list(_parameters(endpoint, schemas)),
        "responses": {"200": _answer(endpoint, schemas), "default": _refused(schemas)},
    }
    if "body" in endpoint.hints:
        operation["requestBody"] = {"required": True, "content": _content(endpoint, schemas)}
    return operation


def _content(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    found = {media: {"schema": {"type": "string", "format": "binary"}} for media in endpoint.media}
    if endpoint.body is None:
        return found
    return {**found, JSON: {"schema": schemas[repr(endpoint.body)], "example": endpoint.body.example}}


def _parameters(endpoint: Endpoint, schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in endpoint.param_convertors:
        yield {"name": name, "in": "path", "required": True, "schema": schemas[repr(endpoint.hints[name])]}
    for each in () if endpoint.parameters is None else parameters_of(endpoint.parameters):
        yield {
            "name": each.header or each.name,
            "in": "query" if each.header is None else "header",
            "required": each.is_required,
            "schema": schemas[repr(each.type)] | ({} if each.default is None else {"default": each.default}),
        }
    if endpoint.role is not None:
        yield _BRANCH


def _answer(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    media = [each for each in endpoint.answers if isinstance(each, str)]
    if media:
        return {"description": "The answer.", "content": {media[0]: {"schema": {"type": "string"}}}}
    found = [schemas[repr(each)] for each in endpoint.answers]
    schema = found[0] if len(found) == 1 else {"anyOf": found}
    return {"description": "The answer.", "content": {JSON: {"schema": schema}}}


def _refused(schemas: dict[str, Any]) -> dict[str, Any]:
    return {"description": "The request is refused.", "content": {JSON: {"schema": schemas[repr(ErrorBody)]}}}


def _hashes(tag: str) -> str:
    """Return the hashes of the page's own scripts or styles."""
    texts = re.findall(rf"<{tag}>(.*?)</{tag}>", _PAGE, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in texts)


_POLICY = (
    f"default-src 'none'; script-src {_hashes('script')}; style-src {_hashes('style')}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
