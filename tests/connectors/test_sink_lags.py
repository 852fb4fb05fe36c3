"""What `umbel status`, `umbel doctor` and metrics say of a sink that is held up."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.connectors.sink_shop import Shop
from tests.connectors.sink_tables import Tables
from tests.deployed import wait_until
from tests.servers.postgres import PostgresServer
from umbel.cli.checks import lag_findings
from umbel.cli.main import app
from umbel.runtime.deliveries import Deliveries
from umbel.runtime.sink_lags import FILE, SinkLag, record_sinks, sink_lags


def lag(made: Shop) -> SinkLag | None:
    """Return the lag of the sink of the sales, None before it is recorded."""
    return next((each for each in sink_lags(made.folder) if each.dataset == "Large"), None)


def test_a_sink_that_fails_is_shown_until_it_goes_on(tables: Tables, made: Shop) -> None:
    tables.run("ALTER TABLE large RENAME amount TO price")
    made.sell(20)
    made.drain()
    with Deliveries(made.deployed.deployment):
        wait_until(lambda: (found := lag(made)) and "has no column 'amount'" in found.trouble, lambda: lag(made), 30)
        found = {each.subject: each for each in lag_findings(made.folder)}
        assert {name: each.level for name, each in found.items()} == {"sink of Large": "warning", "sink of Norse": "ok"}
        assert "Postgres 'shop', table 'large': " in found["sink of Large"].found
        status = CliRunner().invoke(app, ["status", "--dir", str(made.folder)])
        assert "sink of Large: Postgres 'shop', table 'large': " in status.output
        assert "has no column 'amount'" in status.output
        tables.run("ALTER TABLE large RENAME price TO amount")
        wait_until(lambda: (found := lag(made)) and not found.is_bad, lambda: lag(made), 30)


def test_a_destination_that_never_answers_is_behind(
    postgres_server: PostgresServer, tables: Tables, made: Shop
) -> None:
    made.sell(20)
    made.drain()
    with Deliveries(made.deployed.deployment), postgres_server.connect(tables.name) as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE large")
        wait_until(lambda: (found := lag(made)) and found.seconds > 2, lambda: lag(made), 30)
        connection.execute("ROLLBACK")
        wait_until(lambda: tables.amounts() == [20], tables.amounts, 30)
        wait_until(lambda: (found := lag(made)) and found.seconds < 2, lambda: lag(made), 30)


def test_lags_of_sinks_are_recorded(tmp_path: Path) -> None:
    record_sinks(tmp_path, [])
    assert not (tmp_path / FILE).exists()
    slow, failing = SinkLag("A", "Kafka 'k'", 100.0, "", 1.0), SinkLag("B", "HTTP 'h'", 5.0, "status 404", 1.0)
    record_sinks(tmp_path, [slow, failing])
    assert sink_lags(tmp_path) == [slow, failing]
    assert str(slow) == "Kafka 'k': 100 s behind"
    assert "locks or slows it" in slow.remedy
    assert str(failing) == "HTTP 'h': 5 s behind: status 404"
    assert "what the message says" in failing.remedy
    assert SinkLag("C", "c", 0.0, "", 1.0).remedy == ""
    record_sinks(tmp_path, [])
    assert sink_lags(tmp_path) == []
    record_sinks(tmp_path / "missing", [slow])


@pytest.mark.parametrize("content", [b"", b"{", b'[{"dataset": "A"}]', b"[[]]", b"\xff\xfe"])
def test_a_damaged_record_of_sinks_is_no_record(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert sink_lags(tmp_path) == []
