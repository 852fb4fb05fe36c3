"""Whatever else a server does or waits for, it answers queries."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from threading import Event

import httpx
import pytest
from polars.exceptions import PanicException

from tests.unit.query.definitions import engine
from tests.unit.serving.conftest import NOON, Served
from umbel.query.arrange import QueryPlan
from umbel.query.rows import QueryRows
from umbel.query.session import QuerySession
from umbel.query.steps import Step
from umbel.serving import control
from umbel.serving.coalesce import Coalescer, PendingQuery
from umbel.serving.endpoint import INLINE
from umbel.serving.threads import READING, Threads

MANY = 40
GREETING = {"inputs": ["Greeting.name"], "outputs": ["Greeting.text"], "data": {"Greeting.name": ["you"]}}
GREETED = {"Greeting.text": ["you!"]}


@contextmanager
def written_by_another(served: Served) -> Iterator[None]:
    """Hold the lock of writers of the catalog."""
    with closing(sqlite3.connect(served.deployment.directory / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_queries_with_user_code_do_not_wait_for_those_who_wait_for_the_catalog(fresh: Served) -> None:
    def keep(number: int) -> httpx.Response:
        return fresh.post(f"/api/v1/secret/s{number}", {"value": "v"})

    assert fresh.post("/api/v1/secret/mark", {"value": "!"}).status_code == 200
    with ThreadPoolExecutor(MANY) as pool:
        with written_by_another(fresh):
            waiting: list[Future[httpx.Response]] = [pool.submit(keep, number) for number in range(MANY)]
            assert [fresh.post("/api/v1/query", GREETING).json() for _ in range(20)] == [GREETED] * 20
            assert not any(each.done() for each in waiting)
        assert {each.result().status_code for each in waiting} == {200}


def test_large_bodies_do_not_wait_for_those_who_wait_for_the_catalog(fresh: Served) -> None:
    rows = [{"origin": "JFK", "delay": 1, "at": NOON}] * (INLINE // 40)
    names = ["JFK"] * (INLINE // 4)
    query = {"inputs": ["Origin.origin"], "outputs": ["Origin.departures"], "data": {"Origin.origin": names}}
    with ThreadPoolExecutor(MANY) as pool, written_by_another(fresh):
        waiting = [pool.submit(fresh.post, f"/api/v1/secret/s{n}", {"value": "v"}) for n in range(MANY)]
        assert fresh.log("departures", rows).json()["rows"] == len(rows)
        assert fresh.post("/api/v1/query", query).json() == {"Origin.departures": [0] * len(names)}
        assert not any(each.done() for each in waiting)


def test_queries_with_user_code_do_not_wait_for_those_who_read_history(
    fresh: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fresh.post("/api/v1/secret/mark", {"value": "!"}).status_code == 200
    read, may_read = fresh.deployment.changes.newest, Event()

    def slowly(*args: object) -> object:
        assert may_read.wait(300)
        return read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(fresh.deployment.changes), "newest", lambda _, *args: slowly(*args))
    with ThreadPoolExecutor(MANY) as pool:
        waiting = [pool.submit(fresh.http.get, "/api/v1/dataset/Departure/inspect") for _ in range(3 * READING)]
        assert [fresh.post("/api/v1/query", GREETING).json() for _ in range(20)] == [GREETED] * 20
        assert fresh.http.get("/readyz").status_code == 200
        may_read.set()
        assert {each.result().status_code for each in waiting} == {200}


def test_a_server_whose_catalog_does_not_answer_says_so_in_time(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.2)
    latest, may_answer = fresh.deployment.catalog.latest, Event()

    def slowly(_: object) -> int:
        assert may_answer.wait(300)
        return latest()

    monkeypatch.setattr(type(fresh.deployment.catalog), "latest", slowly)
    assert fresh.http.get("/readyz").status_code == 503
    may_answer.set()


class Failing(Step):
    """Fails as Polars does when it finds a bug of its own."""

    def run(self, rows: QueryRows, session: QuerySession) -> None:
        raise PanicException("not yet implemented")


class Passing(Step):
    """Does nothing."""

    def run(self, rows: QueryRows, session: QuerySession) -> None:
        """Do nothing."""


def test_a_panic_is_the_answer_of_one_and_leaves_the_others_theirs() -> None:
    answers, _ = engine([], [])
    plans = [QueryPlan({}, {}, {}, {}, (step,), ()) for step in (Passing(), Failing(), Passing())]

    async def run_all() -> list[object]:
        threads = Threads()
        coalescer = Coalescer(None, threads)  # type: ignore[arg-type]  # no user code asks for secrets
        questions = [PendingQuery(answers, plan, {}, 1, None) for plan in plans for _ in range(2)]
        async with asyncio.timeout(30):
            found = await asyncio.gather(*map(coalescer.answer, questions), return_exceptions=True)
        threads.close()
        return list(found)

    kinds = [type(each).__name__ for each in asyncio.run(run_all())]
    assert kinds == ["Encoded"] * 2 + ["PanicException"] * 2 + ["Encoded"] * 2
