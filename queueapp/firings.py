"""When a schedule fires, and what becomes of firings that were missed. Pure: moments in, moments out.

Moments are milliseconds since the epoch, so that no summer time and no setting of Django is in them. cronsim reads the
five fields and walks the wall clock, without any zone; what a moment of the wall clock is in a zone is decided here:

- A cron whose minute and hour both name their values ("30 2 * * *") means times of the day: each fires once a day. One
  that the clock skips in spring fires at the moment of the change; one that comes twice in autumn fires the first time.
- A cron whose minute or hour begins with `*` ("0 * * * *", "*/15 1 * * *") follows the clock as it runs: an hour that
  comes twice fires twice, one that is skipped does not fire.
- An interval knows no clock: it counts elapsed seconds.

Used by the model (`models.schedules`), by who fires (`schedules`) and by every page that shows the next firings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

ALL_MOST = 1_000
"""So many missed firings are made up for at most, the newest ones."""
CHUNK = 100
"""So many firings of one schedule are made in one go."""
LATE_MS = 60_000
"""A firing is on time up to this; what is older was missed, and is the business of the catch-up rule."""
CRON_MAX = 100
EVERY_MIN_S, EVERY_MAX_S = 1, 366 * 86_400
JITTER_MAX_S = 86_400
STEP_S = 6 * 3600
"""No zone changes its clock twice within so long."""

YEAR_MIN, YEAR_MAX = 1970, 2999
"""Of a start and an end: what is beyond may leave the range of Python's clock."""


class CatchUp(StrEnum):
    """What becomes of firings that were missed."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a firing while the last job is not over."""

    ALLOW = "allow"
    SKIP = "skip"
    REPLACE = "replace"


CATCH_UP = tuple(each.value for each in CatchUp)
OVERLAP = tuple(each.value for each in Overlap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When to fire: `cron` in `zone`, or every `every_ms`; from `start_ms` to `end_ms`, both included."""

    cron: str = ""
    every_ms: int = 0
    zone: str = "UTC"
    anchor_ms: int = 0
    """From where an interval counts when it has no start; not a firing itself. The start is one."""
    start_ms: int | None = None
    end_ms: int | None = None

    def digest(self) -> str:
        """22 characters that stand for this rule. A field that is as it begins is left out, so that one which a later
        release adds plans nothing anew."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        said = {each.name: said[each.name] for each in fields(self) if said[each.name] != each.default}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:22]

    def after(self, at_ms: int) -> int | None:
        """The first firing later than `at_ms`; None when there is none any more."""
        return next(self.firings(at_ms), None)

    def firings(self, after_ms: int) -> Iterator[int]:
        """The firings later than `after_ms`, in order."""
        if self.start_ms is not None:
            after_ms = max(after_ms, self.start_ms - 1)
        for moment_ms in self._every(after_ms) if self.every_ms else _of_cron(self.cron, self.zone, after_ms):
            if self.end_ms is not None and moment_ms > self.end_ms:
                return
            yield moment_ms

    def between(self, first_ms: int, last_ms: int, most: int = ALL_MOST) -> tuple[list[int], bool]:
        """The newest `most` firings from `first_ms`, which is one, to `last_ms`; and whether there are older ones."""
        span_ms = max(most * (self.every_ms or 60_000), 60_000)
        while True:
            from_ms = max(first_ms, last_ms - span_ms)
            found = []
            for moment_ms in self.firings(from_ms - 1):
                if moment_ms > last_ms:
                    break
                found.append(moment_ms)
            if from_ms == first_ms or len(found) >= most:
                return found[-most:], len(found) > most or from_ms > first_ms
            span_ms *= 2

    def _every(self, after_ms: int) -> Iterator[int]:
        origin = self.anchor_ms if self.start_ms is None else self.start_ms
        least = 1 if self.start_ms is None else 0
        number = max(least, (after_ms - origin) // self.every_ms + 1)
        while True:
            yield origin + number * self.every_ms
            number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be done about a schedule whose time has come."""

    fire: tuple[int, ...]
    missed: int
    """Firings that the catch-up rule drops."""
    older: bool
    """So many were missed that the oldest were not even counted."""
    next_ms: int | None


def due(rule: Rule, next_ms: int, now_ms: int, *, catch_up: str, alone: bool = False) -> Due:
    """Which firings from `next_ms`, the first that was not made, to `now_ms` are made now.

    Those that are on time are made in any case. `alone`: at most one, the newest, because the schedule's jobs must not
    run beside each other.
    """
    moments, older = rule.between(next_ms, now_ms)
    on_time = [moment_ms for moment_ms in moments if now_ms - moment_ms <= LATE_MS]
    if catch_up == CatchUp.ALL:
        fire = moments
    elif catch_up == CatchUp.ONE:
        fire = on_time or moments[-1:]
    else:
        fire = on_time
    if alone:
        fire = fire[-1:]
    missed = len(moments) - len(fire)
    if len(fire) > CHUNK:
        # The rest is found again by the next look, as if no time had passed.
        return Due(fire=tuple(fire[:CHUNK]), missed=missed, older=older, next_ms=fire[CHUNK])
    return Due(fire=tuple(fire), missed=missed, older=older, next_ms=rule.after(now_ms))


def jitter_ms(name: str, moment_ms: int, most_ms: int) -> int:
    """How much later than its moment a firing may run: 0 to `most_ms`, the same whoever asks."""
    if not most_ms:
        return 0
    drawn = hashlib.sha256(f"jitter {name} {moment_ms}".encode()).digest()
    return int.from_bytes(drawn[:8], "big") % (most_ms + 1)


# -- what may be written ---------------------------------------------------------------------------------------------


def read_cron(text: object) -> str:
    """The five fields, spaced evenly. Raises ValueError with the words that finish "it must be …"."""
    words = "five fields, minute hour day month weekday, such as “0 3 * * *”"
    if not isinstance(text, str) or len(text) > CRON_MAX or len(text.split()) != 5:
        raise ValueError(words)
    cron = " ".join(text.split())
    try:
        sim = CronSim(cron, datetime(2024, 1, 1))
    except (CronSimError, ValueError, AssertionError) as error:
        raise ValueError(f"{words} ({error})" if str(error) else words) from None
    if next(sim, None) is None:
        raise ValueError("a time that comes at all")
    return cron


def read_moment(at: datetime) -> datetime:
    """A start or an end. Raises ValueError with the words that finish "it must be …"."""
    if not YEAR_MIN <= at.year <= YEAR_MAX:
        raise ValueError(f"a moment of the years {YEAR_MIN} to {YEAR_MAX}; leave it empty for none")
    return at


def read_zone(name: object) -> str:
    """The key of a time zone that is known here. Raises ValueError with the words that finish "it must be …"."""
    words = "the name of a time zone, such as “Europe/Berlin” or “UTC”"
    if not isinstance(name, str) or not name:
        raise ValueError(words)
    try:
        return zone_of(name).key
    except (ValueError, OSError, LookupError):  # of a form that is none, of a folder, of none that is known
        raise ValueError(words) from None


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """The zone of this key."""
    return ZoneInfo(name)


# -- cron ------------------------------------------------------------------------------------------------------------


def _of_cron(cron: str, zone_name: str, after_ms: int) -> Iterator[int]:
    zone, after_s = zone_of(zone_name), after_ms // 1000
    minute, hour = cron.split()[:2]
    times_of_day = not (minute.startswith("*") or hour.startswith("*"))
    for moment_s in (_times_of_day if times_of_day else _along_the_clock)(cron, zone, after_s):
        yield moment_s * 1000


def _times_of_day(cron: str, zone: ZoneInfo, after_s: int) -> Iterator[int]:
    """Each moment of the wall clock once. What it is as an instant never goes back, so that none is met too late."""
    last_s = after_s
    for wall in _walk(cron, _wall(after_s, _offset(zone, after_s))):
        moment_s = _instant(wall, zone)
        if moment_s > last_s:  # two times that the clock skips in spring come at the same instant
            last_s = moment_s
            yield moment_s


def _along_the_clock(cron: str, zone: ZoneInfo, after_s: int) -> Iterator[int]:
    """Every instant at which the wall clock shows a moment that fits: stretch by stretch between its changes."""
    while True:
        offset_s, last_s, change_s = _offset(zone, after_s), after_s, None
        for wall in _walk(cron, _wall(after_s, offset_s)):
            moment_s = _seconds(wall) - offset_s
            change_s = _change(zone, last_s, moment_s)
            if change_s is not None:
                break
            last_s = moment_s
            yield moment_s
        if change_s is None:
            return
        # From the change on, itself included: what its clock shows may fit.
        offset_s = _offset(zone, change_s)
        first = next(_walk(cron, _wall(change_s - 1, offset_s)), None)
        if first is not None and _seconds(first) - offset_s == change_s:
            yield change_s
        after_s = change_s


def _walk(cron: str, after: datetime) -> Iterator[datetime]:
    """The moments of the wall clock later than `after` that fit. None for 50 years ends it."""
    yield from CronSim(cron, after)


def _instant(wall: datetime, zone: ZoneInfo) -> int:
    """The first instant at which the clock of the zone shows `wall`, or has just skipped it."""
    first_s = round(wall.replace(tzinfo=zone).timestamp())
    if _wall(first_s, _offset(zone, first_s)) == wall:
        return first_s
    # Skipped. Read with the offset after the change it is too early, with that before too late.
    early_s = round(wall.replace(tzinfo=zone, fold=1).timestamp())
    change_s = _change(zone, early_s, first_s)
    return first_s if change_s is None else change_s


def _change(zone: ZoneInfo, after_s: int, until_s: int) -> int | None:
    """The first second later than `after_s`, up to `until_s`, from which the zone has another offset; None: none."""
    offset_s, low = _offset(zone, after_s), after_s
    while low < until_s:
        high = min(low + STEP_S, until_s)
        if _offset(zone, high) != offset_s:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if _offset(zone, middle) != offset_s else (middle, high)
            return high
        low = high
    return None


EPOCH = datetime(1970, 1, 1)


def _offset(zone: ZoneInfo, at_s: int) -> int:
    offset = datetime.fromtimestamp(at_s, tz=UTC).astimezone(zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


def _wall(at_s: int, offset_s: int) -> datetime:
    return EPOCH + timedelta(seconds=at_s + offset_s)


def _seconds(wall: datetime) -> int:
    return (wall - EPOCH) // timedelta(seconds=1)
