"""Erasing a tenant: what every pool and every database keeps of its work, in bounded shares. Called by the terminal.

What goes: its jobs in whatever state, arguments, results, errors, progress, what moved jobs left behind; its
idempotency keys; what was learnt of its run times; when its rates let it run, and how long its limits held it back; its
rows in the outboxes; what was written down about its dead letters; its schedules that were made by hand; what packages
like flows keep of it (`extensions.owned`). What stays:
Tenant and TenantLimits, which are settings, schedules that the code declares, and the log of the admin, which is
Django's. A body that runs goes on; what it says afterwards is refused: nobody knows its job any more.

A job on its way to another pool is asked back; then that pool is told that it must not arrive; then it goes where it
was (lua/erase.lua). Whoever dies in between leaves it where it was.

Jobs of it in other tenants' trees that are kept or noted for another pool are made first, and go as all others: whoever
waits for them is told that they were erased. What a child gave before stays with the parent that it gave it to.

Jobs that come while it lasts are left alone. Interrupted, what is gone is gone; the same call again does the rest. What
is left in the end is told, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from queueapp import extensions
from queueapp.conf import settings
from queueapp.errors import InvalidOption, StoreError
from queueapp.extensions import Owned
from queueapp.inspection.pools import all_pools
from queueapp.inspection.selection import CHUNK, Selection, batches, count
from queueapp.models import DeadLetterInspection, Schedule
from queueapp.names import TENANT_FORM
from queueapp.producer import outbox, relaying
from queueapp.states import State
from queueapp.store import families, shards
from queueapp.store.operating import EraseMode

logger = logging.getLogger(__name__)

LIMIT = 1_000
ROUNDS = 5
"""So often all pools are gone through while jobs are moved from one to another."""
EVERY = tuple(state for state in State if state is not State.MOVING)
ON_THE_WAY = "on their way to another pool: say the same again"
UNREADABLE = "that nobody can read, so that nothing says whose they are (`quarantine`)"
UNTOLD = "that are to be made in another pool, which does not take them now: say the same again"
UNSENT = "of trees of other tenants that the store does not take now: say the same again"
NEW = "that wait: they came meanwhile, or cannot be read and were not met yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """How much there is, or how much is gone, by place: a pool, `outbox <database>`, and the kinds of rows."""

    places: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    """What is left in the end, by place and reason."""
    exact: bool = True
    """False: at least so much."""

    @property
    def number(self) -> int:
        return sum(self.places.values())

    def plus(self, place: str, number: int) -> Erasure:
        return replace(self, places={**self.places, place: self.places.get(place, 0) + number})

    def leaving(self, place: str, why: str, number: int) -> Erasure:
        return replace(self, left={**self.left, f"jobs of the {place} {why}": number}) if number else self


def extent(tenant: str) -> Erasure:
    """How much there is, without changing anything: jobs of each pool, rows of each kind. Raises InvalidOption."""
    _check(tenant)
    found = Erasure()
    for place, rows in _rows(tenant):
        found = found.plus(place, rows.count())
    for alias in outbox.served():
        found = found.plus(f"outbox {alias}", len(relaying.shared_trees(alias, tenant)))
    for pool in all_pools():
        counted = count(_jobs(pool, tenant))
        moving = sum(len(ids) for ids in _members(pool, "moving", tenant))
        untold = families.untold(pool, tenant)
        words = [word for ids in shards.reads(pool).set_aside() for word in _erase(pool, tenant, ids, "look")]
        found = found.plus(f"pool {pool}", counted.number + moving + untold + words.count("erased"))
        found = found.leaving(f"pool {pool}", UNREADABLE, words.count("unknown"))
        found = replace(found, exact=found.exact and counted.exact)
    return found


def erase(tenant: str, *, progress: Callable[[Erasure], None] = lambda _: None, by: str = "") -> Erasure:
    """Does it; how many jobs and rows went, by place, and what is left. `by` goes to the log.

    Raises InvalidOption, StoreError and DatabaseError.

    Rows go first, so that no relay and no firing makes jobs of them in a pool that is done; and once more at the end.
    """
    _check(tenant)
    run, ended = _Run(tenant, progress), False
    try:
        run.rows()
        pools = all_pools()
        run.make(pools)
        meant = [_jobs(pool, tenant).fixed() for pool in pools]
        for _ in range(ROUNDS):
            moved = [run.jobs(selection) for selection in meant]
            if not any(moved):  # else some may be in a pool now that was gone through before
                break
        for pool in pools:
            run.rest(pool)
        run.rows()
        ended = True
    finally:  # also where somebody ended it
        extra = {"tenant": tenant, "by": by, "counts": run.done.places, "left": run.done.left}
        logger.info("Erased a tenant's work" if ended else "Erased a part of a tenant's work", extra=extra)
    return run.done


class _Run:
    """One erasure, and how far it is."""

    def __init__(self, tenant: str, progress: Callable[[Erasure], None]) -> None:
        self._tenant = tenant
        self._progress = progress
        self.done = Erasure()

    def rows(self) -> None:
        for place, rows in _rows(self._tenant):
            self._gone(place, rows.delete()[0])

    def make(self, pools: Sequence[str]) -> None:
        """What was accepted as a part of somebody's tree and is on its way: whoever waits for it must hear of its end,
        so that it is made first."""
        unsent = relaying.send_trees_with(self._tenant)
        self.done = self.done.leaving("outboxes", UNSENT, unsent)
        for pool in pools:
            with suppress(StoreError):  # of a pool that does not take them; `rest` counts
                families.deliver(pool)

    def jobs(self, meant: Selection) -> bool:
        """Those of one pool; whether some were found that have left it for another since it began, or are about to."""
        for _, ids in batches(meant):
            self._erase(meant.pool, ids)
        moved = False
        for ids in _members(meant.pool, "moving", self._tenant):
            moved = True
            self._erase_moving(meant.pool, ids)
        for ids in _members(meant.pool, "stubs", self._tenant):
            moved = True
            self._erase(meant.pool, ids)
        return moved

    def rest(self, pool: str) -> None:
        """What is beside those, and who ran and ended after the ended ones were looked at."""
        for _, ids in batches(_jobs(pool, self._tenant, (State.DEAD, State.ENDED))):
            self._erase(pool, ids)
        unknown = 0
        for ids in shards.reads(pool).set_aside():
            unknown += self._erase(pool, ids).count("unknown")
        store, cursor = shards.store(pool), "0"
        while True:
            cursor, _ = store.erase_traces(self._tenant, cursor, LIMIT)
            if cursor == "0":
                break
        moving = sum(len(ids) for ids in _members(pool, "moving", self._tenant))
        [there] = shards.reads(pool).tenants_of([self._tenant])
        untold = families.untold(pool, self._tenant)
        for why, number in ((ON_THE_WAY, moving), (UNREADABLE, unknown), (UNTOLD, untold), (NEW, there.waiting)):
            self.done = self.done.leaving(f"pool {pool}", why, number)

    def _erase_moving(self, pool: str, ids: Sequence[str]) -> None:
        targets: dict[str, list[str]] = {}
        for job_id, word in zip(ids, self._erase(pool, ids), strict=True):
            state, _, target = word.partition(" ")
            if state == "moving":
                targets.setdefault(target, []).append(job_id)
        for target, leaving in targets.items():
            code = target.partition(".")[0]
            name = shards.pools_of([code]).get(code)
            if name is not None and shards.keys(name).code == code:  # else nobody can bring them there
                self._erase(name, leaving, "bar")
            self._erase(pool, leaving, "barred")

    def _erase(self, pool: str, ids: Sequence[str], mode: EraseMode = "") -> list[str]:
        words = _erase(pool, self._tenant, ids, mode)
        self._gone(f"pool {pool}", words.count("erased"))
        return words

    def _gone(self, place: str, number: int) -> None:
        self.done = self.done.plus(place, number)
        self._progress(self.done)


def _check(tenant: str) -> None:
    if not TENANT_FORM.fullmatch(tenant):
        raise InvalidOption(f"tenant is {tenant!r}: that is no key of a tenant; `ductor tenants` shows them.")


def _erase(pool: str, tenant: str, ids: Sequence[str], mode: EraseMode) -> list[str]:
    return shards.store(pool).erase(tenant, ids, mode=mode)


def _jobs(pool: str, tenant: str, states: tuple[State, ...] = EVERY) -> Selection:
    return Selection(pool=pool, states=states, tenant=tenant)


def _members(pool: str, index: str, tenant: str) -> Iterator[list[str]]:
    """Ids of the tenant in an index that is of no state of a selection, page by page, whenever they were submitted."""
    reads, cursor = shards.reads(pool), None
    while True:
        page = reads.browse(index, after=cursor, count=CHUNK, tenant=tenant)
        if page.ids:
            yield list(page.ids)
        cursor = page.cursor
        if cursor is None:
            return


def _rows(tenant: str) -> Iterator[tuple[str, Owned]]:
    for alias in outbox.served():
        yield f"outbox {alias}", outbox.rows(alias).filter(tenant=tenant)
    of = {"tenant": tenant}
    yield "records of dead letters", DeadLetterInspection.objects.using(settings.database).filter(**of)
    yield "schedules", Schedule.objects.using(settings.database).filter(**of).exclude(source=Schedule.Source.CODE)
    for kind, rows in extensions.owned.items():
        yield kind, rows(tenant)
