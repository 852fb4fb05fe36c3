"""The lag of tables of a real MariaDB server: how old the last change was when it was read."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.connectors.mysql_shop import ORDERS, database
from tests.connectors.shop_datasets import deployed, until
from tests.connectors.test_mysql_changes import drained, native
from tests.servers.mysql import MySQLServer
from umbel.connectors.polling import stop_polling


def test_changes_are_behind_until_they_are_read(mysql_server: MySQLServer, tmp_path: Path) -> None:
    name = database(mysql_server)
    run = partial(mysql_server.run, database=name)
    run(ORDERS)
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        (source,) = made.deployment._sources()[1]
        stop_polling(tmp_path)
        run("SET timestamp = unix_timestamp() - 1000", "INSERT INTO orders SELECT seq, 'x', now(6) FROM seq_1_to_50000")
        seen = list[tuple[float, int]]()

        def is_done() -> bool:
            lag = source.reading.lag(None)
            seen.append((lag.seconds or 0.0, lag.rows or 0))
            return made.taken().get("Orders") == 50_000

        until(made, is_done)
        assert max(seconds for seconds, _ in seen) > 900
        assert max(rows for _, rows in seen) > 0
        until(made, lambda: source.reading.lag({"part": 1 << 40}).seconds == 0.0)
