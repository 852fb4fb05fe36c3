"""Decimals over HTTP: a number has the same digits in rows, questions, lookups, erasures and what is sent again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.serving.asgi import serving_admin
from tests.unit.serving.conftest import NOON, Served
from umbel import Dataset, Decimal, Webhook, dataset, field, pipeline, source
from umbel.api.commit import check_commit
from umbel.datasets import Sum, index
from umbel.dtypes import Continuous
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

__owner__ = "tests@example.com"
webhook = Webhook(name="events")
NUMBERS = ("12345678901234567890.25", "12345678901234567890.50", "1.5")
"""The first two are one float."""


@source(webhook.endpoint("payments"), disorder="1d", cdc="append")
@dataset
class Payment:
    account: Decimal[2]
    amount: Decimal[2]
    at: datetime


@index
@dataset
class Balance:
    account: Decimal[2] = field(key=True, erase_key=True)
    total: Decimal[2]
    at: datetime

    @pipeline
    @inputs(Payment)
    def add(cls, payments: Dataset):
        return payments.groupby("account").aggregate(total=Sum(of="amount", window=Continuous("forever")))


@featureset
class Account:
    account: Decimal[2]
    total: Decimal[2] = F(Balance.total, default=0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    deployment = Deployment.at(tmp_path, shards=2)
    commit(deployment, check_commit([Payment, Balance], [Account]))
    with serving_admin(deployment) as transport, httpx.Client(transport=transport, base_url="http://umbel") as http:
        yield Served(deployment, transport, http)
    deployment.store.close()
    deployment.catalog.close()


def _post(served: Served, path: str, text: str, media: str = "application/json") -> Any:
    answer = served.http.post(path, content=text, headers={"Content-Type": media})
    assert answer.status_code == 200, answer.text
    return answer.json()


def _rows(numbers: tuple[str, ...] = NUMBERS) -> list[str]:
    return [f'{{"account": {each}, "amount": {each}, "at": "{NOON}"}}' for each in numbers]


def _columns() -> str:
    listed = ", ".join(NUMBERS)
    instants = ", ".join([f'"{NOON}"'] * len(NUMBERS))
    return f'{{"account": [{listed}], "amount": [{listed}], "at": [{instants}]}}'


def _logged(served: Served, form: str) -> None:
    if form == "lines":
        path = "/api/v1/log?webhook=events&endpoint=payments"
        _post(served, path, "\n".join(_rows()), "application/x-ndjson")
    else:
        data = _columns() if form == "columns" else f"[{', '.join(_rows())}]"
        _post(served, "/api/v1/log", f'{{"webhook": "events", "endpoint": "payments", "data": {data}}}')
    served.process()


def _totals(served: Served, data: str) -> list[str]:
    body = f'{{"inputs": ["Account.account"], "outputs": ["Account.total"], "data": {data}}}'
    found: list[str] = _post(served, "/api/v1/query", body)["Account.total"]
    return found


@pytest.mark.parametrize("form", ["rows", "columns", "lines"])
def test_rows_and_questions_in_each_form(served: Served, form: str) -> None:
    _logged(served, form)
    expected = [NUMBERS[0], NUMBERS[1], "1.50"]
    assert _totals(served, f'{{"Account.account": [{", ".join(NUMBERS)}]}}') == expected
    questions = ", ".join(f'{{"Account.account": {each}}}' for each in NUMBERS)
    assert _totals(served, f"[{questions}]") == expected
    texts = ", ".join(f'"{each}"' for each in NUMBERS)
    assert _totals(served, f'{{"Account.account": [{texts}]}}') == expected


def test_a_large_question(served: Served) -> None:
    _logged(served, "rows")
    assert set(_totals(served, f'{{"Account.account": [{", ".join([NUMBERS[0]] * 60_000)}]}}')) == {NUMBERS[0]}


def test_an_offline_query(served: Served) -> None:
    _logged(served, "rows")
    data = f'{{"Account.account": [{NUMBERS[1]}], "timestamp": ["{NOON}"]}}'
    body = (
        '{"inputs": ["Account.account"], "outputs": ["Account.total"], '
        f'"timestamp_column": "timestamp", "data": {data}}}'
    )
    assert _post(served, "/api/v1/query_offline", body)["Account.total"] == [NUMBERS[1]]


def test_lookups_and_traces(served: Served) -> None:
    _logged(served, "rows")
    found = _post(served, "/api/v1/dataset/Balance/lookup", f'{{"keys": [{{"account": {NUMBERS[1]}}}]}}')
    assert (found["data"]["total"], found["found"]) == ([NUMBERS[1]], [True])
    body = f'{{"inputs": ["Account.account"], "outputs": ["Account.total"], "data": [{{"Account.account": {NUMBERS[0]}}}]}}'
    assert _post(served, "/api/v1/trace", body)["values"]["Account.total"] == NUMBERS[0]
    traced = _post(served, "/api/v1/dataset/Balance/trace", f'{{"keys": [{{"account": {NUMBERS[1]}}}]}}')
    assert traced["lookups"][0]["values"]["total"] == NUMBERS[1]


def test_an_erasure_is_of_the_key_with_these_digits_alone(served: Served) -> None:
    _logged(served, "rows")
    _post(served, "/api/v1/dataset/Balance/erase", f'{{"erase_keys": [{{"account": {NUMBERS[0]}}}]}}')
    assert _totals(served, f'{{"Account.account": [{", ".join(NUMBERS)}]}}') == ["0.00", NUMBERS[1], "1.50"]


def test_dead_letters_have_the_digits_and_spaces_of_their_rows(served: Served) -> None:
    bad = f'{{"account": {NUMBERS[0]},  "amount": "much", "at": "{NOON}"}}'
    _post(served, "/api/v1/log", f'{{"webhook": "events", "endpoint": "payments", "data": [{bad}]}}')
    served.process()
    (letter,) = served.dead("Payment")
    assert letter["raw"] == bad


@pytest.mark.parametrize("levels", [500, 1000])
def test_a_question_that_is_nested_deeply_is_refused(served: Served, levels: int) -> None:
    data = f'{{"Account.account": [{NUMBERS[0]}, {"[" * levels}{"]" * levels}]}}'
    body = f'{{"inputs": ["Account.account"], "outputs": ["Account.total"], "data": {data}}}'
    answer = served.http.post("/api/v1/query", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-value")
