"""Notebooks show datasets, featureset, plans and responses as well-formed HTML, hostile names escaped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from umbel import (
    Average,
    Continuous,
    Count,
    Dataset,
    F,
    MockClient,
    Webhook,
    col,
    dataset,
    featureset,
    field,
    index,
    inputs,
    meta,
    pipeline,
    source,
)
from umbel.api.dataset import record_of
from umbel.api.node import Building, Node
from umbel.api.notebook import ITEMS, of_response
from umbel.client.response import Response

__owner__ = "tests@example.com"
HOSTILE = """<script>alert('&"')</script>"""


@source(Webhook(name="shop").endpoint("orders"), disorder="1d", cdc="append")
@meta(description=HOSTILE)
@dataset
class Order:
    user: str
    amount: int = field().meta(description=HOSTILE)
    at: datetime


@index
@dataset
class Spending:
    user: str = field(key=True)
    orders: int
    average: float
    at: datetime

    @pipeline
    @inputs(Order)
    def by_user(cls, orders: Dataset) -> Any:
        large = orders.filter((col("user") != HOSTILE) & (col("amount") < 7))
        return large.groupby("user").aggregate(
            orders=Count(window=Continuous("7d")), average=Average(of="amount", window=Continuous("7d"))
        )


@featureset
class User:
    user: str
    average: float = F(Spending.average, default=0.0).meta(description=HOSTILE)
    is_large: bool = F(col("average") > 10.0)


def parsed(html: str) -> ET.Element:
    """Return HTML as a tree: it must be well-formed."""
    return ET.fromstring(html.replace("http://www.w3.org/2000/svg", ""))


def texts(html: str) -> list[str]:
    return [each for each in parsed(html).itertext() if each]


def rows(html: str) -> Iterator[list[str]]:
    for row in parsed(html).iter("tr"):
        yield ["".join(cell.itertext()) for cell in row]


def test_a_dataset_shows_fields_roles_and_sources() -> None:
    html = Order._repr_html_()
    assert texts(html)[:2] == ["Dataset Order, version 1", HOSTILE]
    assert list(rows(html))[1:4] == [
        ["user", "str", "", ""],
        ["amount", "int", "", HOSTILE],
        ["at", "datetime", "timestamp", ""],
    ]
    assert ["source", "WebhookConnector, cdc append"] in rows(html)


def test_a_dataset_shows_its_pipelines_drawn() -> None:
    html = Spending._repr_html_()
    assert ["user", "str", "key", ""] in rows(html)
    drawing = parsed(html).find("svg")
    assert drawing is not None
    bold = [each.text for each in drawing.iter("text") if each.get("font-weight")]
    assert bold == ["Order", "filter", "aggregate"]
    assert len(list(drawing.iter("line"))) == 2
    assert [each.get("stroke-width") for each in drawing.iter("rect")] == ["1", "1", "3"]
    titles = [each.text or "" for each in drawing.iter("title")]
    assert 'col("user") != "<script>alert' in titles[1]
    assert "average: float" in titles[2]


def test_a_node_draws_the_plan_so_far() -> None:
    order = Node(record_of(Order).leaf(), Building("Both.rows"))
    both = order.filter(col("amount") > 1) + order.filter(col("amount") > 2)
    drawing = parsed(both._repr_html_())
    assert len(list(drawing.iter("rect"))) == 4  # the input once
    assert len(list(drawing.iter("line"))) == 4
    boxes = [(each.get("x"), each.get("y")) for each in drawing.iter("rect")]
    assert len(set(boxes)) == 4


def test_a_featureset_shows_where_features_come_from() -> None:
    found = list(rows(User._repr_html_()))
    assert found[1:] == [
        ["user", "str", "input", ""],
        ["average", "float", "from Spending, User.user", HOSTILE],
        ["is_large", "bool", "from User.average", ""],
    ]


def test_a_commit_shows_its_response() -> None:
    response = MockClient().commit(HOSTILE, datasets=[Order, Spending], featuresets=[User])
    assert texts(response._repr_html_()) == ["200 OK", "message", f": {HOSTILE}"]


def test_a_response_shows_nested_values_up_to_many() -> None:
    body = {HOSTILE: [{"a": 1, "b": None}, []], "many": list(range(ITEMS + 5))}
    html = of_response(Response.of(409, body))
    found = texts(html)
    assert found[:2] == ["409 Conflict", HOSTILE]
    assert found[-1] == "… 5 more"
    assert len(list(parsed(html).iter("li"))) == 6 + ITEMS + 1


@pytest.mark.parametrize("content", [HOSTILE.encode(), b"\xff{", b""])
def test_a_body_that_is_not_json_is_shown_as_text(content: bytes) -> None:
    html = of_response(Response(502, content))
    assert "<script" not in html
    assert parsed(html).find("pre") is not None


@pytest.mark.parametrize("shown", [Order, Spending, User], ids=lambda each: str(each.__name__))
def test_hostile_names_are_escaped(shown: Any) -> None:
    html = shown._repr_html_()
    assert "<script" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")  # nothing is fetched
