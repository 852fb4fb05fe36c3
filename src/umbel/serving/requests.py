"""Requests: bodies and parameters as structs, and the bounded reading of bodies."""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

import msgspec
import orjson
from msgspec import Meta
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive

from umbel.connectors.webhook import MAX_BODY
from umbel.errors import InvalidType, InvalidValue, Overloaded
from umbel.request_errors import TooLarge, TooSlow, UnsupportedMedia
from umbel.serving.headers import headers_of
from umbel.serving.refusals import JSON
from umbel.types.dtype import DType
from umbel.types.json_values import with_nan
from umbel.types.long_numbers import LONG, member, parse_long, with_decimals

INLINE = 1 << 20
"""Bodies of at most so many bytes are parsed on the event loop, larger ones in a thread."""
MOST_BUFFERED = 256 << 20
"""Bytes of the bodies of requests that are not answered yet from which on no further large ones are read."""
PATIENCE = 60.0
"""Seconds within which a body must arrive."""
BRANCH_HEADER = "X-UMBEL-BRANCH"
LARGEST = 999_999_999
"""The largest number of a parameter without a limit of its own."""
REVISION_HEADER = "X-UMBEL-REVISION"
"""Response header: the revision that answered."""
PROTOBUF, LINES, TEXT, HTML = "application/x-protobuf", "application/x-ndjson", "text/plain", "text/html"
ARROW = "application/vnd.apache.arrow.stream"
_JSON_TYPE = (b"content-type", JSON.encode())
_SHOWN = 200
_REPR = reprlib.Repr()  # of bounded depth and size: bodies may be nested more deeply than Python's own repr goes
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 4, _SHOWN, _SHOWN


def shown(value: Any) -> str:
    """Return a value of a body as text for a message."""
    return _REPR.repr(value)[:_SHOWN]


DatasetName = Annotated[str, Meta(description="The name of a dataset.", examples=["DelayOfOrigin"])]
SecretName = Annotated[str, Meta(description="The name of a secret.", examples=["mark"])]

_NAMES = Meta(extra={"must be": "a list of strings"})
Names = Annotated[list[str], _NAMES]
OptionalNames = Annotated[list[str] | None, _NAMES]
_TEXT = Meta(extra={"must be": "a string"})
Text = Annotated[str, _TEXT]
OptionalText = Annotated[str | None, _TEXT]
Workflow = Annotated[
    str | None,
    Meta(
        description='What the query is for; "default" when left out.',
        extra={"must be": "text", "hint": '"fraud"'},
        extra_json_schema={"maxLength": 128},
    ),
]
Rows = Annotated[
    Any,
    Meta(
        description="Rows: an object of columns, or a list of objects.",
        extra_json_schema={
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": "array"}},
                {"type": "array", "items": {"type": "object"}},
            ]
        },
    ),
]
Instant = Annotated[
    Any,
    Meta(
        description="An instant: RFC 3339, or a number of seconds, milliseconds or microseconds since the epoch.",
        extra_json_schema={"type": ["string", "number", "null"]},
    ),
]


class JsonBody(msgspec.Struct, frozen=True, dict=True):
    """The JSON object in the body of a request; members of other names are ignored."""

    example: ClassVar[Mapping[str, Any]] = {}
    """A body that is accepted, for the description of the interface."""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse a body.

        Raises:
            InvalidValue: it is not JSON, or lacks a required member.
            InvalidType: it is no object, or a member has another type.
        """
        try:
            found = with_nan(orjson.loads(data), data)
        except orjson.JSONDecodeError as error:
            raise InvalidValue(f"the body is not JSON: {error}", hint='send a JSON object: {"name": …}') from None
        try:
            body = msgspec.convert(found, cls)
        except msgspec.ValidationError as error:
            raise cls._described(found, error) from None
        if LONG.search(data):
            msgspec.structs.force_setattr(body, "_text", data)
        return body

    @property
    def is_large(self) -> bool:
        """Return True if `values` may take longer than requests may wait for each other."""
        return len(getattr(self, "_text", b"")) > INLINE

    def values(self, name: str, types: Mapping[str, DType]) -> Any:
        """Return a member, rows or columns of these types, with all digits of decimals."""
        text: bytes | None = getattr(self, "_text", None)
        if text is not None and with_decimals(types):
            with suppress(RecursionError):  # nested more deeply than any type is: the values are refused as they are
                piece = member(text, name)
                return with_nan(parse_long(piece), piece)
        return getattr(self, name)

    @classmethod
    def _described(cls, found: Any, error: msgspec.ValidationError) -> InvalidType | InvalidValue:
        """Return the error of a misfit body, in the words of its annotations."""
        if not isinstance(found, dict):
            return InvalidType(f"the body must be a JSON object, found {_kind(found)}")
        members = msgspec.structs.fields(cls)
        missing = [each.encode_name for each in members if each.required and each.encode_name not in found]
        if missing:
            listed = f"{', '.join(sorted(found))[:_SHOWN]}" or "nothing"
            return InvalidValue(f"the body lacks {', '.join(map(repr, missing))}", hint=f"it has {listed}")
        for each in members:
            name = each.encode_name
            if name in found and not _fits(found[name], each.type):
                extra = meta_of(each.type).extra or {}
                report = f"'{name}' must be {extra['must be']}, found {shown(found[name])}"
                return InvalidType(report, hint=extra.get("hint"))
        return InvalidType(f"the body does not fit: {error}")


class Parameters(msgspec.Struct, frozen=True):
    """The parameters of a query string, and headers; others are ignored."""

    @classmethod
    def of(cls, request: Request) -> Self:
        """Parse the query string and the headers of a request.

        Raises:
            InvalidValue: a parameter is missing, or has another type.
        """
        return cls(*[each.read(request) for each in parameters_of(cls)])


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query string, or a header.

    Args:
        name: its name.
        type: its annotated type: `int`, `bool`, `str` or `list[str]`, or one of them or None.
        kind: the type without its annotation.
        meta: the annotation; `extra` has the name of a header, or a hint for a missing parameter.
        is_required: whether it must be there, and not be empty.
        default: its value where it is not.
    """

    name: str
    type: Any
    kind: Any
    meta: Meta
    is_required: bool
    default: Any

    @property
    def header(self) -> str | None:
        """The name of the header; None for a parameter of the query string."""
        return (self.meta.extra or {}).get("header")

    def read(self, request: Request) -> Any:
        """Return its value in a request."""
        if self.kind == list[str]:
            return request.query_params.getlist(self.name)
        declared = request.query_params.get(self.name) if self.header is None else request.headers.get(self.header)
        if self.is_required and not declared:
            raise InvalidValue(f"'{self.name}' is missing", hint=(self.meta.extra or {}).get("hint"))
        if declared is None:
            return self.default
        if self.kind in {int, int | None}:
            return _count(self.name, declared, self.meta.le or LARGEST)
        return _flag(self.name, declared, self.default) if self.kind in {bool, bool | None} else declared


@cache
def parameters_of(kind: type[Parameters]) -> tuple[Parameter, ...]:
    """Return the parameters of a struct."""
    found = []
    for each in msgspec.structs.fields(kind):
        plain = get_args(each.type)[0] if get_origin(each.type) is Annotated else each.type
        is_required = each.required and plain != list[str]
        found.append(
            Parameter(
                each.name, each.type, plain, meta_of(each.type), is_required, None if each.required else each.default
            )
        )
    return tuple(found)


def _count(name: str, declared: str, most: float) -> int:
    if not (declared.isascii() and declared.isdigit()) or len(declared) > 9 or int(declared) > most:
        raise InvalidValue(f"'{name}' must be a whole number from 0 to {most}, found {declared!r:.80}")
    return int(declared)


_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _flag(name: str, declared: str, default: bool | None) -> bool | None:
    text = declared.lower()
    if text in {"", "none"}:
        return default
    if text not in _FLAGS:
        raise InvalidValue(f"'{name}' must be true or false, found {text!r:.80}")
    return _FLAGS[text]


class BodyRoom:
    """The memory of a server process for the bodies of unanswered requests.

    Bodies that arrive as a whole are not counted: they are small, and most are.
    """

    def __init__(self) -> None:
        self._sizes, self._used = dict[Request, int](), 0

    def admit(self, size: int) -> None:
        """Refuse a request for whose body there is no room.

        Args:
            size: bytes that it says to have.

        Raises:
            Overloaded: other requests have used the room.
        """
        if self._used + size > MOST_BUFFERED:
            raise _no_room()

    def take(self, request: Request, size: int) -> None:
        """Count bytes that have arrived.

        Those of admitted requests may exceed the room by one body.

        Raises:
            Overloaded: they exceed it by more.
        """
        self._sizes[request] = self._sizes.get(request, 0) + size
        self._used += size
        if self._used > MOST_BUFFERED + MAX_BODY:
            raise _no_room()

    def release(self, request: Request) -> None:
        """Note that a request is answered."""
        self._used -= self._sizes.pop(request, 0)


def _no_room() -> Overloaded:
    return Overloaded("too many large requests arrive at the same time", hint="send it again later, in smaller parts")


async def body_of(request: Request, room: BodyRoom) -> bytes:
    """Return the body of a request; the gate has checked its content type.

    Raises:
        TooLarge: it is too large; no more of it is read.
        TooSlow: it does not arrive in time.
        Overloaded: there is no room for it; no more of it is read.
    """
    declared = headers_of(request).get(b"content-length", b"")
    size = int(declared) if declared.isdigit() else 0
    if size > MAX_BODY:
        raise _too_large()
    first = _arrived(request.receive)
    if first is not None and not first.get("more_body", False):
        return await _read(request, first)
    room.admit(size)
    try:
        async with asyncio.timeout(PATIENCE):
            return await _read(request, first, room)
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {PATIENCE:.0f} s") from None


def _arrived(receive: Receive) -> Message | None:
    """Return the next message if it is there already.

    Most bodies arrive together with the head, and then need no timer, which costs more than all else of reading them.
    """
    step = receive().__await__()
    try:
        next(step)
    except StopIteration as done:
        message: Message = done.value
        return message
    step.close()  # as if it were cancelled: nothing is lost
    return None


async def _read(request: Request, message: Message | None, room: BodyRoom | None = None) -> bytes:
    parts, size = list[bytes](), 0
    while True:
        message = message or await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY:
            raise _too_large()
        if room is not None:
            room.take(request, len(part))
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        message = None


class JsonResponse(Response):
    """A response with encoded JSON; its headers are bytes, which costs the least.

    Args:
        content: the content.
        headers: others than those of every response; the names in lower case.
    """

    def __init__(self, content: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.status_code, self.background, self.body = 200, None, content
        self.raw_headers = [(b"content-length", b"%d" % len(content)), _JSON_TYPE, *headers]


def answer(content: Any) -> Response:
    """Return a JSON response."""
    return JsonResponse(msgspec.json.encode(content))


@lru_cache(maxsize=256)
def plain_media(declared: bytes) -> str:
    """Return the name of a content type."""
    return declared.decode("latin-1").partition(";")[0].strip().lower()


def check_media(declared: bytes | None, encoding: bytes | None, media: tuple[str, ...]) -> None:
    """Refuse content types other than those of an endpoint.

    A browser sends none of these types for a page of another site.

    Raises:
        UnsupportedMedia: it is another, none, or compressed.
    """
    if encoding is not None and encoding != b"identity":
        raise UnsupportedMedia(
            f"bodies in {encoding.decode('latin-1')!r:.80} are not read", hint="send the body uncompressed"
        )
    found = plain_media(declared or b"")
    if found not in media and not (JSON in media and found.endswith("+json")):
        report = f"a body of type {found!r:.80} is not read here" if found else "the request has no Content-Type"
        raise UnsupportedMedia(report, hint=f"Content-Type: {' or '.join(media)}")


def _too_large() -> TooLarge:
    return TooLarge(f"the body is larger than {MAX_BODY >> 20} MiB", hint="send it in parts")


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def meta_of(kind: Any) -> Meta:
    """Return the description of a member or parameter, from its type."""
    found = (each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Meta))
    return next(found, Meta())


def _kind(value: Any) -> str:
    return {list: "a list", str: "a string", type(None): "null", bool: "a truth value"}.get(type(value), "a number")
