"""A project that uses umbel, as its users would write it and check it with `mypy --strict`."""

from datetime import datetime, timedelta, timezone
from typing import Dict, List, Optional

import pandas as pd

from umbel import connectors, featureset
from umbel import feature as F
from umbel.client import Client
from umbel.connectors import Kafka, Sample, Webhook, eval, ref, sink, source
from umbel.datasets import (
    Average,
    Count,
    Dataset,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
    dataset,
    field,
    index,
    pipeline,
)
from umbel.dtypes import (
    Continuous,
    Decimal,
    Embedding,
    Hopping,
    Session,
    Tumbling,
    Window,
    between,
    oneof,
    regex,
    struct,
)
from umbel.expr import col, lit, now, when
from umbel.featuresets import Featureset, extractor, feature
from umbel.integrations.aws import Secret
from umbel.lib import bucketize, desc, expectations, includes, inputs, meta, outputs, secrets
from umbel.lib.expectations import expect_column_values_to_be_between
from umbel.testing import MockClient, almost_equal, log, mock

__owner__ = "shop@example.com"
webhook = Webhook(name="shop")
kafka = Kafka(
    name="bus",
    bootstrap_servers="localhost:9092",
    security_protocol="PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_plain_password=Secret(arn="arn:aws:secretsmanager:x")["kafka"],
)


@struct
class Money:
    amount: int
    currency: str
    note: Optional[str]


@meta(description="Who buys", tags=["pii"])
@source(webhook.endpoint("users"), disorder="1d", cdc="upsert", sample=Sample(0.5, using=["uid"]))
@dataset(version=2, history="1y", index=True)
class User:
    # Who it is.
    uid: int = field(key=True, erase_key=True).meta(tags=["id"])
    country: oneof(str, ["FR", "DE"])  # type: ignore[valid-type]
    email: Optional[str]
    seen: List[datetime]
    by_shop: Dict[str, int]
    credit: Decimal[2]
    likes: Embedding[3]
    updated: datetime = field(timestamp=True)

    @expectations(version=1)
    def plausible(cls):  # type: ignore[no-untyped-def]
        return [expect_column_values_to_be_between(column="uid", min_value=0, mostly=0.9)]


@source(
    kafka.topic("orders"),
    disorder="14d",
    cdc="append",
    env="prod",
    since=datetime(2024, 1, 1, tzinfo=timezone.utc),
    preproc={"uid": ref("user"), "price": eval(col("cents") / lit(100), schema={"cents": int})},
    where=lambda df: df["price"] > 0,
)
@source(webhook.endpoint("orders"), disorder="14d", cdc="append", env="~prod")
@dataset
class Order:
    uid: int
    price: float
    at: datetime


def doubled(prices: "pd.Series[float]") -> "pd.Series[float]":
    return prices * 2


@sink(kafka.topic("spent"), cdc="debezium")
@dataset(index=True)
class Spent:
    uid: int = field(key=True)
    total: float
    orders: int
    latest: List[float]
    at: datetime

    @pipeline
    @inputs(Order, User)
    @includes(doubled)
    def spend(cls, orders: Dataset, users: Dataset) -> Dataset:
        known = orders.join(users, how="inner", on=["uid"])
        dear = known.filter(lambda df: doubled(df["price"]) > 10).assign(price=(col("price") * 2).astype(float))
        return dear.groupby("uid").aggregate(
            total=Sum(of="price", window=Continuous("7d")),
            orders=Count(window=Continuous("7d")),
            latest=LastK(of="price", limit=3, dedup=False, window=Continuous("7d")),
        )


@index(offline=None)
@dataset
class Daily:
    uid: int = field(key=True)
    window: Window = field(key=True)
    n: int
    at: datetime

    @pipeline(env=["prod", "dev"])
    @inputs(Order)
    def daily(cls, orders: Dataset) -> Dataset:
        return orders.groupby("uid", window=Tumbling("1d")).aggregate(n=Count())


@featureset
class Buyer:
    uid: int
    total: float = F(Spent.total, default=0.0)
    orders: Optional[int] = F(Spent.orders)
    is_good: bool = F(when(col("total") > 100.0).then(lit(True)).otherwise(lit(False)))
    greeting: str = feature().meta(description="what to say")

    @extractor(deps=[User], version=2)
    @inputs("uid")
    @outputs("greeting")
    def greet(cls, ts: "pd.Series[datetime]", uid: "pd.Series[int]") -> "pd.Series[str]":
        rows, found = User.lookup(ts, uid=uid, fields=["country"])
        word = secrets.get("word")
        return pd.Series([f"{word} {each}" for each in rows["country"]], name="greeting")


@mock
def test_buyers(client: MockClient) -> None:
    client.add_secret("word", "hello")
    response = client.commit(message="shop", datasets=[User, Order, Spent], featuresets=[Buyer], env="dev")
    assert response.status_code == 200
    stamp = datetime.now(timezone.utc) - timedelta(hours=1)
    users = pd.DataFrame(
        {
            "uid": [1],
            "country": ["FR"],
            "email": [None],
            "seen": [[]],
            "by_shop": [{}],
            "credit": [0],
            "likes": [[1, 2, 3]],
            "updated": [stamp],
        }
    )
    client.log("shop", "users", users)
    log(Order, pd.DataFrame({"uid": [1], "price": [6.0], "at": [stamp + timedelta(minutes=1)]}))
    requested = pd.DataFrame({"Buyer.uid": [1]})
    answer = client.query(inputs=[Buyer.uid], outputs=[Buyer], input_dataframe=requested)
    assert almost_equal(answer["Buyer.total"].tolist()[0], 12.0)
    assert answer["Buyer.greeting"].tolist() == ["hello FR"]
    rows, found = client.lookup(Spent, pd.DataFrame({"uid": [1]}), fields=["total", "orders"])
    assert found.tolist() == [True]
    assert desc(User.uid) == "Who it is."
    assert [str(key) for key in User.key_fields] == ["uid"]
    assert Money(5, "EUR", None).as_json() == {"amount": 5, "currency": "EUR", "note": None}  # type: ignore[attr-defined]


def remote(url: str) -> float:
    """Ask a server."""
    client = Client(url, token="secret", branch="dev")
    client.commit("shop", datasets=[User, Order, Spent], featuresets=[Buyer], preview=True)
    answer = client.query(
        inputs=["Buyer.uid"], outputs=["Buyer.total"], input_dataframe=pd.DataFrame({"Buyer.uid": [1]})
    )
    return float(answer["Buyer.total"].iloc[0])


@dataset
class Seen:
    uid: int
    at: datetime

    @pipeline
    @inputs(Order, User)
    def seen(cls, orders: Dataset, users: Dataset) -> Dataset:
        ordered: Dataset = orders.select("uid").union(
            orders.filter(col("price") > 1.0).drop("price"), orders.select("uid")
        )
        changed = users.changelog(delete="gone").select(columns=["uid"]).rename({"updated": "at"})
        listed = users.changelog(insert="new").select("uid", "email", "seen").dropnull("email").explode("seen")
        found = listed.drop("email", "seen").dedup(by="uid").rename({"updated": "at"}).transform(lambda df: df)
        latest: Dataset = orders.groupby("uid").latest().changelog(delete="gone").select("uid")
        return ordered + changed + found + latest + orders.groupby("uid").first().changelog("gone").select("uid")

    def later(cls, orders: Dataset) -> None:
        orders.groupby("uid").agregate()  # type: ignore[attr-defined]
        orders.union(1)  # type: ignore[arg-type]
        orders.union(orders).filter()  # type: ignore[call-arg]


KINDS = [Average, Distinct, ExpDecaySum, FirstK, Max, Min, Quantile, Stddev]
TYPES = [between(int, 0, 5), regex("a+"), Hopping("1d", "1h"), Session("1h")]
LAST = bucketize(pd.Series([datetime(2024, 1, 1)]), "1d")
INSTANT = now()
SOURCES = connectors.DataSource
FEATURES: Featureset
