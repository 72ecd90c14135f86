"""`manage.py ductor status`: how every pool stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from queueapp.cli.table import as_json, table
from queueapp.inspection.overview import PoolStatus, pool_status
from queueapp.inspection.pools import all_pools, require

TENANTS_SHOWN = 10
WORKERS_SHOWN = 20


def status(pools: Sequence[str], *, json: bool) -> str:
    """The text to print. Raises UnknownPool and StoreError."""
    known = all_pools()
    require(list(pools), known)
    found = [pool_status(pool) for pool in pools or known]
    if json:
        return as_json([asdict(pool) for pool in found])
    return "\n\n".join([_pools(found), *filter(None, map(_details, found))])


def _pools(found: Sequence[PoolStatus]) -> str:
    return table(
        ("pool", "policy", "waiting", "active", "scheduled", "dead", "ended", "workers", "leader"),
        [
            (
                pool.pool,
                pool.policy + (" (paused)" if pool.paused else ""),
                pool.waiting,
                pool.active,
                pool.scheduled,
                pool.dead,
                pool.ended,
                sum(worker.live for worker in pool.workers),
                pool.leader or None,
            )
            for pool in found
        ],
    )


def _details(pool: PoolStatus) -> str:
    parts = [f"{pool.pool}: {note}" for note in pool.notes]
    if pool.tenants:
        rows = list(pool.tenants.items())[:TENANTS_SHOWN]
        parts.append(table((f"tenant of {pool.pool}", "waiting"), rows))
        if len(pool.tenants) > TENANTS_SHOWN:
            parts.append(f"… and {len(pool.tenants) - TENANTS_SHOWN} more tenants")
    live = [worker for worker in pool.workers if worker.live]
    if live:
        rows_of_workers = [(worker.id, worker.held, f"{worker.silent_ms / 1000:.1f} s ago") for worker in live]
        parts.append(table((f"worker of {pool.pool}", "runs", "heard of"), rows_of_workers[:WORKERS_SHOWN]))
    return "\n".join(parts)
