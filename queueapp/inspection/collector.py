"""Gauges that are true of a pool, whoever asks: read from the store at the moment of the scrape, never summed.

Shown by schedulers, by `stack` and by the site; every page shows the same, so queries take `max`, not `sum`. A look at
all pools is kept for a second. A store that does not answer costs a scrape about a second, and gives
`ductor_store_up 0` and nothing else, so that no figure outlives what it says. Safe to use from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic, time

from django.core.signals import setting_changed
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queueapp.conf import known_pools
from queueapp.errors import DuctorError, StoreUnavailable
from queueapp.inspection.dead_gauges import DeadGauges, Filled
from queueapp.inspection.fairness import Certificate
from queueapp.inspection.fairness_gauges import FairnessGauges
from queueapp.inspection.overview import PoolStatus, pool_status
from queueapp.metrics import SHARD
from queueapp.store import shards

KEPT_S = 1.0
BUDGET_S = 2.0
"""No further pool is begun after this; the last one may take a second more."""

Value = Callable[[PoolStatus], float | None]
"""Of a pool; None: nothing to show."""

GAUGES: dict[str, tuple[str, Value]] = {
    "ductor_pending_tasks": (
        "Jobs that wait and could be leased: neither due later, parked nor running.",
        lambda pool: max(0, pool.waiting - pool.scheduled - pool.parked),
    ),
    "ductor_scheduled_tasks": ("Jobs that wait for their time.", lambda pool: pool.scheduled),
    "ductor_backlog_tasks": ("Jobs that came above a rate and wait for their moment.", lambda pool: pool.parked),
    "ductor_parent_tasks": ("Jobs that wait for their children; none of the pending ones.", lambda pool: pool.parents),
    "ductor_throttled_scopes": (
        "Tenants and lanes whose waiting jobs a dispatch rate holds back.",
        lambda pool: pool.throttled,
    ),
    "ductor_active_tasks": ("Jobs that workers have leased.", lambda pool: pool.active),
    "ductor_ingress_tasks": (
        "Jobs that no leader has ranked yet, of the pending ones; always 0 under direct dispatch.",
        lambda pool: pool.ingress,
    ),
    "ductor_ready_tasks": (
        "Jobs that a leader has chosen and no worker has taken yet, of the pending ones.",
        lambda pool: pool.ready,
    ),
    "ductor_dispatch_window": (
        "Most jobs that are chosen and not yet done; of pools with scheduled dispatch.",
        lambda pool: pool.window,
    ),
    "ductor_reranking_tasks": (
        "Pending jobs that stand in the order of the policy before and are moved over; 0 when none are.",
        lambda pool: pool.reranking.total - pool.reranking.moved if pool.reranking else 0,
    ),
    "ductor_dead_letters": ("Dead letters that are kept.", lambda pool: pool.dead),
    "ductor_longest_pending_wait_seconds": (
        "How long the pending job has waited that has waited longest; 0 when none does.",
        lambda pool: (pool.oldest_wait_ms or 0) / 1000,
    ),
    "ductor_workers_live": (
        "Workers that have been heard of lately.",
        lambda pool: sum(worker.live for worker in pool.workers),
    ),
    "ductor_scheduler_leader_term": (
        "Epoch of the newest term of leadership; it only grows.",
        lambda pool: pool.leader_epoch or None,
    ),
    "ductor_scheduler_leader_age_seconds": (
        "Time since the newest term began, whether its leader still leads or not.",
        lambda pool: max(0.0, time() - pool.leader_epoch / 1000) if pool.leader_epoch else None,
    ),
    "ductor_scheduler_last_tick_timestamp_seconds": (
        "When a leader last renewed its lease; stands still while nobody leads.",
        lambda pool: pool.last_tick / 1000 if pool.last_tick else None,
    ),
}
COUNTERS: dict[str, tuple[str, Value]] = {
    "ductor_tasks_enqueued_total": ("Jobs that the store accepted.", lambda pool: pool.stats.get("enqueued", 0)),
    "ductor_tasks_dead_lettered_total": (
        "Jobs that became dead letters, whoever decided it.",
        lambda pool: pool.stats.get("dead", 0),
    ),
    "ductor_dead_letters_dropped_total": (
        "Dead letters that went because their tenant had more than DEAD_MAX; the oldest go first.",
        lambda pool: pool.stats.get("dead_dropped", 0),
    ),
    "ductor_tasks_lost_total": (
        "Leases that ran out: of workers that died, hung or were cut off.",
        lambda pool: pool.stats.get("lost", 0),
    ),
}
"""Kept by the store itself: whole, whichever process did it. They begin anew when the store is emptied."""
STORE_UP = "ductor_store_up"
STORE_UP_HELP = "1 when every pool could be read for this page."
IS_LEADER = "ductor_scheduler_is_leader"
IS_LEADER_HELP = "1 while this scheduler leads the shard, else 0. Exactly one should."
LABELS = ("pool", "shard")


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of all pools at one moment."""

    up: bool
    pools: tuple[PoolStatus, ...]
    certificates: tuple[Certificate, ...] = ()
    filled: tuple[Filled, ...] = ()


class StoreCollector(Collector):
    """The gauges of every pool that the settings name or the store has seen."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: Look | None = None
        self._kept_until = 0.0
        self._fairness = FairnessGauges(clock)
        self._dead = DeadGauges(clock)

    def look(self) -> Look:
        """All pools, at most a second old."""
        with self._lock:
            if self._kept is None or self._clock() >= self._kept_until:
                self._kept = self._read()
                self._kept_until = self._clock() + KEPT_S
            return self._kept

    def forget(self) -> None:
        """The next look reads anew."""
        with self._lock:
            self._kept = None
            self._fairness.forget()
            self._dead.forget()

    def describe(self) -> Iterator[Metric]:
        """The families without samples. Reads nothing: registries ask for it when the process starts."""
        yield from self._families(Look(up=False, pools=()))

    def collect(self) -> Iterator[Metric]:
        """The families as the store is now."""
        yield from self._families(self.look())

    def _families(self, look: Look) -> Iterator[Metric]:
        yield from _families(look)
        with self._lock:
            families = [*self._fairness.families(look.certificates), *self._dead.families(look.filled)]
        yield from families

    def _read(self) -> Look:
        started, up = self._clock(), True
        found: list[PoolStatus] = []
        certificates: list[Certificate] = []
        filled: list[Filled] = []
        try:
            for pool in sorted(known_pools() | shards.pools().keys()):
                if self._clock() - started > BUDGET_S:
                    up = False
                    break
                try:
                    found.append(pool_status(pool))
                    certificates.append(self._fairness.of(pool))
                    filled.append(self._dead.of(found[-1]))
                except StoreUnavailable:
                    raise
                except DuctorError:
                    up = False  # a fault of this pool alone: the others can be shown
        except DuctorError:
            return Look(up=False, pools=())
        return Look(up=up, pools=tuple(found), certificates=tuple(certificates), filled=tuple(filled))


class LeaderCollector(Collector):
    """Whether the scheduler of this process leads, by its own knowledge: also while the store is away."""

    def __init__(self, leading: Callable[[], Mapping[str, bool]]) -> None:
        self._leading = leading

    def collect(self) -> Iterator[Metric]:
        """One sample a pool."""
        family = GaugeMetricFamily(IS_LEADER, IS_LEADER_HELP, labels=LABELS)
        for pool, leads in sorted(self._leading().items()):
            family.add_metric((pool, SHARD), float(leads))
        yield family


def _families(look: Look) -> Iterator[Metric]:
    yield GaugeMetricFamily(STORE_UP, STORE_UP_HELP, value=float(look.up))
    for kind, table in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
        for name, (text, value) in table.items():
            family = kind(name, text, labels=LABELS)
            for pool in look.pools:
                number = value(pool)
                if number is not None:
                    family.add_metric((pool.pool, SHARD), number)
            yield family


STORE = StoreCollector()
"""The one of this process."""


def _forget_on_change(*, setting: str, **_: object) -> None:
    if setting == "DUCTOR":
        STORE.forget()


setting_changed.connect(_forget_on_change, dispatch_uid="queueapp.inspection.collector")
