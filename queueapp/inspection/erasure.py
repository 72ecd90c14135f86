"""Erasing a tenant: what every pool and every database keeps of its work, in bounded shares. Called by the terminal.

What goes: its jobs in whatever state, arguments, results, errors, progress; its idempotency keys; what was learnt of
its run times; its rows in the outboxes; what was written down about its dead letters; its schedules that were made by
hand. What stays: Tenant and TenantLimits, which are settings, schedules that the code declares, and the log of the
admin, which is Django's. A body that runs goes on; what it says afterwards is refused: nobody knows its job any more.

Jobs that come while it lasts are left alone. Interrupted, what is gone is gone; the same call again does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import QuerySet

from queueapp.conf import settings
from queueapp.errors import InvalidOption
from queueapp.inspection.moving import deliver
from queueapp.inspection.pools import all_pools
from queueapp.inspection.selection import Selection, batches, count
from queueapp.models import DeadLetterInspection, Schedule
from queueapp.names import TENANT_FORM
from queueapp.producer import outbox
from queueapp.states import State
from queueapp.store import shards

LIMIT = 1_000
EVERY = tuple(state for state in State if state is not State.MOVING)
"""Jobs on their way to another pool are brought there first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """How much there is, or how much is gone, by place: a pool, `outbox <database>`, and the kinds of rows."""

    places: dict[str, int] = field(default_factory=dict)
    exact: bool = True
    """False: at least so much."""

    @property
    def number(self) -> int:
        return sum(self.places.values())

    def plus(self, place: str, number: int) -> Erasure:
        return replace(self, places={**self.places, place: self.places.get(place, 0) + number})


def extent(tenant: str) -> Erasure:
    """How much there is, without changing anything: jobs of each pool, rows of each kind. Raises InvalidOption."""
    _check(tenant)
    found = Erasure()
    for place, rows in _rows(tenant):
        found = found.plus(place, rows.count())
    for pool in all_pools():
        counted = count(_jobs(pool, tenant))
        found = replace(found.plus(f"pool {pool}", counted.number), exact=found.exact and counted.exact)
    return found


def erase(tenant: str, *, progress: Callable[[Erasure], None] = lambda _: None) -> Erasure:
    """Does it; how many jobs and rows went, by place. Raises InvalidOption, StoreError and DatabaseError.

    Rows go first, so that no relay and no firing makes jobs of them in a pool that is done; and once more at the end.
    """
    _check(tenant)
    done = _erase_rows(tenant, Erasure(), progress)
    for pool in all_pools():
        deliver(pool, shards.store(pool))
    for pool in all_pools():
        store = shards.store(pool)
        # Once more at the end: who ran and ended after the ended ones were looked at.
        for states in (EVERY, (State.DEAD, State.ENDED)):
            for _, ids in batches(_jobs(pool, tenant, states)):
                done = done.plus(f"pool {pool}", store.erase(tenant, ids).count("erased"))
                progress(done)
        cursor = "0"
        while True:
            cursor, _ = store.erase_traces(tenant, cursor, LIMIT)
            if cursor == "0":
                break
    return _erase_rows(tenant, done, progress)


def _check(tenant: str) -> None:
    if not TENANT_FORM.fullmatch(tenant):
        raise InvalidOption(f"tenant is {tenant!r}: that is no key of a tenant; `ductor tenants` shows them.")


def _erase_rows(tenant: str, done: Erasure, progress: Callable[[Erasure], None]) -> Erasure:
    for place, rows in _rows(tenant):
        done = done.plus(place, rows.delete()[0])
        progress(done)
    return done


def _jobs(pool: str, tenant: str, states: tuple[State, ...] = EVERY) -> Selection:
    return Selection(pool=pool, states=states, tenant=tenant)


def _rows(tenant: str) -> Iterator[tuple[str, QuerySet[Any]]]:
    for alias in outbox.served():
        yield f"outbox {alias}", outbox.rows(alias).filter(tenant=tenant)
    of = {"tenant": tenant}
    yield "records of dead letters", DeadLetterInspection.objects.using(settings.database).filter(**of)
    yield "schedules", Schedule.objects.using(settings.database).filter(**of).exclude(source=Schedule.Source.CODE)
