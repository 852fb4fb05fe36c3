"""What the page on Postgres shows works on a server: its statements, then its definitions."""

from __future__ import annotations

import re
from decimal import Decimal as Number
from pathlib import Path

import pytest

from tests.connectors.postgres_shop import database
from tests.connectors.shop_datasets import deployed, letters, until
from tests.docs.test_snippets import ROOT, run, snippets
from tests.scenarios.server import HOST
from tests.servers.postgres import PostgresServer

PAGE = ROOT / "docs" / "howto" / "postgres.md"


def test_the_page(postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = database(postgres_server), PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for statement in re.split(r";\s*\n", re.sub(r"--.*", "", block)):
            if statement.strip():
                postgres_server.run(statement, database=name)
    settings = {"HOST": HOST, "PORT": str(postgres_server.port), "DATABASE": name, "PASSWORD": "change-me"}
    for key, value in settings.items():
        monkeypatch.setenv(f"SHOP_{key}", value)
    run(PAGE, snippets(text))
    from sys import modules

    page = modules["page_postgres"]
    with deployed(tmp_path, page.User, page.Order, page.OrdersOfUser) as made:
        postgres_server.run(
            "INSERT INTO users(id, city) VALUES (1, 'Oslo'), (2, 'Rome')",
            "INSERT INTO orders(user_id, amount) VALUES (1, 2.50), (1, 3.25), (2, 1)",
            database=name,
        )
        until(made, lambda: made.taken() == {"User": 2, "Order": 3})
        postgres_server.run("DELETE FROM users WHERE id = 2", database=name)
        until(made, lambda: made.taken()["User"] == 3)
        assert made.changes("Order")["amount"].sort().to_list() == [Number("1.00"), Number("2.50"), Number("3.25")]
        assert letters(made) == []
