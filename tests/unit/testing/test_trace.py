"""Traces of values: tiles and rows that are computed by hand, through each kind of operator."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pandas as pd
import pytest

from umbel import (
    Continuous,
    Count,
    Dataset,
    MockClient,
    Sum,
    Tumbling,
    Webhook,
    col,
    dataset,
    extractor,
    featureset,
    field,
    index,
    inputs,
    outputs,
    pipeline,
    source,
)
from umbel import feature as F
from umbel.client.trace import Trace
from umbel.errors import InvalidType, InvalidValue, UmbelError, UnknownName

__owner__ = "tests@example.com"
shop = Webhook(name="shop")
NOON = "2026-03-02T12:00:00Z"


@source(shop.endpoint("orders"), disorder="1d", cdc="append")
@dataset
class Order:
    user: str
    sku: str
    amount: float
    at: datetime


@source(shop.endpoint("refunds"), disorder="1d", cdc="append")
@dataset
class Refund:
    user: str
    sku: str
    amount: float
    at: datetime


@source(shop.endpoint("prices"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Price:
    sku: str = field(key=True)
    factor: float
    at: datetime


@source(shop.endpoint("carts"), disorder="1d", cdc="debezium")
@dataset(index=True)
class Cart:
    user: str = field(key=True, erase_key=True)
    items: int
    at: datetime


@index
@dataset
class Spending:
    user: str = field(key=True)
    spent: float
    ever: int
    at: datetime

    @pipeline
    @inputs(Order, Refund, Price)
    def of_user(cls, orders: Dataset, refunds: Dataset, prices: Dataset):
        every = orders.filter(col("amount") > 0.0) + refunds
        priced = every.join(prices, how="left", on=["sku"])
        return priced.groupby("user").aggregate(
            spent=Sum(of="amount", window=Continuous("1h")), ever=Count(window=Continuous("forever"))
        )


@index
@dataset
class Hourly:
    user: str = field(key=True)
    spent: float
    at: datetime

    @pipeline
    @inputs(Order)
    def by_hour(cls, orders: Dataset):
        return orders.groupby("user").aggregate(spent=Sum(of="amount", window=Tumbling("1h")), emit="final")


@index
@dataset
class Busy:
    spent: float = field(key=True)
    users: int
    at: datetime

    @pipeline
    @inputs(Hourly)
    def by_sum(cls, hourly: Dataset):
        return hourly.groupby("spent").aggregate(users=Count(window=Continuous("forever")))


@index
@dataset
class CartsOfSize:
    items: int = field(key=True)
    carts: int
    at: datetime

    @pipeline
    @inputs(Cart)
    def by_size(cls, carts: Dataset):
        return carts.groupby("items").aggregate(carts=Count(window=Continuous("forever")))


@featureset
class User:
    user: str
    spent: float = F(Spending.spent, default=0.0)
    twice: float = F(col("spent") * 2.0)
    cart: int

    @extractor(deps=[Cart])
    @inputs("user")
    @outputs("cart")
    def of_cart(cls, ts: pd.Series, user: pd.Series):
        rows, _ = Cart.lookup(ts, user=user)
        return pd.Series(rows["items"].fillna(0).astype(int), name="cart")


def logged(client: MockClient, endpoint: str, *rows: dict[str, Any]) -> None:
    client.log("shop", endpoint, pd.DataFrame(list(rows)))


def at(clock: str) -> str:
    return f"2026-03-02T{clock}:00Z"


@pytest.fixture
def client() -> MockClient:
    client = MockClient()
    client.commit(
        "shop",
        datasets=[Order, Refund, Price, Cart, Spending, Hourly, Busy, CartsOfSize],
        featuresets=[User],
    )
    logged(client, "prices", {"sku": "a", "factor": 2.0, "at": at("08:00")})  # row 0
    logged(
        client,
        "orders",
        {"user": "ada", "sku": "a", "amount": 1.0, "at": at("10:30")},  # row 1
        {"user": "ada", "sku": "a", "amount": 30.0, "at": at("11:10")},
        {"user": "ada", "sku": "b", "amount": 0.0, "at": at("11:20")},
        {"user": "bob", "sku": "b", "amount": 5.0, "at": at("11:30")},
        {"user": "ada", "sku": "b", "amount": 9.0, "at": at("12:30")},
    )
    logged(client, "refunds", {"user": "ada", "sku": "b", "amount": -10.0, "at": at("11:40")})  # row 6
    logged(client, "carts", debezium("ada", 3, "08:00", "c"))
    logged(client, "carts", debezium("ada", 4, "09:00", "u"))
    return client


def debezium(user: str, items: int, clock: str, how: str) -> dict[str, Any]:
    row = {"user": user, "items": items, "at": at(clock)}
    before = None if how == "c" else {**row, "items": items - 1}
    return {"before": before, "after": row, "op": how, "ts_ms": 0, "source": {}}


def one(found: Trace) -> dict[str, Any]:
    (lookup,) = found.lookups
    return dict(lookup)


def rows_of(changes: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(changes["data"][name] for name in names), strict=True))


def test_a_window_is_traced_to_tiles_rows_and_sources(client: MockClient) -> None:
    found = client.trace([User.spent, User.twice], {User.user: "ada"}, at=NOON)
    assert (found.at, found.values) == (NOON, {"User.spent": 20.0, "User.twice": 40.0})
    lookup = one(found)
    assert (lookup["dataset"], lookup["keys"], lookup["found"]) == ("Spending", {"user": "ada"}, True)
    assert lookup["values"] == {"spent": 20.0, "at": at("11:40")}
    (tiles,) = lookup["tiles"]
    assert (tiles["window"], tiles["count"], tiles["rows"]) == ("1h", 2, [1, 1])
    assert (tiles["first"], tiles["last"]) == ([at("11:10"), at("11:40")],) * 2
    assert tiles["values"] == {"spent": [30.0, -10.0]}
    (changes,) = lookup["rows"]
    assert changes["of"].startswith("join of union of ")
    assert rows_of(changes, "sku", "amount", "factor") == [("a", 30.0, 2.0), ("b", -10.0, None)]
    assert (changes["count"], changes["weight"], changes["batch"]) == (2, [1, 1], [None, None])
    assert changes["source"] == [["row 2"], ["row 6"]]
    assert (lookup["computed"], lookup["joined"]) == ([], ["Price"])


def test_what_is_summed_is_what_is_listed(client: MockClient) -> None:
    """Trace at instants around those at which rows come and go: the listed rows sum up to the value."""
    clocks = [
        "10:29",
        "10:30",
        "11:10",
        "11:29",
        "11:30",
        "11:31",
        "12:09",
        "12:10",
        "12:11",
        "12:40",
        "12:41",
        "13:31",
    ]
    moments = [
        pd.Timestamp(at(clock)) + pd.Timedelta(us, "us") for clock in clocks for us in (-1, 0, 1, 999_999, 1_000_000)
    ]
    for moment in moments:
        lookup = one(client.trace_row(Spending, {"user": "ada"}, at=moment, rows=100))
        windows = {each["window"]: each for each in lookup["tiles"]}
        (changes,) = lookup["rows"]
        spent, ever = lookup["values"]["spent"] or 0.0, lookup["values"]["ever"] or 0
        assert sum(windows["1h"]["values"]["spent"]) == spent, moment
        assert sum(windows["forever"]["values"]["ever"]) == changes["count"] == ever, moment
        only = client.trace([User.spent], {User.user: "ada"}, at=moment).lookups[0]["rows"][0]
        assert sum(only["data"]["amount"]) == spent, moment


def test_lists_are_cut_to_the_newest_and_counted(client: MockClient) -> None:
    lookup = one(client.trace_row("Spending", {"user": "ada"}, at=at("13:00"), rows=1))
    assert [(each["count"], each["last"]) for each in lookup["tiles"]] == [(1, [at("12:30")]), (4, [at("12:30")])]
    (changes,) = lookup["rows"]
    assert (changes["count"], changes["at"]) == (4, [at("12:30")])
    nothing = one(client.trace_row("Spending", {"user": "ada"}, at=at("13:00"), rows=0))
    assert (nothing["rows"][0]["count"], nothing["rows"][0]["source"]) == (4, [])


def test_versions_are_traced_to_the_rows_that_began_them(client: MockClient) -> None:
    logged(client, "prices", {"sku": "a", "factor": 3.0, "at": at("11:00")})  # row 9
    (changes,) = one(client.trace_row(Price, {"sku": "a"}, at=NOON))["rows"]
    assert changes["of"] == "dataset 'Price'"
    ends = [(*row, weight) for row, weight in zip(rows_of(changes, "factor"), changes["weight"], strict=True)]
    assert sorted(ends) == [(2.0, -1), (2.0, 1), (3.0, 1)]
    begun = {
        factor: where
        for (factor,), where, weight in zip(
            rows_of(changes, "factor"), changes["source"], changes["weight"], strict=True
        )
        if weight > 0
    }
    assert begun == {2.0: ["row 0"], 3.0: ["row 9"]}
    assert one(client.trace_row(Price, {"sku": "a"}, at=at("10:00")))["rows"][0]["count"] == 1


def test_emitted_windows_are_traced_to_the_rows_in_them(client: MockClient) -> None:
    logged(client, "orders", {"user": "ada", "sku": "b", "amount": 4.0, "at": at("12:00")})  # of the next hour
    own, rows = one(client.trace_row(Hourly, {"user": "ada"}, at=NOON))["rows"]
    changes = [(*row, weight) for row, weight in zip(rows_of(own, "spent"), own["weight"], strict=True)]
    assert sorted(changes) == [(1.0, -1), (1.0, 1), (30.0, 1)]
    assert own["source"] == [[], [], []]
    assert rows_of(rows, "amount", "at") == [(30.0, at("11:10")), (0.0, at("11:20"))]
    assert rows["source"] == [["row 2"], ["row 3"]]


def test_rows_of_aggregates_are_traced_by_their_own(client: MockClient) -> None:
    lookup = one(client.trace_row(Busy, {"spent": 5.0}, at=at("13:00")))
    (changes,) = lookup["rows"]
    assert rows_of(changes, "user", "spent") == [("bob", 5.0)]
    assert changes["source"] == [[]]
    assert lookup["computed"] == ["Hourly"]


def test_retractions_are_shown(client: MockClient) -> None:
    lookup = one(client.trace_row(CartsOfSize, {"items": 3}, at=NOON))
    assert lookup["values"]["carts"] == 0
    (changes,) = lookup["rows"]
    assert changes["weight"] == [1, -1]
    assert changes["source"][0] == ["row 7"]
    assert sum(lookup["tiles"][0]["rows"]) == 0


def test_lookups_of_extractors_are_traced(client: MockClient) -> None:
    found = client.trace([User], {"User.user": "ada"}, at=NOON)
    assert found.values == {"User.user": "ada", "User.spent": 20.0, "User.twice": 40.0, "User.cart": 4}
    assert [each["dataset"] for each in found.lookups] == ["Spending", "Cart"]


def test_unknown_keys_and_values_without_lookups(client: MockClient) -> None:
    lookup = one(client.trace_row(Spending, {"user": "eve"}))
    assert (lookup["found"], lookup["rows"][0]["count"]) == (False, 0)
    assert "not found" in str(client.trace_row(Spending, {"user": "eve"}))
    found = client.trace([User.twice], {User.spent: 2.0, User.user: "ada"})
    assert (found.values, found.lookups) == ({"User.twice": 4.0}, [])
    assert "no dataset was looked up" in str(found)


def test_erased_rows_are_not_shown(client: MockClient) -> None:
    assert one(client.trace_row(Cart, {"user": "ada"}))["rows"][0]["count"] == 3
    client.erase(Cart, pd.DataFrame({"user": ["ada"]}))
    lookup = one(client.trace_row(Cart, {"user": "ada"}))
    assert (lookup["found"], lookup["rows"][0]["count"]) == (False, 0)
    assert one(client.trace_row(CartsOfSize, {"items": 4}))["rows"][0]["count"] == 0


def test_the_report_has_values_rows_and_positions(client: MockClient) -> None:
    text = str(client.trace([User.spent], {User.user: "ada"}, at=NOON))
    for part in (
        f"as of {NOON}",
        "User.spent = 20.0",
        "Spending user='ada': spent=20.0",
        "window 1h: 2 tiles",
        "2 rows of join of union",
        "row 6",
        "joined with Price",
    ):
        assert part in text, text


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda c: c.trace([User.spent], "ada"), InvalidType, "inputs must be a mapping"),
        (lambda c: c.trace_row(Spending, ["ada"]), InvalidType, "keys must be a mapping"),
        (lambda c: c.trace([User.spent], {User.user: "ada"}, rows=-1), InvalidValue, "rows must be a number"),
        (lambda c: c.trace([User.spent], {User.user: "ada"}, at="noon"), UmbelError, "noon"),
        (lambda c: c.trace_row("Spendings", {"user": "ada"}), UnknownName, "Spending"),
        (lambda c: c.trace_row(Spending, {"name": "ada"}), UmbelError, "user"),
        (lambda c: c.trace_row(Order, {}), UmbelError, "index"),
        (lambda c: c.trace(["User.spend"], {User.user: "ada"}), InvalidValue, "spent"),
    ],
)
def test_wrong_calls_have_a_remedy(client: MockClient, call: Any, error: type[UmbelError], text: str) -> None:
    with pytest.raises(error, match=text):
        call(client)
