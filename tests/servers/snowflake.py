"""A fake of Snowflake: its protocol over HTTP, as its own client library speaks it, with DuckDB behind it.

From the public knowledge of the protocol: a login, statements with results as JSON (`DESCRIBE`) or Arrow (`SELECT`, a first part
within the answer and further ones as chunks), errors with their codes, the end of a session. Statements are those of umbel;
the few functions in them are written for DuckDB. It is no proof of what Snowflake's functions do.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa

from tests.servers.snowflake_sql import MACROS, NAME, Failure, Locks, Session, bound, column

USER, PASSWORD, ROLE = "UMBEL", "hidden-4711", "READER"
CHUNK = 4000
"""Rows of a part of a result."""
_ARROW = {pa.float64(): "REAL", pa.binary(): "BINARY", pa.bool_(): "BOOLEAN", pa.string(): "TEXT"}


class FakeSnowflake:
    """An account with one database and one schema."""

    def __init__(self) -> None:
        self.database, self.lock = duckdb.connect(":memory:"), threading.Lock()
        self.tables = dict[str, list[tuple[str, str, bool]]]()
        self.statements, self.sessions, self.ended = list[str](), list[str](), 0
        self.forbidden: set[str] = set()
        """Tables that the role may describe, not read."""
        self.away = False
        """True to answer all requests with the status 503."""
        self.read_only: set[str] = set()
        """Tables that the role may read, not change."""
        self.loses: Callable[[str], bool] = lambda _: False
        """Whether the answer to a statement is lost, after the statement was done."""
        self.chunks, self.numbers = dict[str, bytes](), count(1)
        self.answers = dict[str, dict[str, Any]]()
        """Answers by the ids of requests: a request that is sent again is done once."""
        self.address, self.open, self.locks = "", dict[str, Session](), Locks()
        self.run("SET TimeZone = 'UTC'", *MACROS)

    def create(self, name: str, columns: Mapping[str, str], primary: Sequence[str] = ()) -> None:
        """Make a table; names are exact, types those of Snowflake."""
        self.tables[name] = [(each, kind, each in primary) for each, kind in columns.items()]
        listed = ", ".join(column(each, kind) for each, kind in columns.items())
        quoted = name.replace('"', '""')
        self.run(f'CREATE OR REPLACE TABLE "{quoted}"({listed})')

    def run(self, *statements: str) -> list[Any]:
        """Run statements of DuckDB; return the rows of the last one."""
        with self.lock:
            for each in statements:
                self.database.execute(each)
            return self.database.fetchall()

    # ---- the protocol ----------------------------------------------------------------------------------------------

    def login(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of an answer to a login."""
        if (data["LOGIN_NAME"].upper(), data.get("PASSWORD")) != (USER, PASSWORD):
            raise Failure("390100", "08001", "Incorrect username or password was specified.")
        token = f"token-{next(self.numbers)}"
        self.sessions.append(token)
        self.open[token] = Session(self.database, self.locks)
        return {
            "token": token,
            "masterToken": f"master-{token}",
            "validityInSeconds": 3600,
            "masterValidityInSeconds": 14400,
            "sessionId": len(self.sessions),
            "serverVersion": "9.0.0",
            "parameters": [{"name": "CLIENT_TELEMETRY_ENABLED", "value": False}],
            "sessionInfo": {"databaseName": "SHOP", "schemaName": "PUBLIC", "warehouseName": "W", "roleName": ROLE},
        }

    def logout(self, token: str) -> None:
        """End a session, and its transaction."""
        if token in self.open:
            self.open.pop(token).end()
        self.ended += 1

    def query(self, token: str, request: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of an answer to a statement."""
        if token not in self.open:
            raise Failure("390104", "08001", "Session token not found or invalid data")
        if request not in self.answers:
            self.statements.append(body["sqlText"])
            self.answers[request] = self._done(self.open[token], body["sqlText"], bound(body.get("bindings")))
        return self.answers[request]

    def _done(self, session: Session, statement: str, values: Sequence[Any]) -> dict[str, Any]:
        if statement in {"BEGIN", "COMMIT", "ROLLBACK"}:
            session.run(statement)
            return _answered({"status": "Statement executed successfully."}, 4096)
        if found := re.fullmatch(r"CREATE TABLE IF NOT EXISTS (\w+)\((.*)\)", statement):
            session.end("COMMIT")  # as each DDL does
            kinds = dict(each.split(" ", 1) for each in re.split(r", (?![^(]*\))", found[2]))
            if found[1].upper() not in self.tables:
                self.create(found[1].upper(), {name.upper(): kind for name, kind in kinds.items()})
            return _answered({"status": "Table successfully created."}, 4096)
        named = re.search(rf"(?:DESCRIBE TABLE|UPDATE|INTO| FROM) {NAME}", statement)
        assert named, statement
        table = named[1][1:-1].replace('""', '"') if named[1][0] == '"' else named[1].upper()
        if statement.startswith("DESCRIBE"):
            return self._described(table)
        self._columns(table)
        is_read = statement.startswith("SELECT")
        if table in self.forbidden or (table in self.read_only and not is_read):
            raise Failure("003001", "42501", f"Insufficient privileges to operate on table '{table}'.")
        if is_read:
            return self._selected(session, statement, values)
        kinds = {"INSERT": 0x3100, "UPDATE": 0x3200, "MERGE": 0x3400}
        done = session.changed(statement, values, table)
        counts = {f"number of rows {each}": count for each, count in done.items()}
        return _answered(counts, kinds[statement.split(maxsplit=1)[0]])

    def _columns(self, table: str) -> list[tuple[str, str, bool]]:
        if table not in self.tables:
            raise Failure("002003", "42S02", f"Object '{table}' does not exist or not authorized.")
        return self.tables[table]

    def _described(self, table: str) -> dict[str, Any]:
        rows = [[name, kind, "COLUMN", "Y", None, "Y" if key else "N"] for name, kind, key in self._columns(table)]
        names = ["name", "type", "kind", "null?", "default", "primary key"]
        kinds = [
            {
                "name": name,
                "type": "text",
                "nullable": True,
                "length": 1 << 24,
                "byteLength": 1 << 24,
                "precision": None,
                "scale": None,
            }
            for name in names
        ]
        return {**_answer(len(rows), kinds), "queryResultFormat": "json", "rowset": rows}

    def _selected(self, session: Session, statement: str, values: Sequence[Any]) -> dict[str, Any]:
        table = session.run(statement, values).to_arrow_table()
        schema = pa.schema(
            pa.field(
                each.name,
                each.type,
                metadata={"logicalType": _ARROW[each.type], "charLength": "16777216", "byteLength": "16777216"},
            )
            for each in table.schema
        )
        kinds = [
            {
                "name": each.name,
                "type": _ARROW[each.type].lower(),
                "nullable": True,
                "length": None,
                "byteLength": None,
                "precision": None,
                "scale": None,
            }
            for each in schema
        ]
        table = pa.Table.from_arrays(table.columns, schema=schema)
        parts = [table.slice(start, CHUNK) for start in range(0, max(1, table.num_rows), CHUNK)]
        first, chunks = _stream(parts[0]), [self._chunk(each) for each in parts[1:]]
        return {
            **_answer(table.num_rows, kinds),
            "queryResultFormat": "arrow",
            "rowsetBase64": base64.b64encode(first).decode(),
            **({"chunks": chunks, "chunkHeaders": {"x-key": "k"}} if chunks else {}),
        }

    def _chunk(self, table: pa.Table) -> dict[str, Any]:
        path, content = f"/chunks/{next(self.numbers)}", _stream(table)
        packed = self.chunks[path] = gzip.compress(content, 1)
        sizes = {"uncompressedSize": len(content), "compressedSize": len(packed)}
        return {"url": f"{self.address}{path}", "rowCount": table.num_rows, **sizes}


def _answered(row: Mapping[str, Any], type_of: int) -> dict[str, Any]:
    """Return an answer of one row."""
    is_text = isinstance(next(iter(row.values())), str)
    shape = {"nullable": False, "length": None, "byteLength": None, "precision": None if is_text else 19, "scale": 0}
    kinds = [{"name": name, "type": "text" if is_text else "fixed", **shape} for name in row]
    found = [str(each) for each in row.values()]
    return {**_answer(1, kinds), "statementTypeId": type_of, "queryResultFormat": "json", "rowset": [found]}


def _answer(rows: int, kinds: Sequence[Any]) -> dict[str, Any]:
    return {
        "parameters": [],
        "rowtype": list(kinds),
        "total": rows,
        "returned": rows,
        "queryId": "01",
        "numberOfBinds": 0,
        "statementTypeId": 4096,
        "version": 1,
        "finalDatabaseName": "SHOP",
        "finalSchemaName": "PUBLIC",
    }


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class Handler(BaseHTTPRequestHandler):
    """Answers requests with what the fake of its server says."""

    protocol_version = "HTTP/1.1"
    fake: FakeSnowflake

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        if self.fake.away:
            self.reply(503, b"")
            return
        answer: dict[str, Any] = {"data": None, "code": None, "message": None, "success": True}
        try:
            answer["data"] = self.answered(json.loads(body or b"{}"))
        except Failure as error:
            answer |= {"code": error.code, "message": str(error), "success": False}
            answer["data"] = {"errorCode": error.code, "sqlState": error.state, "queryId": "01"}
        self.reply(200, json.dumps(answer).encode())

    def answered(self, body: Any) -> Any:
        path = urlsplit(self.path)
        if path.path == "/session/v1/login-request":
            return self.fake.login(body["data"])
        if path.path == "/queries/v1/query-request":
            request = re.search(r"requestId=([^&]+)", path.query)
            found = self.fake.query(self.token(), request[1] if request else "", body)
            if self.fake.loses(body["sqlText"]):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            return found
        if "delete=true" in path.query:
            self.fake.logout(self.token())
        return None

    def token(self) -> str:
        found = re.search(r'Token="([^"]*)"', self.headers.get("Authorization", ""))
        return found[1] if found else ""

    def do_GET(self) -> None:
        content = self.fake.chunks.get(self.path)
        is_there = content is not None and not self.fake.away and self.headers.get("x-key") == "k"
        self.reply(200 if is_there else 503, content if is_there and content else b"", "gzip" if is_there else "")

    def reply(self, status: int, content: bytes, encoding: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def running() -> Iterator[FakeSnowflake]:
    """Run the fake for a block."""
    fake = FakeSnowflake()

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
