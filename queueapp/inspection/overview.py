"""How the pools stand: sizes, tenants, workers, leader, and what an operator should know about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from queueapp.conf import settings
from queueapp.inspection.waits import longest_wait
from queueapp.inspection.wording import counted, lasting
from queueapp.store import shards
from queueapp.store.configuration import PoolConf
from queueapp.store.views import PoolOverview, ShardSizes

LIVE_MS = 60_000
"""A worker silent for so long, or for two leases when these are longer, is taken for gone."""
STUCK_MS = 300_000
"""Jobs so long on their way to another pool do not come there by themselves: schedulers try every half minute."""
FORGOTTEN_SHARE = 0.95
FORGOTTEN_LEAST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A worker that made itself known. `silent_ms` is the time since its last call."""

    id: str
    held: int
    silent_ms: int
    live: bool
    info: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus(ShardSizes):
    """One pool, at one moment."""

    pool: str
    policy: str
    rule: str
    """The policy with the parameter that it takes, for people."""
    edf_by: str
    aging_step_ms: int
    dispatch: str
    """direct or scheduled."""
    window: int | None
    """Most jobs that are chosen and not done, under scheduled dispatch: configured, or the slots of live workers."""
    paused: bool
    tenants: Mapping[str, int]
    """Tenant → waiting jobs, the largest first; a thousand tenants at most."""
    workers: tuple[WorkerStatus, ...]
    leader: str
    """Who leads now; empty = nobody."""
    leader_epoch: int
    """Of the newest term, in force or not: the moment in ms at which it began; 0 = there was none."""
    leader_until: int
    """Moment in ms at which the lease of leadership ends unless it is renewed; 0 = nobody leads."""
    last_tick: int
    """Moment in ms at which a leader last renewed its lease; stands still while nobody leads."""
    oldest_wait_ms: int
    """How long the pending job has waited that has waited longest; 0 = none is pending."""
    oldest_wait_exact: bool
    """False: a large pool, of which a share was looked at (`waits`): at least so long."""
    stats: Mapping[str, int]
    notes: tuple[str, ...]
    """What stands still, or looks like a mistake, in words."""


def pool_status(pool: str) -> PoolStatus:
    """Reads one pool. Raises StoreUnavailable within about a second."""
    reads = shards.reads(pool)
    seen, configured = reads.overview(), reads.configured()
    wait = longest_wait(reads)
    live_ms = max(LIVE_MS, 2 * settings.lease_ms)
    workers = tuple(
        WorkerStatus(
            id=worker.id,
            held=worker.held,
            silent_ms=max(0, seen.now_ms - worker.last_ms),
            live=seen.now_ms - worker.last_ms < live_ms,
            info=worker.info,
        )
        for worker in seen.workers
    )
    window = None
    if configured.dispatch == "scheduled":
        window = configured.window or sum(_slots(worker) for worker in workers if worker.live)
    sizes: dict[str, Any] = {each.name: getattr(seen, each.name) for each in fields(ShardSizes)}
    return PoolStatus(
        **sizes,
        pool=pool,
        policy=configured.policy,
        rule=configured.rule,
        edf_by=configured.by,
        aging_step_ms=configured.step_ms,
        dispatch=configured.dispatch,
        window=window,
        paused=configured.paused,
        tenants=dict(sorted(seen.tenants.items(), key=lambda item: (-item[1], item[0]))),
        workers=workers,
        leader=seen.leader,
        leader_epoch=seen.leader_epoch,
        leader_until=seen.leader_until_ms if seen.leader else 0,
        last_tick=seen.last_tick_ms,
        oldest_wait_ms=wait.ms,
        oldest_wait_exact=wait.exact,
        stats=dict(sorted(seen.stats.items())),
        notes=tuple(_notes(pool, seen, workers, configured)),
    )


def _slots(worker: WorkerStatus) -> int:
    said = worker.info.get("slots", "")
    return int(said) if said.isdigit() else 0


def _notes(pool: str, seen: PoolOverview, workers: tuple[WorkerStatus, ...], configured: PoolConf) -> Iterator[str]:
    if configured.paused and seen.waiting:
        yield "The pool is paused: its jobs wait until it is resumed."
    if seen.waiting and not any(worker.live for worker in workers):
        yield "No worker serves this pool: start one with `manage.py worker`."
    if configured.dispatch == "scheduled" and not seen.leader:
        yield (
            "No leader: nothing is dispatched. Workers take what was chosen before; all else waits until a scheduler "
            "leads. Start `manage.py scheduler`, or set the pool's dispatch to direct."
        )
    if seen.leader and seen.leader_fault:
        yield (
            f"The leader cannot dispatch: {seen.leader_fault} Workers take what was chosen before; all else waits. "
            "The log of the scheduler says more."
        )
    if not seen.leader:
        yield (
            "No scheduler runs. Workers still promote due jobs and recover those of lost workers. What stands still: "
            "relay of the outbox, sync repair of saved limits, removal of old results. Start `manage.py scheduler`."
        )
    if seen.reranking is not None:
        yield (
            f"Re-ranking: {seen.reranking.moved:,} of {seen.reranking.total:,} jobs moved from the order of "
            f"{seen.reranking.policy} to that of {configured.rule}."
        )
    if seen.moving:
        text = (
            f"{counted(seen.moving, 'job is', 'jobs are')} on the way to another pool: a scheduler brings them there."
        )
        if seen.now_ms - seen.moving_since_ms >= STUCK_MS:
            text += (
                f" The first left {lasting(seen.now_ms - seen.moving_since_ms)} ago: does that pool take jobs? "
                f"`manage.py ductor move --from {pool} --back` takes back what has not come there."
            )
        yield text
    if seen.quarantined:
        yield f"{seen.quarantined} jobs were set aside because their rows are not of Ductor's making."
    forgotten = seen.tenants.get(settings.tenant_default, 0)
    if seen.waiting >= FORGOTTEN_LEAST and forgotten >= FORGOTTEN_SHARE * seen.waiting:
        yield (
            f"Nearly all of this work belongs to the tenant {settings.tenant_default!r}: name the tenant with "
            ".using(tenant=...) or `with queueapp.tenant(...)`, else fairness between tenants has nothing to work on."
        )
