"""Sources that change within a version: what was read of a place belongs to it, wherever it stands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed
from umbel.api.commit import check_commit
from umbel.connectors import Kafka, Webhook, source
from umbel.datasets import dataset
from umbel.runtime.batch import drain
from umbel.runtime.branches import delete, init
from umbel.runtime.commit import commit
from umbel.runtime.recovery.check import check

__owner__ = "tests@example.com"

START = datetime(2024, 1, 1, tzinfo=UTC)
webhook = Webhook(name="web")


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    made = Deployed(tmp_path / "umbel")
    yield made
    made.close()


def rows_of(*connectors: Any, disorder: str = "30d", version: int = 1, where: Any = None) -> Any:
    """Return a dataset with these sources, the first one outermost."""

    class Row:
        n: int
        t: datetime

    made: Any = dataset(version=version)(Row)
    for each in reversed(connectors):
        made = source(each, disorder=disorder, cdc="append", where=where)(made)
    return made


def endpoints(*names: str, **options: Any) -> Any:
    return rows_of(*map(webhook.endpoint, names), **options)


class Sent:
    """What was sent to each endpoint, and the numbers of rows that a dataset should have."""

    def __init__(self, deployed: Deployed) -> None:
        self.deployed, self.count = deployed, 0

    def send(self, endpoint: str, rows: int) -> range:
        numbers = range(self.count, self.count + rows)
        self.count += rows
        self.deployed.log(endpoint, [{"n": n, "t": START + timedelta(minutes=n)} for n in numbers])
        return numbers

    def found(self) -> list[int]:
        drain(self.deployed.deployment)
        assert [each.subject for each in check(self.deployed.deployment)] == ["checkpoint"]  # Spark has none here
        return sorted(self.deployed.changes("Row")["n"].to_list())


def test_another_endpoint_is_read_from_its_beginning_and_the_first_goes_on_when_it_comes_back(
    deployed: Deployed,
) -> None:
    """The position in the first one was applied to the other: its first rows were skipped, or the worker stopped."""
    sent = Sent(deployed)
    deployed.commit([endpoints("e")])
    expected = [*sent.send("e", 10)]
    assert sent.found() == expected
    expected += sent.send("f", 40)
    deployed.commit([endpoints("f")])
    assert sent.found() == sorted(expected)
    missed = sent.send("e", 5)
    deployed.commit([endpoints("e", disorder="31d")])
    assert sent.found() == sorted([*expected, *missed])
    deployed.commit([endpoints("empty")])
    assert sent.found() == sorted([*expected, *missed])


@pytest.mark.parametrize("left", [("a",), ("b",), ("b", "a"), ("c", "a", "b"), ("a", "c", "b"), ("b", "c")])
def test_sources_go_on_wherever_they_stand(deployed: Deployed, left: tuple[str, ...]) -> None:
    """The one that moved up was read from the position of that before it: rows came twice, or the worker stopped."""
    sent = Sent(deployed)
    deployed.commit([endpoints("a", "b")])
    expected = [*sent.send("a", 20), *sent.send("b", 10)]
    assert sent.found() == expected
    deployed.commit([endpoints(*left)])
    assert sent.found() == expected
    for name in ("a", "b", "c"):
        more = sent.send(name, 3)
        expected += more if name in left else []
    assert sent.found() == sorted(expected)
    deployed.commit([endpoints("a", "b", "c")])
    assert sent.found() == list(range(sent.count))


def test_a_branch_goes_on_as_well(deployed: Deployed) -> None:
    sent = Sent(deployed)
    deployed.commit([endpoints("a", "b")])
    sent.send("a", 4)
    sent.send("b", 3)
    sent.found()
    init(deployed.deployment, "dev", "main")
    deployed.commit([endpoints("b")])
    commit(deployed.deployment, check_commit([endpoints("b")], []), branch="dev")
    sent.send("b", 2)
    assert sent.found() == list(range(9))


def test_a_branch_has_its_own_rows_whatever_others_commit(deployed: Deployed) -> None:
    """The rows of one that left a dataset became those of the next branch that reads the same otherwise."""
    place, sent = deployed.deployment, Sent(deployed)

    def on_dev() -> list[int]:
        drain(place)
        node = place.graph(place.catalog.latest()).branch("dev").outputs["Row"]
        return sorted(place.changes.read(node)["n"].to_list())

    deployed.commit([endpoints("e"), other()])
    sent.send("e", 10)
    sent.found()
    init(place, "dev", "main")
    even = endpoints("e", where=lambda df: df["n"] % 2 == 0)
    commit(place, check_commit([even], []), branch="dev")
    assert on_dev() == [0, 2, 4, 6, 8]
    assert sent.found() == list(range(10))
    deployed.commit([other()])
    assert on_dev() == [0, 2, 4, 6, 8]
    sent.send("e", 4)
    assert on_dev() == [0, 2, 4, 6, 8, 10, 12]
    deployed.commit([endpoints("e"), other()])
    assert sent.found() == list(range(14))
    assert on_dev() == [0, 2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    ("elsewhere", "is_deleted"), [("main", False), ("main", True), ("next", False), ("next", True), ("dev", False)]
)
def test_a_new_dataset_does_not_begin_with_rows_of_another_source(
    deployed: Deployed, elsewhere: str, is_deleted: bool
) -> None:
    """The first branch with a dataset gave its rows to the next one, whatever that reads, also when it was deleted."""
    place, sent = deployed.deployment, Sent(deployed)

    def put(branch: str, *datasets: Any) -> None:
        commit(place, check_commit(datasets, []), branch=branch)
        drain(place)

    def found(branch: str) -> list[int]:
        drain(place)
        node = place.graph(place.catalog.latest()).branch(branch).outputs["Row"]
        return sorted(place.changes.read(node)["n"].to_list())

    deployed.commit([other()])
    init(place, "dev")
    init(place, "next")
    put("dev", endpoints("trial"))
    trial = [*sent.send("trial", 5)]
    assert found("dev") == trial
    if elsewhere == "dev":
        put("dev", other())
    elif is_deleted:
        delete(place, "dev")
    put(elsewhere, endpoints("live"), other())
    live = [*sent.send("live", 3)]
    assert found(elsewhere) == live
    if elsewhere != "dev" and not is_deleted:
        assert found("dev") == trial
    put(elsewhere, other())
    put(elsewhere, endpoints("trial"), other())
    assert found(elsewhere) == trial


def other() -> Any:
    @source(webhook.endpoint("other"), disorder="30d", cdc="append")
    @dataset
    class Other:
        n: int
        t: datetime

    return Other


def test_a_higher_version_begins_anew(deployed: Deployed) -> None:
    sent = Sent(deployed)
    deployed.commit([endpoints("e")])
    sent.send("e", 5)
    sent.found()
    sent.send("f", 5)
    deployed.commit([endpoints("f", "e", version=2)])
    assert sent.found() == list(range(10))


def test_another_name_of_the_same_topic_is_no_other_place(deployed: Deployed) -> None:
    def topic(name: str, topic: str) -> Any:
        login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "", "sasl_plain_password": ""}
        return Kafka(name=name, bootstrap_servers="localhost:1", security_protocol="PLAINTEXT", **login).topic(topic)

    assert topic("old", "orders").place == topic("new", "orders").place != topic("old", "returns").place
