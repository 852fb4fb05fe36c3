"""The step that looks values up in a dataset of umbel."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from umbel.bearer import bearer
from umbel.transform.parameters import parameter
from umbel.transform.registry import TransformStep, step
from umbel.transform.values import dump

if TYPE_CHECKING:
    import httpx

AT_ONCE = 1000
"""Keys of a request."""
URL = "http://127.0.0.1:8425"
RETRIED_FOR, PAUSE = 5.0, 0.2
"""Seconds for which a server is tried that restarts, and between two tries."""
RETRIED = frozenset({429, 502, 503, 504})
"""Statuses of a server that may answer a moment later."""

_unreachable = set[str]()
"""The servers that did not come back in time: until they do, each request is tried once."""


@step
class DatasetLookupStep(TransformStep):
    """Return a field of the row of a dataset whose key is the value.

    It is null if there is no such row. The server is that of `url`, of `UMBEL_URL`, or of this machine; `UMBEL_TOKEN` is sent
    to it. One request asks for the keys of many records. While the server restarts, it is tried for 5 s.
    """

    name = "lookup"
    dataset: str = parameter("The name of the dataset; it has one key field.")
    key: str = parameter("The name of the key field.")
    field: str = parameter("The field to return.")
    url: str | None = parameter("Where the server is.", default=None)
    branch: str = parameter("The branch of the dataset.", default="main")

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        (found,) = self.apply_all([value])
        if isinstance(found, BaseException):
            raise found
        return found

    def apply_all(self, values: Sequence[Any]) -> list[Any]:
        keys = {dump(value): value for value in values}
        found: dict[bytes, Any] = {}
        for start in range(0, len(keys), AT_ONCE):
            part = list(keys)[start : start + AT_ONCE]
            found.update(zip(part, self._rows([keys[each] for each in part]), strict=True))
        return [found[dump(value)] for value in values]

    def _rows(self, keys: list[Any]) -> list[Any]:
        """Return the field of the rows of some keys, exceptions of invalid keys."""
        import httpx

        try:
            return self._retried(keys)
        except httpx.HTTPStatusError as error:
            if len(keys) > 1 and error.response.status_code == httpx.codes.BAD_REQUEST:
                return [found for key in keys for found in self._rows([key])]
            return [ValueError(f"{error.response.status_code}: {error.response.text:.200}")] * len(keys)
        except httpx.HTTPError as error:
            return [ConnectionError(f"{self._server}: {error}")] * len(keys)

    @property
    def _server(self) -> str:
        return (self.url or os.environ.get("UMBEL_URL") or URL).rstrip("/")

    def _retried(self, keys: list[Any]) -> list[Any]:
        """Return the answer of a server, which may be restarting."""
        import httpx

        url = self._server
        until = time.monotonic() + (0.0 if url in _unreachable else RETRIED_FOR)
        while True:
            try:
                found = self._answer(keys)
            except httpx.HTTPError as error:
                if not _may_pass(error):
                    raise
                if time.monotonic() >= until:
                    _unreachable.add(url)
                    raise
                time.sleep(PAUSE)
            else:
                _unreachable.discard(url)
                return found

    def _answer(self, keys: list[Any]) -> list[Any]:
        body = dump({"keys": {self.key: keys}, "fields": [self.field]})
        headers = {"content-type": "application/json", "x-umbel-branch": self.branch}
        if token := bearer(os.environ.get("UMBEL_TOKEN", ""), "UMBEL_TOKEN"):
            headers["authorization"] = f"Bearer {token}"
        response = _client().post(f"{self._server}/api/v1/dataset/{self.dataset}/lookup", content=body, headers=headers)
        response.raise_for_status()
        answer = response.json()
        rows = zip(answer["data"][self.field], answer["found"], strict=True)
        return [value if is_found else None for value, is_found in rows]


def _may_pass(error: httpx.HTTPError) -> bool:
    """Return whether a request may succeed a moment later."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in RETRIED
    return isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)


@lru_cache(maxsize=1)
def _client() -> httpx.Client:
    import httpx

    return httpx.Client(timeout=10.0)
