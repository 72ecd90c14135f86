"""When the scheduler's loop does what: duties that fall together, and pauses that nothing cuts short."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty
from typing import Any, cast

from queueapp.errors import StoreUnavailable
from queueapp.scheduler.loop import LEADERSHIP, Appointment, Scheduler
from tests.clock import Clock
from tests.unit.scheduler.leases import FakeLead


class Passing:
    """Mail that never comes: time passes at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def get(self, timeout: float) -> None:
        self._clock.now += timeout
        raise Empty

    def get_nowait(self) -> None:
        raise Empty

    def put(self, mail: object) -> None: ...


def test_duties_of_about_the_same_pause_are_done_together_and_leadership_at_its_moment() -> None:
    """To wake costs more than to do: a duty comes an eighth of its pause early where the loop is awake, never late."""
    clock = Clock()
    begun = clock()
    times: dict[str, list[float]] = {"often": [], "seldom": []}

    class Noted:
        def __init__(self, name: str, pause_s: float) -> None:
            self._name, self._pause_s = name, pause_s

        def run(self) -> float:
            times[self._name].append(round(clock() - begun, 3))
            if clock() - begun > 3:
                scheduler.stop()
            return self._pause_s

    def lead() -> float:
        leads.append(round(clock() - begun, 3))
        return 1.0

    store = FakeLead(clock)
    leads: list[float] = []
    common = [Noted("seldom", 1.0), Noted("often", 0.3)]
    scheduler = Scheduler("me", lambda: [], lambda pool: cast(Any, store), common, clock=clock)
    scheduler._mail = cast(Any, Passing(clock))
    scheduler._appointments.append(Appointment("a", LEADERSHIP, lead))
    scheduler.run()
    assert times["often"][:5] == [0.0, 0.3, 0.6, 0.9, 1.2]
    assert times["seldom"][:4] == [0.0, 0.9, 1.8, 2.7]
    assert leads[:4] == [0.0, 1.0, 2.0, 3.0]


def test_of_an_outage_one_try_tells_for_all_and_its_pause_is_not_cut_short() -> None:
    clock = Clock()
    begun = clock()
    calls: list[tuple[str, float]] = []

    def duty(name: str) -> Callable[[], float]:
        def act() -> float:
            moment = round(clock() - begun, 3)
            if moment > 5.2:
                scheduler.stop()
            if moment < 4:
                return 5.0
            calls.append((name, moment))
            raise StoreUnavailable("away")

        return act

    store = FakeLead(clock)
    scheduler = Scheduler("me", lambda: [], lambda pool: cast(Any, store), clock=clock)
    scheduler._mail = cast(Any, Passing(clock))
    scheduler._appointments += [Appointment("a", name, duty(name)) for name in ("one", "two", "three")]
    scheduler.run()
    assert [name for name, moment in calls if moment == 5.0] == ["one"]
    assert len({moment for _, moment in calls}) == len(calls), "one try at a time"
