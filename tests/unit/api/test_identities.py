"""Identities of definitions: a stored state and a catalog are found by these, in every later version of umbel.

The expected values were computed by the version before; a change here is a change of what servers have on disk.
"""

from datetime import datetime
from typing import Any, Optional

from umbel.aggregates import Count, LastK, Sum
from umbel.api.commit import check_commit
from umbel.api.dataset import dataset, index
from umbel.api.feature import feature as F
from umbel.api.featureset import featureset
from umbel.api.field import field
from umbel.api.inputs import inputs
from umbel.api.metadata import meta
from umbel.api.pipeline import pipeline
from umbel.connectors import Kafka, Sample, Webhook, eval, ref, sink, source
from umbel.expr import col, lit, when
from umbel.functions.fingerprint import fingerprint
from umbel.graph.graph import Graph
from umbel.types.windows import Continuous, Tumbling, Window

__owner__ = "a@b.c"
WEB = Webhook(name="w")
BUS = Kafka(name="k", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")


@source(WEB.endpoint("users"), disorder="1d", cdc="upsert", env="prod", sample=Sample(0.5, using=["uid"]))
@source(BUS.topic("users"), disorder="2d", cdc="debezium", env=["dev", "test"], bounded=True, idleness="1h")
@dataset(index=True, version=3)
class Users:
    uid: int = field(key=True, erase_key=True).meta(tags=["pii"])
    country: Optional[str]
    t: datetime


@source(
    BUS.topic("orders"),
    disorder="14d",
    cdc="append",
    since=datetime(2024, 1, 1),
    preproc={"uid": ref("user[id]"), "price": eval(col("cents") / lit(100), schema={"cents": int}), "note": "none"},
    where=eval(col("price") > 0.0),
    sample=0.25,
)
@dataset
class Orders:
    uid: int
    price: float
    note: str
    shop: str
    t: datetime


@sink(BUS.topic("spent"), cdc="debezium", env="prod")
@meta(description="what a user spends")
@dataset(index=True)
class Spent:
    uid: int = field(key=True)
    total: float
    last: list[float]
    t: datetime

    @pipeline(env="prod")
    @inputs(Orders, Users)
    def joined(cls: Any, orders: Any, users: Any) -> Any:
        known = orders.join(users, how="inner", on=["uid"]).dropnull("country").filter(col("price") > 1.0)
        return known.groupby("uid").aggregate(
            total=Sum(of="price", window=Continuous("7d")),
            last=LastK(of="price", limit=3, dedup=False, window=Continuous("7d")),
        )

    @pipeline(env="dev")
    @inputs(Orders)
    def plain(cls: Any, orders: Any) -> Any:
        return orders.groupby("uid").aggregate(
            total=Sum(of="price", window=Continuous("forever")),
            last=LastK(of="price", limit=1, dedup=False, window=Continuous("forever")),
        )


@index(offline=None)
@dataset
class Daily:
    uid: int = field(key=True)
    window: Window = field(key=True)
    n: int
    t: datetime

    @pipeline(env="prod")
    @inputs(Orders)
    def all_of(cls: Any, orders: Any) -> Any:
        return orders.union(orders).groupby("uid", window=Tumbling("1d")).aggregate(n=Count())

    @pipeline(env="dev")
    @inputs(Orders)
    def some(cls: Any, orders: Any) -> Any:
        return orders.filter(col("price") > 5.0).groupby("uid", window=Tumbling("1d")).aggregate(n=Count())


@featureset
class Request:
    user: int


@featureset
class Buyer:
    uid: int = F(Request.user)
    total: float = F(Spent.total, default=0.0)
    country: Optional[str] = F(Users.country, version=2)
    is_good: bool = F(when(col("total") > 100.0).then(lit(True)).otherwise(lit(False)), env="prod")


DATASETS: dict[str, dict[str, tuple[str, str, str]]] = {
    "prod": {
        "Users": ("726e3f21b770f56f", "f5480a78f41eb7f0", "aa456b8b2f346ec7"),
        "Orders": ("55476df36d75b100", "e9009337d2c7d3d5", "5c78945544c4dbd7"),
        "Spent": ("e193f680e16ded70", "0f25096fcb8319c6", "959c24072445d695"),
        "Daily": ("e5458062df25bc28", "10265c1f71b012f2", "450def80253df014"),
    },
    "dev": {
        "Users": ("726e3f21b770f56f", "f5480a78f41eb7f0", "3d10721ed3c8b0be"),
        "Orders": ("55476df36d75b100", "e9009337d2c7d3d5", "5c78945544c4dbd7"),
        "Spent": ("36cf62da7e24d1c7", "a60559f630e232bd", "450def80253df014"),
        "Daily": ("68544b7dcf57369f", "cb91cbe155402bc2", "450def80253df014"),
    },
}
FEATURESETS: dict[str, dict[str, str]] = {
    "prod": {"Request": "34dc0ef5e737d00f", "Buyer": "61ae7eef2baeba9a"},
    "dev": {"Request": "34dc0ef5e737d00f", "Buyer": "5b4dab080f96c24d"},
}
STATES: dict[str, str] = {
    "0 leaf": "17941ad9fba77545",
    "1 index": "9ae45950cd5b262c",
    "2 leaf": "22422fb309cea5e4",
    "3 asofjoin": "bf82d1db1f1797f1",
    "4 dropnull": "96fc12c6b0047ebd",
    "5 filter": "81f2fa67a175ff74",
    "6 aggregate": "8b23003ed8038d73",
    "7 union": "aa06759348f89ab2",
    "8 aggregate": "8e69e0c8e3dad712",
    "9 index": "bf23b847eae28335",
}
SOURCES: dict[str, str] = {"Users/0": "Users@3/0#17941ad9fba77545", "Orders/0": "Orders@1/0#22422fb309cea5e4"}


def committed(env: str | None) -> Any:
    return check_commit([Users, Orders, Spent, Daily], [Request, Buyer], env)


def datasets(env: str | None) -> dict[str, tuple[str, str, str]]:
    return {
        name: (each.fingerprint, each.signature, fingerprint(each.sources, each.sinks))
        for name, each in committed(env).datasets.items()
    }


def test_datasets() -> None:
    assert {env: datasets(env) for env in ("prod", "dev")} == DATASETS


def test_featuresets() -> None:
    found = {env: committed(env).featuresets for env in ("prod", "dev")}
    assert {env: {name: each.fingerprint for name, each in of.items()} for env, of in found.items()} == FEATURESETS


def test_states_and_positions() -> None:
    graph = Graph(committed("prod").datasets.values())
    assert {f"{node.number} {node.operator.kind}": node.state_id for node in graph.nodes} == STATES
    assert {f"{each.dataset}/{each.ordinal}": each.key for each in graph.sources()} == SOURCES


def test_objects_that_functions_refer_to() -> None:
    found: list[Any] = [Users, Spent, Request, Buyer]
    assert [each.__digest__() for each in found] == [
        "50d891aae786916b",
        "71d09024c929e4ce",
        "f1ca4a91d47ff20d",
        "e15ec0304540ade7",
    ]
