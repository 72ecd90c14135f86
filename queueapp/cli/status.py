"""`manage.py ductor status`: how every pool stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.db.models import Count

from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, table
from queueapp.inspection.overview import PoolStatus, pool_status
from queueapp.inspection.pools import all_pools, require
from queueapp.models import OutboxEntry
from queueapp.producer import outbox

TENANTS_SHOWN = 10
WORKERS_SHOWN = 20


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("status", help="how the pools stand")
    parser.add_argument("pools", nargs="*", metavar="POOL", help="default: every pool")
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    return status(options["pools"], json=options["json"])


def status(pools: Sequence[str], *, json: bool) -> str:
    """The text to print. Raises UnknownPool and StoreError."""
    known = all_pools()
    require(list(pools), known)
    found = [pool_status(pool) for pool in pools or known]
    waiting, refused = _outbox(OutboxEntry.State.WAITING), _outbox(OutboxEntry.State.REFUSED)
    if json:
        return as_json(
            [
                {**asdict(pool), "outbox_waiting": waiting[pool.pool], "outbox_refused": refused[pool.pool]}
                for pool in found
            ]
        )
    kept = [_kept(pool, waiting[pool.pool], refused[pool.pool]) for pool in found]
    return "\n\n".join(filter(None, [_pools(found), *map(_details, found), "\n".join(filter(None, kept))]))


def _outbox(state: OutboxEntry.State) -> Counter[str]:
    """Pool → its jobs that the outboxes of all databases keep."""
    found: Counter[str] = Counter()
    for alias in outbox.served():
        kept = outbox.rows(alias).filter(state=state).order_by().values_list("pool")
        found.update(dict(kept.annotate(Count("pk"))))
    return found


def _kept(pool: PoolStatus, waiting: int, refused: int) -> str:
    parts = []
    if waiting:
        sent = "a scheduler sends them" if pool.leader else "no scheduler runs that would send them"
        parts.append(f"{pool.pool}: {waiting} jobs wait in the outbox for the store; {sent}.")
    if refused:
        parts.append(f"{pool.pool}: {refused} jobs in the outbox were refused for good; the admin shows why.")
    return "\n".join(parts)


def _pools(found: Sequence[PoolStatus]) -> str:
    return table(
        ("pool", "policy", "waiting", "active", "scheduled", "dead", "ended", "longest wait", "workers", "leader"),
        [
            (
                pool.pool,
                pool.policy + (" (paused)" if pool.paused else ""),
                pool.waiting,
                pool.active,
                pool.scheduled,
                pool.dead,
                pool.ended,
                _wait(pool),
                sum(worker.live for worker in pool.workers),
                pool.leader or None,
            )
            for pool in found
        ],
    )


def _wait(pool: PoolStatus) -> str | None:
    if not pool.oldest_wait_ms and pool.oldest_wait_exact:
        return None
    return f"{'' if pool.oldest_wait_exact else 'at least '}{pool.oldest_wait_ms / 1000:.1f} s"


def _details(pool: PoolStatus) -> str:
    parts = [f"{pool.pool}: {note}" for note in pool.notes]
    if pool.tenants:
        rows = list(pool.tenants.items())[:TENANTS_SHOWN]
        parts.append(table((f"tenant of {pool.pool}", "waiting"), rows))
        if pool.tenant_count > TENANTS_SHOWN:
            parts.append(f"… and {pool.tenant_count - TENANTS_SHOWN} more tenants")
    live = [worker for worker in pool.workers if worker.live]
    if live:
        rows_of_workers = [(worker.id, worker.held, f"{worker.silent_ms / 1000:.1f} s ago") for worker in live]
        parts.append(table((f"worker of {pool.pool}", "runs", "heard of"), rows_of_workers[:WORKERS_SHOWN]))
    return "\n".join(parts)
