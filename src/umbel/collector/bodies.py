"""Bodies of requests: their events."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from umbel.collector.settings import RequestLimits
from umbel.request_errors import TooLarge, UnsupportedMedia

Check = Callable[[Any], str]
"""Returns what is wrong with an event, empty for nothing."""

JSON, LINES = b"application/json", b"application/x-ndjson"
MEDIA = {b"": False, JSON: False, LINES: True, b"application/ndjson": True, b"application/jsonl": True}
"""Content types that are read; True for lines."""
MOST_LETTERS = 1000
"""Dead letters of one request that are stored."""
LONGEST_LETTER = 64 << 10
DEEPEST = 200
"""Levels of an event, itself the first: readers follow them on a stack, and not all as far as this parser."""
TOO_DEEP = f"it is nested deeper than {DEEPEST} levels"
_NO_OBJECT = "it must be a JSON object, found {}"
_KINDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "a truth value", type(None): "null"}
_raws: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]+|[\]}]+|,', re.DOTALL)
"""Texts, which may have brackets and commas; runs of brackets; commas."""
_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""A half of a character, which may lack the other one."""


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event that was not accepted.

    Args:
        index: its position in the request.
        reason: what is wrong with it.
        text: its bytes.
    """

    index: int
    reason: str
    text: bytes

    def packed(self) -> dict[str, Any]:
        """Return it as plain data, with at most 64 KiB of its text."""
        text = self.text[:LONGEST_LETTER]
        try:
            shown = {"event": text.decode()}
        except UnicodeDecodeError:
            shown = {"base64": base64.b64encode(text).decode()}
        return {"reason": self.reason, "index": self.index, "bytes": len(self.text), **shown}


@dataclass(frozen=True, slots=True)
class EventBatch:
    """The events of a request.

    Args:
        payload: the accepted ones, as a JSON list.
        rows: their number.
        letters: the first of the others.
        rejected: the number of the others.
    """

    payload: bytes
    rows: int
    letters: Sequence[RejectedEvent] = ()
    rejected: int = 0


def media_of(content_type: bytes) -> bool:
    """Return True for lines, False for a JSON document.

    Raises:
        UnsupportedMedia: neither.
    """
    name = content_type.partition(b";")[0].strip().lower()
    if name not in MEDIA:
        shown = name[:80].decode("latin-1")
        raise UnsupportedMedia(
            f"a body cannot be {shown!r}", hint="Content-Type: application/json, or application/x-ndjson"
        )
    return MEDIA[name]


def parse(data: bytes, *, is_lines: bool, limits: RequestLimits, check: Check | None = None) -> EventBatch:
    """Return the events of a body.

    Args:
        data: a JSON object, a list of them, or lines of them.
        is_lines: True for lines.
        limits: the sizes they may have.
        check: returns what is wrong with an event.

    Returns:
        They; a body that is neither an object nor a list is one event that is rejected.

    Raises:
        TooLarge: it has too many events.
    """
    if is_lines:
        lines = [each for each in data.split(b"\n") if each and not each.isspace()]
        return _judged(lines, limits, check)
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        texts = _split_deep(data) if _is_depth(error) or _is_list(data) else []
        return _judged(texts, limits, check) if texts else _refused(data, f"the body is not JSON: {error}")
    is_simple = check is None and len(data) <= limits.event and not _has_deep(data, found)
    if isinstance(found, dict):
        return EventBatch(b"[%b]" % data, 1) if is_simple else _judged([data], limits, check)
    if not isinstance(found, list):
        return _refused(data, f"the body must be a JSON object or a list of them, found {_kind(found)}")
    if is_simple and len(found) <= limits.events and set(map(type, found)) <= {dict}:
        return EventBatch(data, len(found))
    return _judged(_split(data), limits, check)


def _is_depth(error: orjson.JSONDecodeError) -> bool:
    """Return True if a text may be JSON, but is too deep for the parser."""
    return "depth limit" in error.msg or "ecursion limit" in error.msg  # of several versions of orjson


def _is_list(data: bytes) -> bool:
    """Return True if a text is a JSON list, but for refused values.

    They are numbers out of range, halves of characters, bytes that are no UTF-8, and values that are too deep.
    """
    try:
        _raws(_HALF.sub(rb"\\u0020", data))
    except msgspec.DecodeError:
        return False
    except RecursionError:
        pass  # it is split by its brackets alone
    return True


def _has_deep(data: bytes, found: Any) -> bool:
    """Return True if an event of a body is too deep.

    Args:
        data: the body.
        found: its value.
    """
    rows = len(found) + 1 if isinstance(found, list) else 1
    if data.count(b"{") + data.count(b"[") < rows + DEEPEST:
        return False  # so many brackets as a deep event has are not there
    return _is_deeper(found, DEEPEST + isinstance(found, list))


def _is_deeper(value: Any, levels: int) -> bool:
    """Return True if a value has more than so many levels."""
    level = [value]
    for _ in range(levels):
        level = [
            inner
            for each in level
            for inner in (each.values() if type(each) is dict else each)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return False
    return True


def _split(data: bytes) -> Sequence[bytes]:
    """Return the elements of a JSON list."""
    try:
        return list(map(bytes, _raws(data)))
    except RecursionError:  # the limit is that of Python's stack, and depends on the caller
        return _split_deep(data)


def _split_deep(data: bytes) -> list[bytes]:
    """Return the elements of a JSON list of any depth, none of another value.

    The elements may be other than JSON.
    """
    depth, begin, found = 0, 0, list[bytes]()
    if not (data.lstrip().startswith(b"[") and data.rstrip().endswith(b"]")):
        return []
    for token in _TOKENS.finditer(data):
        text = token[0]
        if text[:1] in b"[{":
            begin = begin if depth else token.start() + 1
            depth += len(text)
        elif text[:1] in b"]}":
            depth -= len(text)
            if depth <= 0:
                found.append(data[begin : token.end() - 1].strip())
                return found if not depth and not data[token.end() :].strip() else []
        elif text == b"," and depth == 1:
            found.append(data[begin : token.start()].strip())
            begin = token.end()
    return []


def _refused(data: bytes, reason: str) -> EventBatch:
    return EventBatch(b"[]", 0, [RejectedEvent(0, reason, data)], 1)


def _judged(texts: Sequence[bytes], limits: RequestLimits, check: Check | None) -> EventBatch:
    if len(texts) > limits.events:
        raise TooLarge(f"a request may have {limits.events:,} events, found {len(texts):,}", hint="send it in parts")
    verdicts = _Verdicts()
    good = [text for text in texts if verdicts.accepts(text, _problem(text, limits, check))]
    return EventBatch(b"[%b]" % b",".join(good), len(good), verdicts.letters, verdicts.rejected)


@dataclass(slots=True)
class _Verdicts:
    letters: list[RejectedEvent] = field(default_factory=list)
    rejected: int = 0
    seen: int = 0

    def accepts(self, text: bytes, problem: str) -> bool:
        """Note the verdict on the next event; return True if it is accepted."""
        self.seen += 1
        if not problem:
            return True
        self.rejected += 1
        if len(self.letters) < MOST_LETTERS:
            self.letters.append(RejectedEvent(self.seen - 1, problem, text))
        return False


def _problem(text: bytes, limits: RequestLimits, check: Check | None) -> str:
    if len(text) > limits.event:
        return f"it has {len(text):,} bytes, the limit is {limits.event:,}"
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return TOO_DEEP if _is_depth(error) else f"it is not JSON: {error}"
    if not isinstance(value, dict):
        return _NO_OBJECT.format(_kind(value))
    if _has_deep(text, value):
        return TOO_DEEP
    return "" if check is None else check(value)


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def events_of(payload: bytes) -> Iterator[bytes]:
    """Yield the events of a stored payload, each without line breaks."""
    for each in _split(payload):
        # a line break stands outside of texts, where it is escaped
        yield each.replace(b"\r", b" ").replace(b"\n", b" ")
