"""The scheduler's duty: it wakes when the next firing is due, looks once a second at most, and hears of edits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from queueapp import schedule
from queueapp.cli.scheduler import make_scheduler
from queueapp.models import Schedule
from queueapp.moments import now_ms
from queueapp.producer.discovery import registry
from queueapp.scheduler.duties.schedules import Schedules
from queueapp.schedules import firing
from queueapp.store.store import Store
from tests.clock import Clock
from tests.producing import add
from tests.unit.schedules.conftest import DAY, HOUR, MINUTE, NOW, fired, planned

pytestmark = pytest.mark.django_db(transaction=True)


class Ticking(Clock):
    """A duty's two clocks, which go together."""

    def __init__(self, at_ms: int) -> None:
        super().__init__()
        self.began, self.at_ms = self.now, at_ms

    def ms(self) -> int:
        return self.at_ms + round((self.now - self.began) * 1000)


def duty_at(at_ms: int) -> tuple[Schedules, Ticking]:
    clock = Ticking(at_ms)
    return Schedules(clock.ms, clock), clock


def test_without_schedules_it_looks_once_a_second(store: Store) -> None:
    duty, _ = duty_at(NOW)
    assert duty.run() == 1.0


@pytest.mark.parametrize(("until", "pause"), [(5_000, 1.0), (1_000, 1.0), (400, 0.4), (1, 0.001)])
def test_it_asks_to_be_called_when_the_next_is_due(store: Store, until: int, pause: float) -> None:
    planned()
    duty, clock = duty_at(NOW - until)
    assert duty.run() == pytest.approx(pause)
    clock.now += until / 1000
    assert duty.run() == 1.0
    assert fired(store) == [NOW]


def test_it_goes_on_at_once_while_there_is_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "FIRINGS", 2)
    for number in range(5):
        planned(name=f"s{number}")
    duty, _ = duty_at(NOW)
    pauses = [duty.run() for _ in range(3)]
    assert pauses == [0.0, 0.0, 1.0]
    assert len(fired(store)) == 5


def test_an_edit_is_heard_by_the_next_look(store: Store) -> None:
    row = planned(NOW + DAY)
    duty, clock = duty_at(NOW)
    assert duty.run() == 1.0
    Schedule.objects.filter(pk=row.pk).update(next_ms=NOW + 1_500)  # as a save plans it
    clock.now += 1
    assert duty.run() == pytest.approx(0.5)


def test_what_sql_changed_is_planned_within_ten_seconds(store: Store) -> None:
    row = planned(NOW + DAY)
    duty, clock = duty_at(NOW)
    duty.run()
    Schedule.objects.update(cron="30 * * * *")
    clock.now += 9
    duty.run()
    row.refresh_from_db()
    assert row.next_ms == NOW + DAY
    clock.now += 1
    duty.run()
    row.refresh_from_db()
    assert row.next_ms == NOW + 30 * MINUTE


def test_declared_ones_are_there_from_its_first_run(store: Store) -> None:
    schedule(add, args=[1], cron="0 * * * *", zone="UTC")
    duty, _ = duty_at(now_ms())
    duty.run()
    row = Schedule.objects.get()
    assert row.next_ms == now_ms() // HOUR * HOUR + HOUR


def test_an_unknown_task_is_left_to_others_for_a_while_without_a_hot_loop(store: Store) -> None:
    planned()
    Schedule.objects.update(task="tests.nowhere.gone")
    duty, clock = duty_at(NOW)
    assert [duty.run() for _ in range(3)] == [1.0] * 3
    known = registry["tests.producing.add"]
    registry["tests.nowhere.gone"] = known
    try:
        clock.now += 5.1
        duty.run()
    finally:
        del registry["tests.nowhere.gone"]
    assert fired(store) == [NOW]


def test_c105_daily_at_nine_local_whatever_use_tz_says_and_however_often_the_scheduler_starts(
    store: Store, settings: Any
) -> None:
    settings.TIME_ZONE = "America/New_York"
    nine = round(datetime(2025, 11, 2, 14, tzinfo=UTC).timestamp() * 1000)  # 09:00 on the day of the change
    row = planned(nine, cron="0 9 * * *", zone="")
    for at_ms in range(nine - HOUR, nine + 2 * DAY, 3 * HOUR):
        duty_at(at_ms)[0].run()
    row.refresh_from_db()
    assert fired(store) == [nine, nine + DAY]
    assert row.next_ms == nine + 2 * DAY


def test_every_scheduler_has_the_duty() -> None:
    scheduler = make_scheduler("owner", "installation")
    assert "database Schedules" in {appointment.name for appointment in scheduler._appointments}
