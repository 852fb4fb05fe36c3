"""Tables of Postgres through all of umbel: `umbel run` with its server and its worker on Spark."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.connectors import postgres_features
from tests.running_files import files_with
from tests.scenarios.test_http_run import Run
from tests.servers.postgres import PASSWORD, PostgresServer, running

TABLES = (
    "CREATE TABLE users(uid bigint PRIMARY KEY, city text NOT NULL, updated_at timestamptz NOT NULL DEFAULT now())",
    "CREATE TABLE orders(id bigserial PRIMARY KEY, uid bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())",
    "INSERT INTO users SELECT i, 'Oslo' FROM generate_series(1, 3) i",
    "INSERT INTO orders(uid) SELECT 1 + i % 2 FROM generate_series(1, 10) i",
)


class PostgresRun(Run):
    """`umbel run` of a program that reads Postgres."""

    def command(self, port: int) -> list[str]:
        umbel = [sys.executable, "-m", "umbel.cli.main", "run", postgres_features.__name__]
        return [*umbel, "--dir", str(self.folder / "umbel"), "--port", str(port), "-w", "1"]

    def shoppers(self) -> list[Any]:
        """Return the city and the number of orders of users 1 to 4."""
        body = {"inputs": ["Shopper.uid"], "outputs": ["Shopper.city", "Shopper.orders"]}
        found = self.http.post("/api/v1/query", json={**body, "data": {"Shopper.uid": [1, 2, 3, 4]}}).json()
        if found.get("code") == "backfilling":  # the tables are being read for the first time
            return []
        return list(zip(found["Shopper.city"], found["Shopper.orders"], strict=True))

    def end(self) -> None:
        """End it with all of its processes."""
        self.http.close()
        family = self.family() if self.process.poll() is None else []
        self.process.kill()
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.wait()


def test_tables_are_features(tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    del postgres_server  # skipped where there can be none
    with running() as server:
        monkeypatch.setenv("SHOP_PORT", str(server.port))
        monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
        server.run(*TABLES)
        run = PostgresRun(tmp_path)
        try:
            run.wait_until_ready()
            run.wait(lambda: run.shoppers() == [("Oslo", 5), ("Oslo", 5), ("Oslo", 0), ("?", 0)])
            server.run(
                "UPDATE users SET city = 'Bergen', updated_at = now() WHERE uid = 1",
                "DELETE FROM users WHERE uid = 2",
                "INSERT INTO users VALUES (4, 'Narvik')",
                "INSERT INTO orders(uid) VALUES (4), (4)",
            )
            run.wait(lambda: run.shoppers() == [("Bergen", 5), ("?", 5), ("Oslo", 0), ("Narvik", 2)])
            assert files_with(PASSWORD, tmp_path, besides="catalog.db") == []
        finally:
            run.end()
