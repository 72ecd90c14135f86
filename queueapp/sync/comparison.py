"""The repair: compares what SQL asks for with what the store has in force, and rewrites what differs.

The SQL side is read in pages by id, the store's side in pages by name, because databases do not agree on how text
sorts. Schedulers may repair at the same time: what they write is the same, and the store refuses the older of two.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from queueapp import conf
from queueapp.errors import OldVersion, StoreError, StoreUnavailable
from queueapp.models import Pool, TenantLimits
from queueapp.store import shards
from queueapp.store.records import ScopeLimits
from queueapp.sync.intent import Scope, scope_limits, versions, wanted_pool, wanted_scopes, write

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turn:
    """Where the next pass goes on: a pool, in it the rows after an id, and then the store's scopes after a name."""

    pool: str = ""
    row: int = 0
    rows_done: bool = False
    scope: Scope = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """One pool's share of a pass."""

    seen: int
    rewritten: int
    done: bool
    """Nothing of the pool is left to compare."""


_turn = _Turn()
_one_at_a_time = threading.Lock()


def repair(limit: int = 2000) -> int:
    """Compare up to `limit` records and rewrite what differs; how many were rewritten.

    The next call goes on where this one stopped, pool by pool, around and around. Errors of the store are raised: at
    once when it is away, else (another schema, a code that is taken) when the other pools have had their turn. A call
    while another runs in this process does nothing.
    """
    if not _one_at_a_time.acquire(blocking=False):
        return 0
    try:
        return _pass(limit)
    finally:
        _one_at_a_time.release()


def _pass(limit: int) -> int:
    global _turn
    known = sorted(conf.known_pools() | set(Pool.objects.values_list("name", flat=True)) | set(shards.pools()))
    rewritten = 0
    fault: StoreError | None = None
    for name in [pool for pool in known if pool >= _turn.pool] + [pool for pool in known if pool < _turn.pool]:
        if name != _turn.pool:
            _turn = _Turn(pool=name)
        try:
            page = _compare(name, limit)
        except OldVersion:
            # Somebody saved meanwhile, so that what was read may be old. The next pass looks at the same records again.
            break
        except StoreUnavailable:
            raise
        except StoreError as error:
            fault = error
            _turn = _after(name)
            continue
        rewritten += page.rewritten
        limit -= page.seen
        if page.done:
            _turn = _after(name)
        if limit <= 0:
            break
    if fault is not None:
        raise fault
    return rewritten


def _after(pool: str) -> _Turn:
    """The turn of whatever pool comes next in the order of names."""
    return _Turn(pool=f"{pool}\0")


def _compare(name: str, limit: int) -> _Page:
    version = versions.next(shards.reads(name).version())
    reads = shards.reads(name)
    in_force = reads.scope_limits()
    pool = wanted_pool(name)
    pool_differs = reads.configured() != pool

    rows: list[TenantLimits] = []
    if not _turn.rows_done:
        of_pool = TenantLimits.objects.filter(pool__name=name, pk__gt=_turn.row)
        rows = list(of_pool.select_related("tenant").order_by("pk")[:limit])
    rows_done = len(rows) < limit
    scopes: list[Scope] = []
    if rows_done:
        scopes = [scope for scope in sorted(in_force) if scope > _turn.scope][: limit - len(rows)]
    seen = len(rows) + len(scopes)

    differing = [wanted for wanted in map(scope_limits, rows) if in_force.get(_scope(wanted)) != wanted]
    differing += [wanted for wanted in wanted_scopes(name, scopes) if wanted.clear]
    if pool_differs or differing:
        pool_differs = write(name, version, pool if pool_differs else None, differing) and pool_differs
    if pool_differs or differing:
        logger.info("repaired", extra={"pool": name, "scopes": len(differing), "pool_settings": pool_differs})

    _turn.rows_done = rows_done
    if rows:
        _turn.row = rows[-1].pk
    if scopes:
        _turn.scope = scopes[-1]
    return _Page(seen=max(1, seen), rewritten=len(differing) + pool_differs, done=seen < limit)


def _scope(limits: ScopeLimits) -> Scope:
    return limits.tenant, limits.lane
