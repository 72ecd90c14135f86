"""When schedules fire: a year in six zones equals what zoneinfo says, minute by minute; intervals; what was missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.firings import ALL_MOST, CHUNK, Due, Rule, due, jitter_ms, read_cron, read_zone
from tests.unit.schedules.reference import YEAR, ZONES, firings, ms

FIRST, LAST = YEAR
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000

CRONS = (
    "0 * * * *",
    "*/15 * * * *",
    "30 1 * * *",
    "30 2 * * *",
    "0 0 * * *",
    "15,45 0,1,2,3 * * *",
    "0-30/10 1-3 * * *",
    "*/20 2 * * *",
    "0 */2 * * *",
    "45 23 L * *",
    "0 3 31 * *",
    "0 12 29 2 *",
    "30 2 1,15 * 0",
    "0 4 * 3,10,11 7",
)


def of(cron: str, zone: str, first: datetime = FIRST, last: datetime = LAST) -> list[int]:
    rule = Rule(cron=cron, zone=zone, end_ms=ms(last))
    return list(rule.firings(ms(first) - 1))


def local(zone: str, *when: int, fold: int = 0) -> int:
    return ms(datetime(*when, tzinfo=ZoneInfo(zone), fold=fold))  # type: ignore[arg-type, misc]  # the tuple has the parts of a moment


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_equals_the_reference(zone: str) -> None:
    for cron in CRONS:
        assert of(cron, zone) == firings(cron, zone, FIRST, LAST), cron


def test_leap_days() -> None:
    first, last = datetime(2023, 12, 1, tzinfo=UTC), datetime(2024, 4, 1, tzinfo=UTC)
    for cron in ("0 0 29 2 *", "0 9 L 2 *", "30 6 29 * 1"):
        assert of(cron, "Europe/Berlin", first, last) == firings(cron, "Europe/Berlin", first, last), cron
    years = islice(Rule(cron="0 0 29 2 *").firings(ms(datetime(2095, 1, 1, tzinfo=UTC))), 2)
    assert [datetime.fromtimestamp(at / 1000, UTC).year for at in years] == [2096, 2104], "2100 has none"


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    minute=st.sampled_from(["*", "*/7", "0", "30", "15,45", "5-50/15"]),
    hour=st.sampled_from(["*", "*/3", "0", "1", "2", "1-3", "0,23"]),
    day=st.sampled_from(["*", "*/2", "1", "28-31", "L"]),
    weekday=st.sampled_from(["*", "0", "1-5", "6,7"]),
    start=st.integers(0, 500_000),
)
def test_any_fields_equal_the_reference(zone: str, minute: str, hour: str, day: str, weekday: str, start: int) -> None:
    cron = f"{minute} {hour} {day} * {weekday}"
    first = FIRST + timedelta(minutes=start)
    last = first + timedelta(days=12)
    wanted = firings(cron, zone, first - timedelta(days=2), last)

    found = of(cron, zone, first, last)

    assert found == [at for at in wanted if ms(first) <= at]


@pytest.mark.parametrize("zone", [*ZONES, "Africa/Casablanca", "America/Santiago"])
def test_asked_from_any_moment_the_next_is_the_same(zone: str) -> None:
    """Around each change of the clock, asked minute by minute."""
    for cron in ("0,30 * * * *", "30 1 * * *", "30 2 * * *", "15,45 0-3 * * *"):
        for centre in _changes(zone):
            first, last = centre - timedelta(hours=6), centre + timedelta(hours=30)
            wanted = firings(cron, zone, first, last)
            rule = Rule(cron=cron, zone=zone)
            for minute in range(0, 12 * 60, 7):
                at = ms(first) + minute * MINUTE + 500
                following = next(moment for moment in wanted if moment > at)
                assert rule.after(at) == following, (cron, centre, minute)


def _changes(zone: str) -> list[datetime]:
    key, found = ZoneInfo(zone), []
    at = FIRST
    while at < LAST:
        if at.astimezone(key).utcoffset() != (at + timedelta(hours=1)).astimezone(key).utcoffset():
            found.append(at)
        at += timedelta(hours=1)
    return found


class TestC095:
    """The autumn and the spring night: hourly ones once for each elapsed hour, daily ones exactly once."""

    def test_c095_autumn(self) -> None:
        zone = "America/New_York"
        night = datetime(2025, 11, 2, 4, tzinfo=UTC), datetime(2025, 11, 3, 4, 59, tzinfo=UTC)
        assert len(of("0 * * * *", zone, *night)) == 25
        assert len(of("*/15 * * * *", zone, *night)) == 100
        assert of("30 1 * * *", zone, *night) == [local(zone, 2025, 11, 2, 1, 30)], "the first of the two"
        assert of("30 2 * * *", zone, *night) == [local(zone, 2025, 11, 2, 2, 30)]

    def test_c095_spring(self) -> None:
        zone = "America/New_York"
        night = datetime(2025, 3, 9, 5, tzinfo=UTC), datetime(2025, 3, 10, 3, 59, tzinfo=UTC)
        assert len(of("0 * * * *", zone, *night)) == 23
        assert len(of("*/15 * * * *", zone, *night)) == 92
        assert of("30 1 * * *", zone, *night) == [local(zone, 2025, 3, 9, 1, 30)]
        assert of("30 2 * * *", zone, *night) == [local(zone, 2025, 3, 9, 3, 0)], "when the clock has skipped it"


def test_c096_the_local_time_holds_over_the_change() -> None:
    zone = "Europe/Berlin"
    rule = Rule(cron="4 16 * * *", zone=zone)
    assert rule.after(local(zone, 2025, 3, 29, 16, 4)) == local(zone, 2025, 3, 30, 16, 4)
    assert local(zone, 2025, 3, 30, 16, 4) - local(zone, 2025, 3, 29, 16, 4) == 23 * HOUR


class TestIntervals:
    def test_they_count_from_the_start_which_is_one(self) -> None:
        rule = Rule(every_ms=90_000, start_ms=1_000_000, end_ms=1_200_000)
        assert list(rule.firings(0)) == [1_000_000, 1_090_000, 1_180_000]

    def test_without_a_start_they_count_from_the_anchor_which_is_none(self) -> None:
        rule = Rule(every_ms=90_000, anchor_ms=1_000_000)
        assert rule.after(0) == 1_090_000
        assert rule.after(1_090_000) == 1_180_000
        assert rule.after(1_090_001) == 1_180_000

    def test_they_know_no_clock(self) -> None:
        rule = Rule(every_ms=DAY, start_ms=local("Europe/Berlin", 2025, 3, 29, 16))
        assert rule.after(rule.start_ms or 0) == local("Europe/Berlin", 2025, 3, 30, 17)


def test_start_and_end_are_both_included() -> None:
    rule = Rule(cron="0 * * * *", start_ms=10 * HOUR, end_ms=12 * HOUR)
    assert list(rule.firings(0)) == [10 * HOUR, 11 * HOUR, 12 * HOUR]
    assert rule.after(12 * HOUR) is None


class TestMissed:
    """The moment is 12:00:30; nobody was there since 09:00, and it fires each hour or each minute."""

    NOW = 12 * HOUR + 30_000
    HOURLY = Rule(cron="0 * * * *")

    def test_skip_makes_what_is_on_time_alone(self) -> None:
        found = due(self.HOURLY, 9 * HOUR, self.NOW, catch_up="skip")
        assert found == Due(fire=(12 * HOUR,), missed=3, older=False, next_ms=13 * HOUR)
        late = due(self.HOURLY, 9 * HOUR, self.NOW + MINUTE, catch_up="skip")
        assert late == Due(fire=(), missed=4, older=False, next_ms=13 * HOUR)

    def test_one_makes_up_for_all(self) -> None:
        found = due(self.HOURLY, 9 * HOUR, self.NOW + MINUTE, catch_up="one")
        assert found == Due(fire=(12 * HOUR,), missed=3, older=False, next_ms=13 * HOUR)

    def test_one_makes_each_that_is_on_time(self) -> None:
        every_minute = Rule(cron="* * * * *")
        found = due(every_minute, 12 * HOUR - MINUTE, 12 * HOUR, catch_up="one")
        assert found.fire == (12 * HOUR - MINUTE, 12 * HOUR)

    def test_all_makes_each(self) -> None:
        found = due(self.HOURLY, 9 * HOUR, self.NOW, catch_up="all")
        assert found == Due(fire=(9 * HOUR, 10 * HOUR, 11 * HOUR, 12 * HOUR), missed=0, older=False, next_ms=13 * HOUR)

    def test_all_goes_in_portions_and_has_an_end(self) -> None:
        every_minute, first, now = Rule(cron="* * * * *"), 9 * HOUR, 9 * HOUR + 2_000 * MINUTE
        made: list[int] = []
        dropped = False
        at: int | None = first
        while at is not None and at <= now:
            found = due(every_minute, at, now, catch_up="all")
            assert len(found.fire) <= CHUNK
            made += found.fire
            dropped |= found.older
            at = found.next_ms
        assert made == [now - number * MINUTE for number in reversed(range(ALL_MOST))], "the newest thousand"
        assert dropped

    def test_those_that_must_be_alone_are_one(self) -> None:
        found = due(self.HOURLY, 9 * HOUR, self.NOW, catch_up="all", alone=True)
        assert found == Due(fire=(12 * HOUR,), missed=3, older=False, next_ms=13 * HOUR)

    def test_a_year_of_minutes_takes_no_time(self) -> None:
        rule = Rule(cron="* * * * *", zone="America/New_York")
        found, older = rule.between(ms(FIRST), ms(LAST))
        assert (len(found), older, found[-1]) == (ALL_MOST, True, ms(LAST))

    def test_seldom_ones_are_found_however_long_nobody_was_there(self) -> None:
        rule = Rule(cron="0 0 29 2 *")
        first = ms(datetime(2004, 2, 29, tzinfo=UTC))
        found, older = rule.between(first, ms(LAST))
        assert (len(found), older) == (6, False)


def test_jitter_is_the_same_for_whoever_asks_and_spread_over_its_span() -> None:
    drawn = [jitter_ms("a", moment, 60_000) for moment in range(0, 500 * HOUR, HOUR)]
    assert drawn == [jitter_ms("a", moment, 60_000) for moment in range(0, 500 * HOUR, HOUR)]
    assert all(0 <= each <= 60_000 for each in drawn)
    assert min(drawn) < 6_000 < 54_000 < max(drawn)
    assert jitter_ms("a", HOUR, 0) == 0


@pytest.mark.parametrize(
    "text",
    [
        *("", "0 3 * *", "0 3 * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
        *("0 0 30 2 *", "0 0 31 4,6 *", "5-1 * * * *", "*/0 * * * *", "@daily", "a b c d e", "² * * * *", "1 " * 200),
        None,
        5,
    ],
)
def test_a_cron_that_is_none_is_refused_with_the_remedy(text: object) -> None:
    with pytest.raises(ValueError, match="five fields"):
        read_cron(text)


@pytest.mark.parametrize("text", ["0 0 * * MON#5", "0 0 L * *", "0 0 LW * *", "30 6 * JAN-MAR mon-fri", "0 0 * * 5L"])
def test_names_and_last_days_may_be_written(text: str) -> None:
    assert read_cron(f"  {text.replace(' ', '  ')} ") == text


@pytest.mark.parametrize("name", ["", "Nowhere/Land", "/etc/passwd", "../UTC", "Europe", "Europe/Berlin\0", None, 3])
def test_a_zone_that_is_none_is_refused_with_the_remedy(name: object) -> None:
    with pytest.raises(ValueError, match="time zone"):
        read_zone(name)
