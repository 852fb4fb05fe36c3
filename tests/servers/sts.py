"""The Security Token Service of AWS, as far as assuming roles goes: its protocol, with signatures checked, on a free port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
SESSION = """<AssumeRoleResponse xmlns="{namespace}"><AssumeRoleResult>
<AssumedRoleUser><AssumedRoleId>AROA:umbel</AssumedRoleId><Arn>{role}</Arn></AssumedRoleUser>
<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>
<SessionToken>{token}</SessionToken><Expiration>{expires}</Expiration></Credentials></AssumeRoleResult>
<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleResponse>"""
ERROR = """<ErrorResponse xmlns="{namespace}"><Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error>
<RequestId>1</RequestId></ErrorResponse>"""


@dataclass
class TokenService:
    """A running service.

    Args:
        keys: the secrets of the keys that may assume roles.
        role: the only role there is.
        session: the key and the secret that sessions get.
        lifetime: of a session.
    """

    keys: dict[str, str]
    role: str
    session: tuple[str, str]
    lifetime: timedelta = timedelta(hours=1)
    port: int = 0
    is_down: bool = False
    requests: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, headers: Any, body: str) -> tuple[int, str]:
        """Return the status and the body of an answer."""
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.requests.append(form.get("RoleArn", ""))
        if self.is_down:
            return 503, ERROR.format(namespace=NAMESPACE, code="ServiceUnavailable", text="later")
        if (problem := self._problem(method, headers, body, form)) is not None:
            return 403, ERROR.format(namespace=NAMESPACE, code=problem, text="refused")
        key, secret = self.session
        expires = (datetime.now(UTC) + self.lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
        known = {"key": key, "secret": secret, "token": f"token{len(self.requests)}", "expires": expires}
        return 200, SESSION.format(namespace=NAMESPACE, role=self.role, **known)

    def _problem(self, method: str, headers: Any, body: str, form: dict[str, str]) -> str | None:
        key = headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        if key not in self.keys:
            return "InvalidClientTokenId"
        if not is_signed(method, self.url, headers, body, key, self.keys[key]):
            return "SignatureDoesNotMatch"
        is_right = form.get("Action") == "AssumeRole" and form.get("Version") == "2011-06-15"
        return None if is_right and form["RoleArn"] == self.role and form["RoleSessionName"] else "AccessDenied"


def is_signed(method: str, url: str, headers: Any, body: str, key: str, secret: str) -> bool:
    """Return whether a request has the signature (version 4) of a key."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    scope = headers["Authorization"].partition("Credential=")[2].partition(",")[0].split("/")
    names = headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request = AWSRequest(method, url + "/", data=body, headers={name: headers[name] for name in names})
    request.context["timestamp"] = headers["X-Amz-Date"]
    auth = SigV4Auth(Credentials(key, secret), scope[3], scope[2])
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    return bool(headers["Authorization"].endswith(f"Signature={signature}"))


@contextmanager
def running(service: TokenService) -> Iterator[TokenService]:
    """Run a service for the length of a block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, text = service.answer("POST", self.headers, body)
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
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
