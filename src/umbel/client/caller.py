"""What all methods of the client stand on: requests about the branch that is checked out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umbel.client.older import OlderSpellings
from umbel.client.response import Response
from umbel.client.schemas import Schemas
from umbel.client.transport import Transport

if TYPE_CHECKING:
    import httpx

    from umbel.plan.definitions import Definitions

MAIN = "main"


class Caller(OlderSpellings):
    """Sends requests about a branch.

    Args:
        url: of the server.
        token: proves who asks.
        branch: the branch calls are about.
        transport: carries requests instead of the network, for tests.
    """

    def __init__(
        self, url: str, token: str = "", branch: str | None = None, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._transport = Transport(url, token, transport)
        self._branch = branch or MAIN
        self._schemas = Schemas(self._definitions)

    def _send(self, method: str, path: str, **options: Any) -> Response:
        return self._transport.send(method, path, self._branch, **options)

    @staticmethod
    def _object(response: Response) -> dict[str, Any]:
        return dict(response.json())

    def _definitions(self, branch: str) -> Definitions:
        """Return what is committed on a branch."""
        from umbel.plan.serde import load

        return load(self._transport.send("GET", "/api/v1/commit", branch).content)

    def close(self) -> None:
        """Close the connections to the server."""
        self._transport.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_integration_client(self) -> bool:
        """Return whether calls reach a server."""
        return True
