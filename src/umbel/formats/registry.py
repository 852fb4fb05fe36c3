"""Schemas of messages, from a registry with the interface of Confluent's."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from umbel.bearer import bearer
from umbel.errors import InvalidValue, Transient

HEAD = 5
"""Bytes before a message's content: a zero, and the id of its schema."""
UNKNOWN_FOR = 30.0
"""Seconds for which an id that the registry does not know is not asked for again."""
TIMEOUT = 10.0
_NO_SCHEMA = frozenset({40401, 40402, 40403})


def framed(value: bytes) -> tuple[int, bytes]:
    """Return the schema id and the content of a message.

    Raises:
        ValueError: it does not begin as messages with a schema do.
    """
    if len(value) < HEAD or value[0] != 0:
        raise ValueError("the message does not begin with a zero byte and the id of a schema")
    return int.from_bytes(value[1:HEAD], "big"), value[HEAD:]


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema.

    Args:
        text: the schema.
        references: the names of other schemas that it uses, with their texts; those they use themselves come first.
    """

    text: str
    references: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class SchemaRegistry:
    """The schemas of one registry, each requested once.

    Args:
        url: of the registry.
        user: name and password, None for none.
        token: sent instead of a user, None for none.
        form: the form in which schemas are requested; "serialized" for Protobuf.
    """

    url: str
    user: tuple[str, str] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    form: str = ""
    _known: dict[int, RegisteredSchema] = field(default_factory=dict, repr=False)
    _unknown: dict[int, float] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def schema(self, number: int) -> RegisteredSchema:
        """Return a schema by its id.

        Raises:
            ValueError: the registry has none of that id.
            Transient: the registry does not answer, or refuses to.
        """
        with self._lock:
            if number not in self._known:
                self._known[number] = self._requested(number)
            return self._known[number]

    def _requested(self, number: int) -> RegisteredSchema:
        reason = f"schema {number} is not in the registry {self.url}"
        if time.monotonic() < self._unknown.get(number, 0.0):
            raise ValueError(reason)
        found = self._get(f"/schemas/ids/{number}")
        if found is None:
            self._unknown[number] = time.monotonic() + UNKNOWN_FOR
            raise ValueError(reason)
        references = dict[str, str]()
        try:
            self._refer(found, references, ())
            return RegisteredSchema(str(found["schema"]), references)
        except (KeyError, TypeError) as error:
            report = f"the schema registry {self.url} answers with something else than a schema: {error!r}"
            raise Transient(report, hint="check its address") from error

    def _refer(self, schema: Mapping[str, Any], into: dict[str, str], within: tuple[str, ...]) -> None:
        for each in schema.get("references") or ():
            name = str(each["name"])
            if name in into:
                continue
            if name in within:
                raise ValueError(f"in the registry {self.url} schema '{name}' refers to itself")
            other = self._get(f"/subjects/{quote(str(each['subject']), safe='')}/versions/{each['version']}")
            if other is None:
                raise ValueError(f"the registry {self.url} lacks the referenced schema '{name}'")
            self._refer(other, into, (*within, name))
            into[name] = str(other["schema"])

    def _get(self, path: str) -> Any:
        """Return an answer of the registry, None where there is no such thing."""
        import httpx

        query = {"format": self.form} if self.form else {}
        try:
            token = bearer(self.token or "", "the schema registry")
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            answer = httpx.get(self.url + path, params=query, headers=headers, auth=self.user, timeout=TIMEOUT)
            content = answer.json() if answer.content else {}
            if not isinstance(content, dict):
                raise ValueError(f"{type(content).__name__} in place of a JSON object")
        except (httpx.HTTPError, ValueError) as error:
            raise Transient(
                f"the schema registry {self.url} does not answer: {error}", hint="check that it runs"
            ) from error
        if answer.status_code == 404 and content.get("error_code") in _NO_SCHEMA:
            return None
        if answer.status_code != 200:
            report = f"the schema registry {self.url} answers {answer.status_code}: {content.get('message', '')}"
            raise Transient(report, hint="check its address and the credentials")
        return content


@lru_cache(maxsize=16)
def registry(url: str, user: tuple[str, str] | None, token: str | None, form: str) -> SchemaRegistry:
    """Return the registry at a URL, one object per process.

    Raises:
        InvalidValue: it is not a URL.
    """
    if not url.startswith(("http://", "https://")):
        raise InvalidValue(f"schema registry: '{url}' is not a URL", hint='url="https://host:port"')
    return SchemaRegistry(url.rstrip("/"), user, token, form)
