"""Many sources of systems that do not answer hold other sources up no longer than one of them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from umbel.connectors import polling
from umbel.connectors.polling import Poller
from umbel.connectors.staged_source import PATIENCE
from umbel.errors import Transient
from umbel.runtime import silence, sources
from umbel.runtime.silence import LONG, REST, SilentSystems
from umbel.runtime.sources import OpenedSource


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (silence, sources, polling):
        monkeypatch.setattr(module, "time", made)
    return made


class Topic:
    """The reading side of a source that does not answer for some seconds, and then fails; never if that is None."""

    is_loading = paces_itself = is_listing = False

    def __init__(self, clock: Clock, system: object, seconds: float | None) -> None:
        self.clock, self.failure_domain, self.seconds, self.requests = clock, system, seconds, 0

    def tend(self) -> None:
        pass

    def plan(self, position: Any, budget: int) -> tuple[Sequence[Any], Any]:
        self.requests += 1
        if self.seconds is None:
            return (), position
        self.clock.now += self.seconds
        raise Transient("it does not answer", hint="see that it runs")


def opened(readings: Sequence[Topic]) -> list[OpenedSource]:
    definition: Any = SimpleNamespace(connector=SimpleNamespace(is_stream=True), every=1)
    silent = SilentSystems()
    return [OpenedSource(f"D{n}", 0, each, definition, f"k{n}", silent) for n, each in enumerate(readings)]  # type: ignore[arg-type]


def planned(found: Sequence[OpenedSource]) -> None:
    for each in found:
        assert each.plan(None, 100) == ((), None)


def test_one_source_of_a_silent_system_waits_for_all(clock: Clock) -> None:
    silent = [Topic(clock, "a", 3.0) for _ in range(200)]
    other = Topic(clock, "b", None)
    found = opened([*silent, other])
    planned(found)
    assert clock.now == 1003.0
    assert sum(each.requests for each in silent) == other.requests == 1
    assert all(each.trouble.startswith("it does not answer") for each in found[:-1])
    clock.now += REST + sources.LONGEST_WAIT
    for each in silent:
        each.seconds = None
    planned(found)
    assert sum(each.requests for each in silent) == 201
    assert not any(each.trouble for each in found)


@pytest.mark.parametrize(("system", "seconds"), [("a", LONG / 2), (None, 3.0)])
def test_other_sources_are_read_where_none_waits_for_them(clock: Clock, system: object, seconds: float) -> None:
    """As for a topic that is missing, or for systems of their own."""
    readings = [Topic(clock, system, seconds) for _ in range(5)]
    planned(opened(readings))
    assert [each.requests for each in readings] == [1] * 5


@pytest.fixture
def pollers(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[Poller]:
    monkeypatch.setattr(Poller, "_run", lambda _: None)
    made = [Poller(SimpleNamespace(title=f"t{number}")) for number in range(200)]  # type: ignore[arg-type]
    for each in made:
        monkeypatch.setattr(
            each, "_idle", SimpleNamespace(wait=lambda seconds: setattr(clock, "now", clock.now + seconds))
        )
    return made


def test_threads_that_read_are_waited_for_together(clock: Clock, pollers: list[Poller]) -> None:
    for _ in range(3):  # plans
        for each in pollers:
            each.renew()
        for each in pollers:
            each.renew(PATIENCE)
    assert clock.now == pytest.approx(1000.0 + PATIENCE)
