"""A fake of BigQuery: its REST protocol, as its own client library speaks it, with DuckDB behind it.

From the public reference of the API: tokens for signed assertions of a service account, `tables.get`, `jobs.insert` (also dry
runs, and a job that is inserted twice), `jobs.get`, `jobs.getQueryResults` with pages, and errors with the official bodies.
Queries are those of umbel, whose comparisons and order are DuckDB's.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import duckdb
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.servers.bigquery_sql import Failure, bound, cells, definition, duck, examined

PROJECT, DATASET, LOCATION = "shop-1", "shop", "europe-west1"
EMAIL = f"umbel@{PROJECT}.iam.gserviceaccount.com"
PAGE = 4000
"""Rows of a page, unless fewer are requested."""
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
AUDIENCE, SCOPE = "https://oauth2.googleapis.com/token", "https://www.googleapis.com/auth/bigquery"


class FakeBigQuery:
    """A project with one dataset."""

    def __init__(self) -> None:
        self.database, self.lock = duckdb.connect(":memory:"), threading.Lock()
        self.database.execute("SET TimeZone = 'UTC'")
        self.tables = dict[str, list[dict[str, Any]]]()
        self.queries, self.dry, self.requests = list[dict[str, Any]](), list[str](), list[str]()
        self.forbidden, self.may_query = set[str](), True
        """Tables whose rows may not be read, and whether jobs may be made."""
        self.failures: Callable[[str], tuple[int, str] | None] = lambda _: None
        """The status and the reason of an error instead of the answer to a request; status 0 loses an answer."""
        self.private = rsa.generate_private_key(65537, 2048)
        self.tokens, self.numbers, self.address = set[str](), count(1), ""
        self.jobs = dict[str, dict[str, Any]]()

    @property
    def key(self) -> dict[str, Any]:
        """The key of the service account, as the console gives it."""
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "planted-1",
            "private_key": self.private.private_bytes(*form).decode(),
            "client_email": EMAIL,
            "client_id": "1",
            "token_uri": f"{self.address}/token",
        }

    def create(self, name: str, columns: Mapping[str, str | dict[str, Any]]) -> None:
        """Make a table of columns with types, or with fields of the API."""
        fields = [
            {"name": each, "mode": "NULLABLE", **({"type": kind} if isinstance(kind, str) else kind)}
            for each, kind in columns.items()
        ]
        self.tables[name] = fields
        self.run(f'CREATE OR REPLACE TABLE "{name}"({", ".join(map(definition, fields))})')

    def run(self, *statements: str) -> list[Any]:
        """Run statements of DuckDB; return the rows of the last one."""
        with self.lock:
            for each in statements:
                self.database.execute(each)
            return self.database.fetchall()

    # ---- the protocol ----------------------------------------------------------------------------------------------

    def token(self, form: Mapping[str, list[str]]) -> dict[str, Any]:
        """Return a token for an assertion that the account has signed."""
        assertion = form["assertion"][0]
        signed, _, signature = assertion.rpartition(".")
        claims = json.loads(_decoded(signed.partition(".")[2]))
        try:
            self.private.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            raise Failure(400, "invalid_grant", "Invalid JWT Signature.") from None
        now = time.time()
        is_right = claims["iss"] == EMAIL and claims["aud"] == AUDIENCE and claims["scope"] == SCOPE
        if form["grant_type"] != [GRANT] or not is_right or not claims["iat"] - 60 <= now <= claims["exp"]:
            raise Failure(400, "invalid_grant", "Invalid JWT.")
        self.tokens.add(made := f"ya29.{next(self.numbers)}")
        return {"access_token": made, "expires_in": 3599, "token_type": "Bearer"}

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], body: Any) -> dict[str, Any]:
        """Return the answer to a request of the API."""
        parts = [unquote(each) for each in path.removeprefix("/bigquery/v2/projects/").split("/")]
        if parts[0] != PROJECT:
            raise Failure(403, "accessDenied", f"Access Denied: Project {parts[0]}: User does not have access to it.")
        match (method, parts[1:]):
            case ("GET", ["datasets", dataset, "tables", table]):
                return self._table(dataset, table)
            case ("POST", ["jobs"]):
                return self._insert(body)
            case ("GET", ["jobs", job]):
                return self._job(job)
            case ("GET", ["queries", job]):
                return self._page(job, query)
        raise Failure(404, "notFound", f"Not found: {method} {path}")

    def _fields(self, dataset: str, table: str) -> list[dict[str, Any]]:
        if dataset != DATASET:
            raise Failure(404, "notFound", f"Not found: Dataset {PROJECT}:{dataset}")
        if table not in self.tables:
            raise Failure(404, "notFound", f"Not found: Table {PROJECT}:{dataset}.{table}")
        return self.tables[table]

    def _table(self, dataset: str, table: str) -> dict[str, Any]:
        fields = self._fields(dataset, table)
        reference = {"projectId": PROJECT, "datasetId": dataset, "tableId": table}
        known = {"tableReference": reference, "type": "TABLE", "location": LOCATION, "numRows": "0"}
        return {"kind": "bigquery#table", "schema": {"fields": fields}, **known}

    def _insert(self, body: Any) -> dict[str, Any]:
        configuration, reference = body["configuration"], body["jobReference"]
        if not self.may_query:
            text = f"Access Denied: Project {PROJECT}: User does not have bigquery.jobs.create permission in it."
            raise Failure(403, "accessDenied", text)
        if reference["jobId"] in self.jobs:
            raise Failure(409, "duplicate", f"Already Exists: Job {PROJECT}:{LOCATION}.{reference['jobId']}")
        requested = configuration["query"]
        if requested["useLegacySql"] is not False or reference.get("location") != LOCATION:
            raise Failure(404, "notFound", f"Not found: Dataset {PROJECT}:{DATASET} was not found in this location")
        dataset, table = examined(requested["query"])
        fields = self._fields(dataset, table)
        if table in self.forbidden:
            text = f"Access Denied: Table {PROJECT}:{dataset}.{table}: User does not have permission to query it."
            raise Failure(403, "accessDenied", text)
        made: dict[str, Any] = {
            "jobReference": reference,
            "configuration": configuration,
            "status": {"state": "DONE"},
            "statistics": {"query": {"statementType": "SELECT"}},
        }
        values = bound(requested.get("queryParameters", ()), requested["query"], fields)
        names, columns = duck(requested["query"], fields)
        if configuration.get("dryRun"):
            self.dry.append(requested["query"])
            return made
        self.queries.append(requested)
        with self.lock:
            try:
                rows = self.database.execute(names, values).fetchall()
            except duckdb.Error as error:
                raise Failure(400, "invalidQuery", str(error).splitlines()[0]) from None
        self.jobs[reference["jobId"]] = {"job": made, "fields": columns, "rows": rows}
        return made

    def _found(self, job: str) -> dict[str, Any]:
        if job not in self.jobs:
            raise Failure(404, "notFound", f"Not found: Job {PROJECT}:{LOCATION}.{job}")
        return self.jobs[job]

    def _job(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self._found(job)["job"]
        return found

    def _page(self, job: str, query: Mapping[str, list[str]]) -> dict[str, Any]:
        found = self._found(job)
        start = int(query.get("pageToken", ["at:0"])[0].partition(":")[2])
        size = min(PAGE, int(query.get("maxResults", [str(PAGE)])[0]))
        is_whole = query.get("formatOptions.useInt64Timestamp", ["false"])[0].lower() == "true"
        rows, total = found["rows"][start : start + size], len(found["rows"])
        further = {"pageToken": f"at:{start + size}"} if start + size < total else {}
        return {
            "jobReference": found["job"]["jobReference"],
            "jobComplete": True,
            "totalRows": str(total),
            "schema": {"fields": found["fields"]},
            "rows": [cells(found["fields"], row, is_whole=is_whole) for row in rows],
            **further,
        }


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Handler(BaseHTTPRequestHandler):
    """Answers requests with what the fake of the API says."""

    protocol_version = "HTTP/1.1"
    fake: FakeBigQuery

    def do_POST(self) -> None:
        self.answered(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def do_GET(self) -> None:
        self.answered(b"")

    def answered(self, body: bytes) -> None:
        url, failure = urlsplit(self.path), None
        self.fake.requests.append(f"{self.command} {url.path}")
        try:
            failure = self.fake.failures(f"{self.command} {url.path}")
            if failure is not None and failure[0]:
                raise Failure(failure[0], failure[1], f"{failure[1]} of the test")
            if url.path == "/token":
                self.reply(200, self.fake.token(parse_qs(body.decode())))
                return
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token not in self.fake.tokens:
                raise Failure(401, "authError", "Request had invalid authentication credentials.")
            found = self.fake.answer(self.command, url.path, parse_qs(url.query), json.loads(body or b"{}"))
            if failure is not None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.reply(200, found)
        except Failure as error:
            if url.path == "/token":
                self.reply(error.code, {"error": error.reason, "error_description": str(error)})
            else:
                self.reply(error.code, error.body)

    def reply(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def running() -> Iterator[FakeBigQuery]:
    """Run the fake for a block."""
    fake = FakeBigQuery()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"fake": fake}))
    server.daemon_threads = True
    fake.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
