"""Steps of the machine's clock."""

from __future__ import annotations

from umbel.processes.clock import ClockWatch


class Clocks:
    """The time of day and a steady one, as a test sets them."""

    def __init__(self) -> None:
        self.day, self.now, self.pause = 1_000_000.0, 50.0, 0.0

    def wall(self) -> float:
        self.now += self.pause
        return self.day

    def steady(self) -> float:
        return self.now

    def pass_by(self, seconds: float, step: float = 0.0) -> None:
        self.now += seconds
        self.day += seconds + step


def test_a_clock_that_is_set_back_is_noticed_once() -> None:
    clocks = Clocks()
    watch = ClockWatch(clocks.wall, clocks.steady)
    for step, is_noticed in ((0.0, False), (-3600.0, True), (0.0, False), (3600.0, False), (-2.0, True), (-0.5, False)):
        clocks.pass_by(0.2, step)
        assert watch.was_set_back() is is_noticed, step


def test_a_pause_between_two_readings_is_no_step() -> None:
    clocks = Clocks()
    watch = ClockWatch(clocks.wall, clocks.steady)
    clocks.pause = 10.0
    assert not watch.was_set_back()
    clocks.pause, clocks.day = 0.0, clocks.day + 10.0
    assert not watch.was_set_back()
    clocks.pass_by(1.0, -5.0)
    assert watch.was_set_back()
