"""What the page on MySQL shows works on a server: its statements and settings, then its definitions."""

from __future__ import annotations

import re
from decimal import Decimal as Number
from pathlib import Path
from sys import modules

import pytest

from tests.connectors.shop_datasets import deployed, letters, until
from tests.docs.test_snippets import ROOT, run, snippets
from tests.scenarios.server import HOST
from tests.servers import mysql
from tests.servers.mysql import MySQLServer

PAGE = ROOT / "docs" / "howto" / "mysql.md"


def test_the_page(mysql_server: MySQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del mysql_server  # skipped where there can be none
    text = PAGE.read_text(encoding="utf-8")
    (configuration,) = re.findall(r"^```text\n(\[mysqld\].*?)^```$", text, re.MULTILINE | re.DOTALL)
    with mysql.running(configuration) as server:
        server.run("CREATE DATABASE shop")
        for block in re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            for statement in re.split(r";\s*\n", block):
                if statement.strip():
                    server.run(statement, database="shop")
        settings = {"HOST": HOST, "PORT": str(server.port), "DATABASE": "shop", "PASSWORD": "change-me"}
        for key, value in settings.items():
            monkeypatch.setenv(f"SHOP_{key}", value)
        run(PAGE, snippets(text))
        page = modules["page_mysql"]
        with deployed(tmp_path, page.User, page.Order, page.OrdersOfUser) as made:
            server.run(
                "INSERT INTO users(id, city) VALUES (1, 'Oslo'), (2, 'Rome')",
                "INSERT INTO orders(user_id, amount) VALUES (1, 2.50), (1, 3.25), (2, 1)",
                database="shop",
            )
            until(made, lambda: made.taken() == {"User": 2, "Order": 3})
            server.run("DELETE FROM users WHERE id = 2", database="shop")
            until(made, lambda: made.taken()["User"] == 3)
            assert made.changes("Order")["amount"].sort().to_list() == [Number("1.00"), Number("2.50"), Number("3.25")]
            assert letters(made) == []
