"""When a cron fires, worked out without cronsim and without `queueapp.firings`: minute by minute, by zoneinfo alone.

Slow and plain on purpose. A zone's minutes are walked from the first to the last, and what its clock shows is compared
with the five fields by a reader of a few lines.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
LEAST = (0, 0, 1, 1, 0)
MOST = (59, 23, 31, 12, 7)


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


@lru_cache(maxsize=1)
def minutes(zone: str, first: datetime, last: datetime) -> list[tuple[int, datetime]]:
    """(milliseconds since the epoch, what the clock shows) of each minute from `first` to `last`, moments of UTC."""
    key = ZoneInfo(zone)
    return [
        (at_s * 1000, datetime.fromtimestamp(at_s, key).replace(tzinfo=None))
        for at_s in range(ms(first) // 1000, ms(last) // 1000 + 1, 60)
    ]


@dataclass(frozen=True)
class Fields:
    minute: frozenset[int]
    hour: frozenset[int]
    day: frozenset[int]
    month: frozenset[int]
    weekday: frozenset[int]
    either_day: bool
    last_day: bool

    def day_fits(self, at: date) -> bool:
        in_month = at.day in self.day or (self.last_day and at.day == calendar.monthrange(at.year, at.month)[1])
        in_week = at.isoweekday() % 7 in self.weekday or at.isoweekday() in self.weekday
        return at.month in self.month and (in_month or in_week if self.either_day else in_month and in_week)


def read(cron: str) -> Fields:
    parts = cron.split()
    sets: list[frozenset[int]] = []
    for part, least, most in zip(parts, LEAST, MOST, strict=True):
        chosen: set[int] = set()
        for term in part.split(","):
            span, _, step = term.partition("/")
            if span == "L":
                continue
            if span == "*":
                values = range(least, most + 1)
            else:
                low, _, high = span.partition("-")
                values = range(int(low), (int(high) if high else most if step else int(low)) + 1)
            chosen |= {*values[:: int(step or 1)]}
        sets.append(frozenset(chosen))
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    minute, hour, day, month, weekday = sets
    return Fields(minute, hour, day, month, weekday, either_day=either, last_day="L" in parts[2])


def firings(cron: str, zone: str, first: datetime, last: datetime) -> list[int]:
    """Every firing from `first` to `last`, in milliseconds since the epoch."""
    fields, walked = read(cron), minutes(zone, first, last)
    if cron.split()[0].startswith("*") or cron.split()[1].startswith("*"):
        return [
            at_ms
            for at_ms, wall in walked
            if wall.minute in fields.minute and wall.hour in fields.hour and fields.day_fits(wall.date())
        ]
    # Times of the day: each one at the first minute at which the clock shows it, or, never shown, has passed it.
    wanted = sorted(
        datetime(day.year, day.month, day.day, hour, minute)
        for day in _days(walked[0][1].date(), walked[-1][1].date())
        if fields.day_fits(day)
        for hour in fields.hour
        for minute in fields.minute
    )
    found, furthest = [], walked[0][1] - MINUTE
    place = 0
    for at_ms, wall in walked:
        if wall <= furthest:
            continue  # the clock went back: it has shown this before
        furthest = wall
        fits = False
        while place < len(wanted) and wanted[place] <= wall:
            fits |= wanted[place] > walked[0][1] - MINUTE
            place += 1
        if fits:
            found.append(at_ms)
    return found


def _days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


YEAR = (datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 12, 31, 23, 59, tzinfo=UTC))
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour of summer time, in the south
    "Africa/Cairo",  # changes at midnight
    "Pacific/Chatham",  # 45 minutes beside the hour
    "Asia/Kolkata",  # no summer time
)
"""Six; the first five change their clocks twice in that year."""
