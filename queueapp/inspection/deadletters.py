"""Dead letters of a pool, newest first: by page, by group, one after another. Called by every skin; changes nothing.

One index answers for a whole pool, for one tenant, or for one group; there a page costs as little at the end as at the
beginning. Further conditions are looked up in the rows of the smallest of these, in bounded steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from queueapp.inspection.finding import dead_index
from queueapp.inspection.jobs import STEPS, JobView, view, views
from queueapp.inspection.selection import EVERY, Filter
from queueapp.moments import moment
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.looking import LOOKS
from queueapp.store.reads import Reads
from queueapp.store.views import Cursor, Page

READ_TOGETHER = 100
"""Dead letters that are read, and recorded as exported, together: each with its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """A page. `as_of_ms` is the moment that the filter of the next one is to have."""

    pool: str
    total: int
    exact: bool
    """False: so many were to be looked through, and fewer may match."""
    letters: tuple[JobView, ...]
    next_offset: int | None
    """Where the next page begins; None = this is the last. A page of several conditions may hold few, or none."""
    as_of_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """Dead letters that died of the same: one task, and one error at one place of the host's code or one reason."""

    fingerprint: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: JobView
    """The member that died last."""


def dead_letters(pool: str, filter: Filter = EVERY, *, offset: int = 0, count: int = 50) -> DeadLetters:
    """One page: at most 8 round trips, at most 4,000 rows looked at."""
    reads = shards.reads(pool)
    index, rest = dead_index(reads, filter)
    as_of_ms = filter.as_of_ms or reads.behind(index)
    conditional = bool(rest.tenant or rest.group or rest.tasks or rest.reason or rest.lane)
    ids: list[str] = []
    size, position, cursor = 0, offset, None
    for _ in range(STEPS):
        page = _page(reads, index, rest, after=cursor, skip=0 if cursor else offset, count=count - len(ids))
        ids += page.ids
        size, position, cursor = page.size, page.position, page.cursor
        if cursor is None or len(ids) == count or not conditional:
            break
    whole = offset == 0 and cursor is None
    return DeadLetters(
        pool=pool,
        total=len(ids) if conditional and whole else size,
        exact=whole or not conditional,
        letters=_letters(pool, reads, ids),
        next_offset=position if cursor is not None else None,
        as_of_ms=as_of_ms,
    )


def dead_groups(pool: str, *, offset: int = 0, count: int = 25) -> tuple[list[DeadGroup], int]:
    """A page of groups, the one with the newest death first, and how many there are; three round trips."""
    reads = shards.reads(pool)
    entries, total = reads.dead_groups(offset=offset, count=count)
    records = reads.jobs([entry.newest for entry in entries]) if entries else []
    groups = []
    for entry, record in zip(entries, records, strict=True):
        first_at, last_at = moment(entry.first_ms), moment(entry.last_ms)
        if record is not None and first_at is not None and last_at is not None:
            groups.append(
                DeadGroup(
                    fingerprint=entry.group,
                    count=entry.size,
                    first_at=first_at,
                    last_at=last_at,
                    sample=view(pool, record),
                )
            )
    return groups, total


def every_dead_letter(pool: str, filter: Filter = EVERY) -> Iterator[JobView]:
    """All that match and had died when it began, newest first, read in bounded pages as they are asked for.

    It goes from later deaths to earlier ones, so that none is met that comes meanwhile, and goes on from a place in the
    index: those that were given may be retried or discarded.
    """
    reads = shards.reads(pool)
    for ids in _pages(reads, filter, READ_TOGETHER):
        yield from _letters(pool, reads, ids)


def _pages(reads: Reads, filter: Filter, count: int) -> Iterator[list[str]]:
    index, rest = dead_index(reads, filter)
    cursor: Cursor | None = None
    while True:
        page = _page(reads, index, rest, after=cursor, count=count)
        if page.ids:
            yield list(page.ids)
        if page.cursor is None:
            return
        cursor = page.cursor


def _page(reads: Reads, index: str, rest: Filter, *, count: int, after: Cursor | None = None, skip: int = 0) -> Page:
    return reads.browse(
        index,
        newest=True,
        before_ms=rest.as_of_ms,
        after=after,
        skip=skip,
        count=count,
        looks=LOOKS,
        tenant=rest.tenant,
        group=rest.group,
        task="\n".join(rest.tasks),
        lane=rest.lane,
        reason=rest.reason,
    )


def _letters(pool: str, reads: Reads, ids: list[str]) -> tuple[JobView, ...]:
    """Those that are still dead letters when they are read."""
    return tuple(letter for letter in views(pool, reads, ids) if letter.record.state is State.DEAD)
