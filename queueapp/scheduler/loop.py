"""The scheduler's loop: one thread that keeps the lease of leadership and does the duties of every pool, each when due.

What a leader does to pools with scheduled dispatch is done beside it, by a thread of its own (`leading`).

`run` is the loop; `stop` may be called from any thread and from signal handlers. While the store or the database is
away the loop waits with growing pauses and goes on by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Protocol

from django.db import Error as DatabaseError

from queueapp.conf import settings
from queueapp.errors import DuctorError, StoreError, StoreUnavailable
from queueapp.extensions import Duty
from queueapp.outage import Outage
from queueapp.scheduler.dispatching import Dispatcher, DispatchStore
from queueapp.scheduler.duties.backlog import Backlog, BacklogStore
from queueapp.scheduler.duties.families import Families
from queueapp.scheduler.duties.moves import Moves
from queueapp.scheduler.duties.promotion import Promotion, PromotionStore
from queueapp.scheduler.duties.recovery import Recovery, RecoveryStore
from queueapp.scheduler.duties.reranking import Reranking, RerankingStore
from queueapp.scheduler.duties.retention import Retention, RetentionStore
from queueapp.scheduler.leadership import PROBE_S, Leadership, LeadershipStore
from queueapp.scheduler.leading import DispatchThread
from queueapp.store import shards
from queueapp.store.families import OutboxStore
from queueapp.store.presence import Presence
from queueapp.store.transit import MovesStore
from queueapp.sync.installation import Ownership

logger = logging.getLogger(__name__)

PROBED_POOLS = 10
"""Of so many pools a standby looks at each leader ten times a second; of more, as often in all."""
POOLS_EVERY_S = 10.0
"""How often the loop looks for pools that are new."""
SPARE = 0.125
"""This part of its pause a duty may be cut short by: so those of about the same pause come to fall together."""
LEADERSHIP = "leadership"
SHARES_IN_A_ROW = 20
"""A duty that always finds more lets the others in between."""


class SchedulerStore(
    LeadershipStore,
    PromotionStore,
    BacklogStore,
    RecoveryStore,
    RerankingStore,
    RetentionStore,
    MovesStore,
    OutboxStore,
    DispatchStore,
    Protocol,
):
    """The methods of `store.Store` that a scheduler calls."""


@dataclass(slots=True, eq=False)
class Appointment:
    """Something that a party (a pool, or the database's repair) has to do next at `due`."""

    who: str
    what: str
    act: Callable[[], float]
    due: float = 0.0
    spare_s: float = 0.0
    """So much sooner it may be kept, when the loop is awake anyway: to wake costs more than to do."""

    @property
    def name(self) -> str:
        return f"{self.who} {self.what}"


class Scheduler:
    """One process's scheduler over the pools that `pools` names.

    `common` are the duties that belong to no pool. Without `leading` it dispatches nothing.
    """

    def __init__(
        self,
        owner: str,
        pools: Callable[[], Collection[str]],
        open_store: Callable[[str], SchedulerStore],
        common: Sequence[Duty] = (),
        *,
        ownership: Ownership | None = None,
        leading: DispatchThread | None = None,
        presence: Presence | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._owner = owner
        self._leading = leading
        self._pools = pools
        self._open_store = open_store
        self._ownership = ownership
        self._clock = clock
        self._presence = presence
        self._stopping = False
        self._mail: SimpleQueue[tuple[str, bool]] = SimpleQueue()
        """Pools whose leadership wants the loop now, and whether only for this process's own subscription; "" only
        wakes it. A signal handler may put into it at any moment, where the lock of an Event might be held by the very
        thread that the handler interrupts."""
        self._outage = Outage(logger, clock=clock)
        self.leaderships: dict[str, Leadership] = {}
        """By pool."""
        self._by_prefix: dict[str, str] = {}
        """Prefix of the shard → pool. Written by key, so that the thread of the presence needs no lock."""
        self._turned_at = clock()
        self._appointments = [Appointment("pools", "look", self._find_pools)]
        self._appointments += [Appointment("database", type(duty).__name__, duty.run) for duty in common]
        if leading is not None:
            leading.on_doubt = self.hurry
        if presence is not None:
            presence.on_change(self._hurry_shard)

    def stop(self) -> None:
        self._stopping = True
        self._mail.put(("", False))

    def hurry(self, pool: str) -> None:
        """Something happened to the leadership of this pool: the loop looks at once. From any thread."""
        self._mail.put((pool, False))

    def leading(self) -> dict[str, bool]:
        """Pool → whether this scheduler leads it now. May be called from any thread."""
        return {pool: leadership.term is not None for pool, leadership in [*self.leaderships.items()]}

    @property
    def turned_at(self) -> float:
        """When both threads had last got on, on the monotonic clock: probes of health read it."""
        return min(self._turned_at, self._leading.turned_at if self._leading is not None else self._turned_at)

    @property
    def unready(self) -> str:
        """Why this scheduler is of no use just now; "" when it is. For probes."""
        if self._stopping:
            return "it is stopping"
        if self._ownership is not None and self._ownership.barred:
            return "the namespace belongs to another installation"
        return "" if self.leaderships else "it has found no pool yet"

    def run(self) -> None:
        """Does what is due until `stop`, then releases the leases it holds."""
        logger.info("Scheduler started", extra={"owner": self._owner})
        if self._leading is not None:
            self._leading.start()
        try:
            while not self._stopping:
                if self._leading is not None and self._leading.broken:
                    raise DuctorError("The thread that leads has ended by a fault (see the log); start it again.")
                self._turned_at = self._clock()
                if self._may_act():
                    now = self._clock()
                    for appointment in [*self._appointments]:
                        self._lead_hurried(0.0)
                        if appointment.due - appointment.spare_s <= now and not self._stopping:
                            self._keep(appointment)
                self._lead_hurried(self._next_at() - self._clock())
        finally:
            if self._leading is not None:
                self._leading.stop()
            self._release()
            logger.info("Scheduler stopped", extra={"owner": self._owner})

    def _hurry_shard(self, prefix: str) -> None:
        """The presence's thread: this shard's channel was confirmed, or all of them ("") were lost.

        A worker in the same process may have added shards that the loop comes to only later, and asks about then.
        """
        pool = self._by_prefix.get(prefix)
        for named in [*self.leaderships] if not prefix else [pool] if pool is not None else []:
            self._mail.put((named, True))

    def _lead_hurried(self, wait_s: float) -> None:
        """Waits for mail, so long at most, and takes all there is. Leadership first: what it waits for takes
        milliseconds, and the duties before it may take longer. However often a pool is named, it is looked at once."""
        mail: dict[str, bool] = {}
        try:
            pool, subscribed = self._mail.get(timeout=wait_s) if wait_s > 0 else self._mail.get_nowait()
            while True:
                mail[pool] = mail.get(pool, True) and subscribed
                pool, subscribed = self._mail.get_nowait()
        except Empty:
            pass
        for appointment in [*self._appointments] if mail else []:
            if appointment.what == LEADERSHIP and appointment.who in mail and self._may_lead and not self._stopping:
                leadership = self.leaderships[appointment.who]
                if mail[appointment.who]:
                    leadership.presence_changed()
                else:
                    leadership.hurry()
                self._keep(appointment)

    @property
    def _may_lead(self) -> bool:
        return self._ownership is None or not self._ownership.barred

    def _may_act(self) -> bool:
        """Not while the namespace belongs to another installation: its jobs, results and leadership are not ours."""
        if self._ownership is not None:
            self._ownership.look()
        if not self._may_lead:
            self._release()
        return self._may_lead

    def _next_at(self) -> float:
        duties = min(entry.due for entry in self._appointments)
        if self._ownership is None:
            return duties
        return self._ownership.next_at if self._ownership.barred else min(duties, self._ownership.next_at)

    def _keep(self, appointment: Appointment) -> None:
        spare = SPARE if appointment.what != LEADERSHIP else 0.0
        try:
            for _ in range(SHARES_IN_A_ROW):
                self._turned_at = self._clock()
                pause_s = appointment.act()
                if pause_s > 0 or self._stopping:
                    break
            self._outage.worked(appointment.name)
        except Exception as error:
            if not isinstance(error, (StoreError, DatabaseError)) and not self._outage.away(appointment.name):
                # A fault of ours in one duty must not end the others.
                logger.exception("A duty failed", extra={"party": appointment.who, "duty": appointment.what})
            pause_s = self._outage.failed(appointment.name, error)
            if isinstance(error, StoreUnavailable):
                # The others of this party would meet the same; one try tells for all. What the store refuses to one
                # duty (a full store takes no promotions) says nothing about the others.
                for other in self._appointments:
                    if other.who == appointment.who:
                        other.due, other.spare_s = max(other.due, self._clock() + pause_s), 0.0
            spare = 0.0
        appointment.due, appointment.spare_s = self._clock() + pause_s, spare * pause_s

    def _find_pools(self) -> float:
        known = set(self._pools())
        for pool in sorted(known - self.leaderships.keys()):
            store = self._open_store(pool)
            for former in self.leaderships.keys() - known:
                if shards.keys(former) == shards.keys(pool):
                    self._drop_pool(former)
            self._add_pool(pool, store)
        for leadership in self.leaderships.values():
            leadership.probe_s = PROBE_S * max(1.0, len(self.leaderships) / PROBED_POOLS)
        return POOLS_EVERY_S

    def _drop_pool(self, pool: str) -> None:
        """A renamed pool is led under its new name alone. Under two, one would never be led, and alerts would ring."""
        dropped = [entry for entry in self._appointments if entry.who == pool]
        self._appointments = [entry for entry in self._appointments if entry.who != pool]
        for entry in dropped:
            entry.due = float("inf")  # the round that is under way has them still
        if self._leading is not None:
            self._leading.drop(pool)
        self.leaderships.pop(pool).release()

    def _add_pool(self, pool: str, store: SchedulerStore) -> None:
        keys, presence = shards.keys(pool), self._presence
        if presence is not None:
            self._by_prefix[keys.prefix] = pool
        leadership = Leadership(
            pool,
            store,
            self._owner,
            ttl_ms=settings.leader_ttl_ms,
            renew_ms=settings.leader_renewal_ms,
            retry_ms=settings.leader_retry_ms,
            channel=(lambda: presence.channel(keys)) if presence is not None else None,
            doubt=presence.doubt if presence is not None else lambda: None,
            clock=self._clock,
        )
        self.leaderships[pool] = leadership
        if self._leading is not None:
            self._leading.add(Dispatcher(pool, store, lambda: shards.reads(pool), clock=self._clock), leadership)

        def lead() -> float:
            before = leadership.term
            leadership.tick()
            if self._leading is not None and before is None and leadership.term is not None:
                self._leading.notice()
            return max(0.001, leadership.next_at - self._clock())

        duties: list[Duty] = [
            Promotion(store),
            Backlog(store),
            Recovery(pool, store, (lambda: presence.steady(keys)) if presence is not None else lambda: ""),
            Reranking(pool, store),
            Retention(store),
            Moves(pool, store),
            Families(pool, store),
        ]
        self._appointments.append(Appointment(pool, LEADERSHIP, lead))
        if presence is not None:
            presence.add(keys)  # what it tells concerns the pool as it stands now
        self._appointments += [Appointment(pool, type(duty).__name__, duty.run) for duty in duties]

    def _release(self) -> None:
        for pool, leadership in self.leaderships.items():
            try:
                if self._leading is not None and leadership.term is not None:
                    self._leading.let_go(pool)
                leadership.release()
            except StoreError as error:
                logger.info("The lease could not be given back and runs out: %s", error, extra={"pool": pool})
