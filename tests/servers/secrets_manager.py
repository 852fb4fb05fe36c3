"""AWS Secrets Manager, as far as reading secrets goes: its protocol, with signatures checked, on a free port."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.sts import is_signed


@dataclass
class SecretsManager:
    """A running service.

    Args:
        keys: the secrets of the keys that may read.
        values: the values by ARN; bytes are binary.
    """

    keys: dict[str, str]
    values: dict[str, str | bytes] = field(default_factory=dict)
    port: int = 0
    refusal: str = ""
    """The code with which all requests are refused, if any."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """The key and the ARN of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, headers: Any, body: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of an answer."""
        key, request = headers["Authorization"].partition("Credential=")[2].partition("/")[0], json.loads(body)
        self.requests.append((key, request["SecretId"]))
        if key not in self.keys:
            return 400, {"__type": "UnrecognizedClientException", "message": "The security token is invalid."}
        if not is_signed("POST", self.url, headers, body, key, self.keys[key]):
            return 400, {"__type": "InvalidSignatureException", "message": "The signature does not match."}
        if self.refusal:
            return 400, {"__type": self.refusal, "message": "refused"}
        if headers["X-Amz-Target"] != "secretsmanager.GetSecretValue" or request["SecretId"] not in self.values:
            return 400, {"__type": "ResourceNotFoundException", "message": "Secrets Manager can't find it."}
        value = self.values[request["SecretId"]]
        shown = {"SecretString": value} if isinstance(value, str) else {"SecretBinary": value.decode()}
        return 200, {"ARN": request["SecretId"], "Name": "n", "VersionId": "v", **shown}


@contextmanager
def running(service: SecretsManager) -> Iterator[SecretsManager]:
    """Run a service for the length of a block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = service.answer(self.headers, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", service.port), Handler) as server:
        service.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield service
        finally:
            server.shutdown()
