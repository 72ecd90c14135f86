"""A year of firings: two schedulers that compete, disagree about the time and die at any point, in six zones.

What the store got equals what zoneinfo says minute by minute (`reference`), under every catch-up rule: none lost, none
doubled.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from queueapp.models import OutboxEntry, Schedule
from queueapp.producer import entries, relaying
from queueapp.producer.relaying import relay
from queueapp.schedules import firing
from queueapp.schedules.firing import fire_due
from queueapp.store.ids import made_ms
from queueapp.store.store import Store
from tests.producing import add
from tests.unit.schedules.conftest import DAY, MINUTE, relay_all
from tests.unit.schedules.reference import YEAR, ZONES, firings, ms

pytestmark = pytest.mark.django_db(transaction=True)

CRONS = ("30 1 * * *", "30 2 * * *", "15 */12 * * *")
SPRING = (datetime(2025, 3, 5, tzinfo=UTC), datetime(2025, 4, 28, tzinfo=UTC))
"""In it four of the zones change their clocks: two forth, two back."""


class Died(BaseException):
    """As a kill would be."""


def die(*args: Any, **kwargs: Any) -> Any:
    raise Died


DEATHS: dict[str, tuple[Any, str]] = {
    "inside": (entries, "entry_of"),
    "committed": (firing, "send_claimed"),
    "sent": (relaying, "_taken"),
}
"""Where a scheduler dies → what it calls there. Only inside the transaction nothing has happened."""


class Expected:
    """What one schedule should have fired, by the moments at which somebody was there."""

    def __init__(self, moments: list[int], catch_up: str) -> None:
        self.moments, self.catch_up = moments, catch_up
        self.fired: list[int] = []
        self.place = 0

    def seen(self, now_ms: int) -> None:
        """Somebody made what was due at this moment."""
        until = bisect_right(self.moments, now_ms)
        due = self.moments[self.place : until]
        on_time = [moment for moment in due if now_ms - moment <= MINUTE]
        by_rule = {"all": due, "one": on_time or due[-1:], "skip": on_time}
        self.fired += by_rule[self.catch_up]
        self.place = max(self.place, until)


def made(zone: str, cron: str, catch_up: str, moments: list[int]) -> tuple[Schedule, Expected]:
    row = Schedule.objects.create(
        name=f"{zone} {cron} {catch_up}",
        task=add.module_path,
        args=[1],
        lane=catch_up,
        cron=cron,
        zone=zone,
        catch_up=catch_up,
    )
    Schedule.objects.filter(pk=row.pk).update(next_ms=moments[0])
    return row, Expected(moments, catch_up)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("span", [SPRING, pytest.param(YEAR, marks=pytest.mark.long)], ids=["spring", "year"])
def test_a_year_with_two_schedulers_that_die(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, span: tuple[datetime, datetime]
) -> None:
    first, last = ms(span[0]), ms(span[1])
    caplog.set_level("ERROR", "queueapp")
    draw = random.Random(5)
    expected: dict[Schedule, Expected] = {}
    for zone in ZONES:
        for cron in CRONS:
            moments = firings(cron, zone, *span)
            expected |= dict(made(zone, cron, mode, moments) for mode in ("skip", "one", "all"))
    deaths = dict.fromkeys(DEATHS, 0)

    def run(now_ms: int, dies: str | None) -> None:
        """One scheduler's passes at this moment, to its end or to its death."""
        with monkeypatch.context() as patched:
            if dies is not None:
                patched.setattr(*DEATHS[dies], die)
            more = True
            try:
                while more:
                    more = fire_due(now_ms)[0].more
            except Died:
                deaths[dies or ""] += 1
                if dies == "inside":
                    return
        for each in expected.values():
            each.seen(now_ms)

    now_ms = first
    while now_ms < last:
        due_ms = firing.next_due_ms()
        # Mostly woken when something is due; sometimes nobody was there for up to two days.
        wakes = draw.random() < 0.25 and due_ms is not None
        now_ms = max(now_ms, due_ms or 0) + draw.randint(0, 2_000) if wakes else now_ms + draw.randint(0, 2 * DAY)
        now_ms = min(now_ms, last)
        stale = firing._due(now_ms, (), firing.ROWS) if draw.random() < 0.3 else []
        run(now_ms + draw.choice([-3_000, 0, 3_000]), draw.choice([None, None, None, *DEATHS]))
        if stale:
            # The other one has read the same rows before, and acts now.
            with monkeypatch.context() as patched:
                patched.setattr(firing, "_due", lambda *given, rows=stale: rows)
                fire_due(now_ms)
            for each in expected.values():
                each.seen(now_ms)
        if draw.random() < 0.2:
            OutboxEntry.objects.update(due=timezone.now())
            relay()
    run(last, None)
    relay_all()

    got: dict[tuple[str, int], int] = {}
    numbers = iter(range(1, 1_000_000))
    while leased := store.check_and_lease("reader", next(numbers), want=200, begin=200, lease_ms=3_600_000).jobs:
        for job in leased:
            got[job.lane, made_ms(job.id)] = got.get((job.lane, made_ms(job.id)), 0) + 1
    wanted: dict[tuple[str, int], int] = {}
    for each in expected.values():
        assert len(set(each.fired)) == len(each.fired)
        for moment in each.fired:
            wanted[each.catch_up, moment] = wanted.get((each.catch_up, moment), 0) + 1
    assert got == wanted
    assert sum(number for (lane, _), number in got.items() if lane == "all") == sum(
        len(each.moments) for each in expected.values() if each.catch_up == "all"
    )
    assert min(deaths.values()) > 2, "each way to die was tried"
