"""`manage.py ductor status`: how every pool stands, as far as store and database can be asked.

An outage of one does not hide what the other knows: while the store is away, what the outbox keeps is what matters.
When something could not be asked, or the store takes no work (full, a replica, somebody else's), it says so last and
ends with 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.db.models import Count

from queueapp import sync
from queueapp.cli.command import plain
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, fits, prose, table
from queueapp.conf import DEFAULT_POOL, known_pools
from queueapp.errors import StoreError, StoreUnavailable
from queueapp.inspection.overview import PoolStatus, pool_status
from queueapp.inspection.pools import declared_pools, require
from queueapp.inspection.wording import counted
from queueapp.models import OutboxEntry
from queueapp.monitoring.health import database_fault
from queueapp.producer import outbox
from queueapp.store import connection
from queueapp.store.safety import check_room, check_scripts
from queueapp.sync import installation

TENANTS_SHOWN = 10
WORKERS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a pool; None where it could not be asked."""

    pool: str
    status: PoolStatus | None
    outbox_waiting: int | None
    outbox_refused: int | None
    fault: str
    """Why the store said nothing."""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("status", help="how the pools stand")
    parser.add_argument("pools", nargs="*", metavar="POOL", help="default: every pool")
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end. Raises UnknownPool; when something could not be asked, CommandError after printing."""
    text, faults = status(options["pools"], json=options["json"])
    if not faults:
        return text
    console.say(text)
    raise CommandError("\n".join(faults))


def status(pools: Sequence[str], *, json: bool) -> tuple[str, list[str]]:
    """The text to print, and why it is not all of it. Raises UnknownPool."""
    faults: dict[str, None] = {}
    try:
        if (silent := database_fault()) is not None:
            raise silent
        names: list[str] = declared_pools()
        kept: dict[OutboxEntry.State, Counter[str]] | None = {state: _outbox(state) for state in OutboxEntry.State}
    except DatabaseError as error:
        names, kept = sorted(known_pools()), None
        faults[plain(error)] = None
    away = ""
    try:
        names = sorted({*names, *sync.seen_pools()})
        faults |= dict.fromkeys(_unfit(owned=kept is not None))
    except StoreError as error:
        away = str(error)
    if not (away or faults):
        require(list(pools), names)
    found = []
    for pool in pools or sorted({*names, *(pool for tally in (kept or {}).values() for pool in tally)}):
        standing, away = _standing(pool, kept, away)
        found.append(standing)
    faults |= dict.fromkeys(standing.fault for standing in found if standing.fault)
    return (as_json([_mapping(each) for each in found]) if json else _text(found)), [*faults]


def _standing(pool: str, kept: Mapping[OutboxEntry.State, Counter[str]] | None, away: str) -> tuple[Standing, str]:
    """How a pool stands, and why the store is not to be asked about further ones: each question may take a second."""
    seen, fault = None, away
    if not away:
        try:
            seen = pool_status(pool)
        except StoreError as error:
            fault = str(error)
            away = fault if isinstance(error, StoreUnavailable) else ""
    standing = Standing(
        pool=pool,
        status=seen,
        outbox_waiting=None if kept is None else kept[OutboxEntry.State.WAITING][pool],
        outbox_refused=None if kept is None else kept[OutboxEntry.State.REFUSED][pool],
        fault=fault,
    )
    return standing, away


def _unfit(*, owned: bool) -> Iterator[str]:
    """Why a store that answers takes no work of ours. `owned`: the database can be asked whose it is."""
    checks: list[Callable[[], object]] = [lambda: check_scripts(DEFAULT_POOL), lambda: check_room(connection.reads())]
    if owned:
        checks.append(installation.look)
    for check in checks:
        try:
            check()
        except StoreUnavailable:
            raise
        except StoreError as error:
            yield str(error)


def _outbox(state: OutboxEntry.State) -> Counter[str]:
    """Pool → its jobs that the outboxes of all databases keep."""
    found: Counter[str] = Counter()
    for alias in outbox.served():
        kept = outbox.rows(alias).filter(state=state).order_by().values_list("pool")
        found.update(dict(kept.annotate(Count("pk"))))
    return found


def _mapping(standing: Standing) -> dict[str, Any]:
    told = {name: value for name, value in asdict(standing).items() if name != "status"}
    return {**(asdict(standing.status) if standing.status else {}), **told}


def _text(found: Sequence[Standing]) -> str:
    seen = [standing.status for standing in found if standing.status is not None]
    kept = prose("\n".join(filter(None, map(_kept, found))))
    return "\n\n".join(filter(None, [_pools(seen), *map(_details, seen), kept]))


def _kept(standing: Standing) -> str:
    parts = []
    if standing.outbox_waiting:
        sent = "a scheduler sends them"
        if standing.status is None:
            sent = "a scheduler sends them when the store can be used again"
        elif not standing.status.leader:
            sent = "no scheduler runs that would send them"
        parts.append(f"{standing.pool}: {standing.outbox_waiting} jobs wait in the outbox for the store; {sent}.")
    if standing.outbox_refused:
        parts.append(
            f"{standing.pool}: {standing.outbox_refused} jobs in the outbox were refused for good; the admin shows why."
        )
    return "\n".join(parts)


def _pools(found: Sequence[PoolStatus]) -> str:
    header = ("pool", "policy", "waiting", "active", "scheduled", "dead", "ended", "longest wait", "workers", "leader")
    rows = [
        (
            pool.pool,
            pool.rule + (", scheduled" if pool.dispatch == "scheduled" else "") + (" (paused)" if pool.paused else ""),
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
    ]
    whole = table(header, rows)
    if fits(whole):
        return whole
    # Side by side they would be broken anywhere: what there is to do, and below it who does it and how.
    halves = ((0, 2, 3, 4, 5, 6, 7), (0, 1, 8, 9))
    return "\n\n".join(table([header[n] for n in half], [[row[n] for n in half] for row in rows]) for half in halves)


def _wait(pool: PoolStatus) -> str | None:
    if not pool.oldest_wait_ms and pool.oldest_wait_exact:
        return None
    return f"{'' if pool.oldest_wait_exact else 'at least '}{pool.oldest_wait_ms / 1000:.1f} s"


def _details(pool: PoolStatus) -> str:
    parts = [prose(f"{pool.pool}: {note}") for note in pool.notes]
    if pool.window is not None or pool.ingress or pool.ready:
        window = "" if pool.window is None else f", window {pool.window:,}"
        parts.append(f"{pool.pool}: {pool.ingress:,} in ingress, {pool.ready:,} ready{window}")
    if pool.parked:
        parts.append(f"{pool.pool}: {pool.parked:,} parked above a rate")
    if pool.parents:
        parts.append(f"{pool.pool}: {counted(pool.parents, 'job waits', 'jobs wait')} for children")
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
