"""The services of AWS that give temporary passwords of Redshift: their protocols, with signatures checked, on a free port."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from tests.servers.sts import is_signed

NAMESPACE = "http://redshift.amazonaws.com/doc/2012-12-01/"
CREDENTIALS = """<GetClusterCredentialsWithIAMResponse xmlns="{namespace}"><GetClusterCredentialsWithIAMResult>
<DbUser>{user}</DbUser><DbPassword>{password}</DbPassword><Expiration>2030-01-01T00:00:00Z</Expiration>
</GetClusterCredentialsWithIAMResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</GetClusterCredentialsWithIAMResponse>"""
ERROR = """<ErrorResponse xmlns="{namespace}"><Error><Type>Sender</Type><Code>{code}</Code><Message>{code}</Message></Error>
<RequestId>1</RequestId></ErrorResponse>"""


@dataclass
class PasswordService:
    """A service for one cluster, or one workgroup, with one database.

    Args:
        session: the key and the secret of the assumed role, and its token.
        name: of the cluster or the workgroup.
        user: of the database, that stands for the role.
        made: is called with each password.
        refuses: the code of the error that it answers with; None for none.
    """

    session: tuple[str, str, str]
    name: str
    user: str
    made: Callable[[str, str], None]
    refuses: str | None = None
    port: int = 0
    requests: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, headers: Any, body: str) -> tuple[int, str, str]:
        """Return the status, the type and the body of an answer."""
        is_json = "X-Amz-Target" in headers
        if is_json:
            action, form = headers["X-Amz-Target"], json.loads(body)
            place, database = form.get("workgroupName"), form.get("dbName")
        else:
            form = {name: values[0] for name, values in parse_qs(body).items()}
            action, place, database = form.get("Action"), form.get("ClusterIdentifier"), form.get("DbName")
        self.requests.append(f"{action} {place} {database}")
        if (problem := self.refuses or self._problem(headers, body, place, is_json=is_json)) is not None:
            if is_json:
                return 400, "application/x-amz-json-1.1", json.dumps({"__type": problem, "message": problem})
            return 400, "text/xml", ERROR.format(namespace=NAMESPACE, code=problem)
        self.made(self.user, password := secrets.token_hex(16))
        if is_json:
            made = {"dbUser": self.user, "dbPassword": password, "expiration": 1893456000.0}
            return 200, "application/x-amz-json-1.1", json.dumps(made)
        return 200, "text/xml", CREDENTIALS.format(namespace=NAMESPACE, user=self.user, password=password)

    def _problem(self, headers: Any, body: str, place: str | None, *, is_json: bool) -> str | None:
        key, secret, token = self.session
        if headers["X-Amz-Security-Token"] != token or f"Credential={key}/" not in headers["Authorization"]:
            return "InvalidClientTokenId"
        if not is_signed("POST", self.url, headers, body, key, secret):
            return "SignatureDoesNotMatch"
        missing = "ResourceNotFoundException" if is_json else "ClusterNotFound"
        return None if place == self.name else missing


@contextmanager
def running(service: PasswordService) -> Iterator[PasswordService]:
    """Run a service for the length of a block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, kind, text = service.answer(self.headers, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", service.port), Handler) as server:
        service.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield service
        finally:
            server.shutdown()
