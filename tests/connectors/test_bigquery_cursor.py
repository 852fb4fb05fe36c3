"""Tables of BigQuery, of a fake that speaks its protocol, read by a cursor: every row once, by one query per period."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.connectors import warehouse_kills
from tests.connectors.shop_datasets import deployed, letters, orders, process, rows_of, until
from tests.running_files import files_with
from tests.servers.bigquery import DATASET, PROJECT, FakeBigQuery, running
from umbel.connectors import BigQuery, source
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal
from umbel.errors import InvalidValue, NotSupported, PackageError, Transient
from umbel.integrations.aws import Secret

__owner__ = "shop@example.com"
ORDERS = {"id": "INTEGER", "note": "STRING", "Updated_At": "DATETIME"}
NOW = "now() AT TIME ZONE 'UTC'"


@pytest.fixture
def big(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBigQuery]:
    with running() as fake:
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", fake.address)
        yield fake


def shop(big: FakeBigQuery, **options: Any) -> BigQuery:
    known = {"project_id": PROJECT, "dataset_id": DATASET, "service_account_key": big.key, **options}
    return BigQuery(name="shop", **known)


def inserted(big: FakeBigQuery, first: int, last: int, at: str = NOW) -> None:
    big.run(f"INSERT INTO orders SELECT i, 'n' || i, {at} FROM range({first}, {last + 1}) t(i)")


def table(big: FakeBigQuery) -> list[Any]:
    return [
        (each[0], each[1], each[2].replace(tzinfo=UTC))
        for each in big.run("SELECT id, note, updated_at FROM orders ORDER BY 1")
    ]


def test_rows_and_their_updates_arrive(big: FakeBigQuery, tmp_path: Path) -> None:
    """Results have more than one page."""
    big.create("orders", ORDERS)
    inserted(big, 1, 10_000)
    with deployed(tmp_path, orders(shop(big))) as made:
        until(made, lambda: made.taken().get("Orders") == 10_000)
        big.run(f"UPDATE orders SET note = 'it''s \\ new', updated_at = {NOW} WHERE id <= 10")
        inserted(big, 10_001, 10_005)
        until(made, lambda: made.taken()["Orders"] == 10_015)
        assert rows_of(made, "Orders", ["id", "note", "updated_at"]) == table(big)
        assert letters(made) == []
    assert len([each for each in big.requests if "/queries/" in each]) > 3


def keyless(big: FakeBigQuery, cursor: str, **how: Any) -> Any:
    @source(shop(big).table("events", cursor), **{"disorder": "1h", "every": "1s", "cdc": "append", **how})
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP"])
def test_rows_with_one_cursor_and_late_ones_are_neither_lost_nor_doubled(
    big: FakeBigQuery, tmp_path: Path, kind: str
) -> None:
    big.create("events", {"n": "INTEGER", "at": kind})
    at = "TIMESTAMP '2026-01-01 12:00:00.123456'"
    big.run(f"INSERT INTO events SELECT i, {at} FROM range(100) t(i)")
    with deployed(tmp_path, keyless(big, "at")) as made:
        until(made, lambda: made.taken().get("Events") == 100)
        big.run(f"INSERT INTO events SELECT i, {at} FROM range(100, 150) t(i)")
        big.run(f"INSERT INTO events SELECT i, {at} - INTERVAL 30 MINUTE FROM range(150, 160) t(i)")
        big.run(f"INSERT INTO events VALUES (7, {at})")  # equal to one that was read: a row of its own
        until(made, lambda: made.taken()["Events"] == 161)
        process(made, 2.5)
        assert sorted(made.changes("Events").select("n").to_series()) == sorted([*range(160), 7])


HOSTILE = """chr(92) || '''%s @high `x` -- /* "Q" ä'"""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param("INTEGER", "i - 9223372036854775807", marks=pytest.mark.nightly),
        pytest.param("NUMERIC", "i + 0.000000001", marks=pytest.mark.nightly),
        pytest.param("BIGNUMERIC", "i + 0.00000000000000000001", marks=pytest.mark.nightly),
        ("STRING", f"printf('%06d', i) || {HOSTILE}"),
        pytest.param("DATE", "DATE '2026-01-01' + i::INT", marks=pytest.mark.nightly),
    ],
)
def test_other_cursors(big: FakeBigQuery, tmp_path: Path, kind: str, value: str) -> None:
    """A value that is inserted late, within `disorder`, is found; all rows of one value are read once."""
    big.create("events", {"n": "INTEGER", "at": "DATETIME", "c": kind})
    late = "INSERT INTO events SELECT i, now()::TIMESTAMP, " + value + " FROM range({}, {}) t(i)"
    big.run(late.format(0, 50), late.format(60, 70))
    with deployed(tmp_path, keyless(big, "c", disorder="8s" if kind != "DATE" else "40d")) as made:
        until(made, lambda: made.taken().get("Events") == 60)
        big.run(late.format(50, 60), late.format(69, 70))
        until(made, lambda: made.taken()["Events"] == 71)
        until(made, lambda: "@start" in big.queries[-1]["query"])
        big.run(late.format(70, 80), late.format(69, 70))
        until(made, lambda: made.taken()["Events"] == 82)
        process(made, 2.5)
        assert sorted(made.changes("Events").select("n").to_series()) == sorted([*range(80), 69, 69])
        assert letters(made) == []


def test_one_query_per_period(big: FakeBigQuery, tmp_path: Path) -> None:
    big.create("orders", ORDERS)
    inserted(big, 1, 10)
    with deployed(tmp_path, orders(shop(big), every="2s")) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        before, begun = len(big.queries), time.monotonic()
        process(made, 5)
        stop_polling(tmp_path)
        assert len(big.queries) - before <= (time.monotonic() - begun) / 2 + 2
        assert len(big.dry) == 1, "of the commit"
        jobs = [each for each in big.requests if each.endswith("/jobs")]
        assert len(jobs) == len(big.queries) + len(big.dry)
        assert {each["name"] for each in big.queries[-1]["queryParameters"]} == {"high", "start"}


INNER = [
    {"name": "a", "type": "INTEGER", "mode": "NULLABLE"},
    {"name": "b", "type": "NUMERIC", "mode": "NULLABLE"},
    {"name": "c", "type": "STRING", "mode": "REPEATED"},
    {"name": "at", "type": "TIMESTAMP", "mode": "NULLABLE"},
]
THINGS: dict[str, Any] = {
    "n": "INTEGER", "exact": "NUMERIC", "wide": "BIGNUMERIC", "real": "FLOAT", "nan": "FLOAT", "inf": "FLOAT",
    "yes": "BOOLEAN", "no": "BOOLEAN", "day": "DATE", "clock": "TIME", "naive": "DATETIME", "zoned": "TIMESTAMP",
    "any": "JSON", "list": {"type": "INTEGER", "mode": "REPEATED"}, "empty": {"type": "FLOAT", "mode": "REPEATED"},
    "one": {"type": "RECORD", "mode": "NULLABLE", "fields": INNER},
    "many": {"type": "RECORD", "mode": "REPEATED", "fields": INNER},
    "raw": "BYTES", "nothing": "NUMERIC", "absent": {"type": "RECORD", "mode": "NULLABLE", "fields": INNER}, "Mixed": "STRING",
}  # fmt: skip


def things(big: FakeBigQuery) -> Any:
    class Inner:
        a: int
        b: Optional[Decimal[9]]
        c: list[str]
        at: Optional[datetime]

    @source(shop(big).table("things", "NAIVE"), disorder="1000d", cdc="append", every="1s")
    @dataset
    class Things:
        n: int
        exact: Decimal[9]
        wide: Decimal[20]
        real: float
        nan: float
        inf: float
        yes: bool
        no: bool
        day: date
        clock: str
        naive: datetime = field(timestamp=True)
        zoned: datetime
        any: str
        list: list[int]
        empty: list[float]
        one: Inner
        many: list[Inner]
        raw: bytes
        nothing: Optional[Decimal[2]]
        absent: Optional[Inner]
        mixed: str

    return Things


def test_types(big: FakeBigQuery, tmp_path: Path) -> None:
    big.create("things", THINGS)
    one = "{'a': -9223372036854775808, 'b': 1.5, 'c': ['x', 'ä'], 'at': TIMESTAMPTZ '2024-02-29 12:34:56.789012+00'}"
    big.run(
        f"""INSERT INTO things VALUES (-9223372036854775808, 1234567890123456789.123456789, 12345678.00000000000000000001,
        0.1::DOUBLE + 0.2, 'NaN', '-Infinity', true, false, '2024-02-29', '12:34:56.789012', '2024-02-29 12:34:56.789012',
        '2024-02-29 12:34:56.789012+05:30', '{{"a": [1, null, "ä"]}}', [1, 2], [], {one},
        [{one}, {{'a': 2, 'b': NULL, 'c': [], 'at': NULL}}], '\\x00\\xFF'::BLOB, NULL, NULL, 'ä')"""
    )

    Things = things(big)
    with deployed(tmp_path, Things) as made:
        until(made, lambda: made.taken().get("Things") == 1)
        assert letters(made) == []
        (found,) = made.changes("Things").select(list(Things.schema())).to_dicts()
    at = datetime(2024, 2, 29, 12, 34, 56, 789012, UTC)
    inner = {"a": -(2**63), "b": Number("1.5"), "c": ["x", "ä"], "at": at}
    assert math.isnan(found.pop("nan"))
    assert found == {
        "n": -(2**63), "exact": Number("1234567890123456789.123456789"),
        "wide": Number("12345678.00000000000000000001"), "real": 0.1 + 0.2, "inf": -math.inf,
        "yes": True, "no": False, "day": date(2024, 2, 29), "clock": "12:34:56.789012", "naive": at,
        "zoned": at - timedelta(hours=5, minutes=30), "any": '{"a": [1, null, "ä"]}', "list": [1, 2], "empty": [],
        "one": inner, "many": [inner, {"a": 2, "b": None, "c": [], "at": None}], "raw": b"\x00\xff", "nothing": None,
        "absent": None, "mixed": "ä",
    }  # fmt: skip


def test_values_that_do_not_fit_are_dead_letters(big: FakeBigQuery, tmp_path: Path) -> None:
    big.create("events", {"n": "NUMERIC", "at": "STRING", "c": "INTEGER"})
    big.run(
        "INSERT INTO events VALUES (1, '2026-01-01T00:00:00Z', 1), (2, 'never', 2), (1e19, '2026-01-01T00:00:00Z', 3),"
        " (4.5, '2026-01-01T00:00:00Z', 4), (5, NULL, 5), (6, '2026-01-02T00:00:00Z', 6)"
    )
    with deployed(tmp_path, keyless(big, "c", disorder="1d")) as made:
        until(made, lambda: len(letters(made)) == 4)
        process(made, 2.5)
        assert sorted(made.changes("Events").select("n").to_series()) == [1, 6]
        assert len(letters(made)) == 4


def test_errors_at_commit_say_what_to_do(big: FakeBigQuery, tmp_path: Path) -> None:
    for name, kind in [
        ("orders", "DATETIME"),
        ("secret", "DATETIME"),
        ("floats", "FLOAT"),
        ("clocks", "TIME"),
        ("raw", "BYTES"),
    ]:
        big.create(name, {**ORDERS, "Updated_At": kind})
    big.create("lists", {**ORDERS, "Updated_At": {"type": "INTEGER", "mode": "REPEATED"}})
    big.forbidden.add("secret")
    from tests.servers.bigquery import FakeBigQuery as Other

    stranger = {**big.key, "private_key": Other().key["private_key"]}
    for made, reason in [
        (orders(shop(big, service_account_key=stranger)), r"invalid_grant(?s:.*)make a new key"),
        (orders(shop(big, service_account_key={"private_key": "hidden-8731"})), r"key of the service account is none"),
        (orders(shop(big, service_account_key={**big.key, "private_key": "hidden-8731"})), r"service account is none"),
        (orders(shop(big, project_id="other")), r"Access Denied: Project other(?s:.*)roles/bigquery.jobUser"),
        (orders(shop(big, dataset_id="other")), r"Not found: Dataset(?s:.*)correct project_id= and dataset_id="),
        (orders(shop(big), table="nothing"), r"Not found: Table(?s:.*)table's name"),
        (orders(shop(big), table="secret"), r"does not have permission(?s:.*)roles/bigquery.dataViewer"),
        (orders(shop(big), cursor="updated_by"), r"no column 'updated_by'(?s:.*)did you mean"),
        (orders(shop(big), table="floats"), r"of type FLOAT64 cannot be a cursor"),
        (orders(shop(big), table="clocks"), r"of type TIME cannot be a cursor"),
        (orders(shop(big), table="raw"), r"of type BYTES cannot be a cursor"),
        (orders(shop(big), table="lists"), r"of type ARRAY<INT64> cannot be a cursor"),
        (orders(shop(big), table="a`b"), r"is no name of a table"),
    ]:
        with pytest.raises(InvalidValue, match=reason) as error, deployed(tmp_path / str(abs(hash(reason))), made):
            pass
        for planted in ("hidden-8731", "planted-1", "PRIVATE KEY"):
            assert planted not in str(error.value) + repr(shop(big)) + repr(error.value)
    big.may_query = False
    with pytest.raises(InvalidValue, match=r"jobs.create(?s:.*)jobUser"), deployed(tmp_path, orders(shop(big))):
        pass
    with pytest.raises(NotSupported, match=r"cdc 'native'(?s:.*)upsert"), deployed(tmp_path / "native", native(big)):
        pass
    assert big.queries == [], "a commit reads nothing"


def native(big: FakeBigQuery) -> Any:
    @source(shop(big).table("orders", "updated_at"), disorder="1h", cdc="native")
    @dataset(index=True)
    class Orders:
        id: int = field(key=True)
        updated_at: datetime

    return Orders


def test_the_key_is_a_secret_of_the_deployment(big: FakeBigQuery, tmp_path: Path) -> None:
    """A query's error later on tells nothing of the key, and neither does the deployment's folder."""
    big.create("orders", ORDERS)
    inserted(big, 1, 10)
    with deployed(tmp_path) as made:
        made.deployment.vault.add("bigquery", json.dumps(big.key))
        made.commit([orders(shop(big, service_account_key=Secret(arn="bigquery")))])
        until(made, lambda: made.taken().get("Orders") == 10)
        big.tables.pop("orders")
        until(made, lambda: any("Not found: Table" in each.reason for each in letters(made)))
    assert files_with(big.key["private_key"].splitlines()[1], tmp_path) == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [(429, "rateLimitExceeded"), (403, "quotaExceeded"), (500, "internalError"), (503, "backendError"), (0, "lost")],
)
def test_an_api_that_is_away_for_a_while(
    big: FakeBigQuery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, reason: str
) -> None:
    from umbel.connectors.bigquery import server

    monkeypatch.setattr(server, "PATIENCE", 1)
    big.create("orders", ORDERS)
    inserted(big, 1, 10)
    with deployed(tmp_path, orders(shop(big))) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        left = iter([(status, reason)] * 2)
        inserted(big, 11, 20)
        big.failures = lambda request: None if request.endswith("token") else next(left, None)
        until(made, lambda: made.taken()["Orders"] == 20)
        assert next(left, None) is None
        assert letters(made) == []


def test_a_result_that_cannot_be_sorted_and_an_api_that_is_not_there(
    big: FakeBigQuery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umbel.connectors.bigquery import server

    big.create("orders", ORDERS)
    with deployed(tmp_path, orders(shop(big))) as made:
        big.failures = lambda request: (400, "resourcesExceeded") if "/queries/" in request else None
        until(made, lambda: any("export the rows" in str(each) for each in letters(made)))
    monkeypatch.setattr(server, "PATIENCE", 1)
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(Transient, match="can be reached"), deployed(tmp_path / "other", orders(shop(big))):
        pass


@pytest.mark.nightly
def test_a_killed_worker_goes_on_where_it_was(big: FakeBigQuery, tmp_path: Path) -> None:
    big.create("orders", ORDERS)
    big.create("events", {"n": "INTEGER", "at": "TIMESTAMP"})
    inserted(big, 1, warehouse_kills.EXISTING)
    big.run(f"INSERT INTO events SELECT i, now() FROM range({warehouse_kills.EXISTING}) t(i)")

    def write(first: int, low: int) -> None:
        inserted(big, first, first + 99)
        big.run(f"INSERT INTO events SELECT i, now() FROM range({first - 1}, {first + 99}) t(i)")
        big.run(f"UPDATE orders SET note = 'new', updated_at = {NOW} WHERE id BETWEEN {low} AND {low + 100}")

    datasets = [orders(shop(big), disorder="60s"), keyless(big, "at", disorder="60s")]
    log = warehouse_kills.run(tmp_path, datasets, write, lambda: table(big))
    assert "PRIVATE KEY" not in log


def test_a_missing_package_is_named_at_commit(
    big: FakeBigQuery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big.create("orders", ORDERS)
    monkeypatch.setitem(sys.modules, "google.cloud.bigquery", None)
    with pytest.raises(PackageError, match=r"pip install 'umbel\[bigquery\]'"), deployed(tmp_path, orders(shop(big))):
        pass
