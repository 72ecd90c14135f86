"""The repair: compares what SQL asks for with what the store has in force, and rewrites what differs.

The SQL side is read in pages by id, the store's side in pages by name, because databases do not agree on how text
sorts. Schedulers may repair at the same time: what they write is the same, and the store refuses the older of two.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from queueapp import conf
from queueapp.errors import DuctorError, InvalidOption, OldVersion, StoreError, StoreUnavailable, Upgrading
from queueapp.models import KeyLimit, Pool, TenantLimits
from queueapp.store import shards
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits
from queueapp.sync.intent import Scope, key_limits, scope_limits, versions, wanted_pool, wanted_scopes, write
from queueapp.sync.renaming import settle

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Where the next pass goes on: a pool, in it the rows after an id, and then the store's scopes after a name."""

    pool: str = ""
    row: int = 0
    rows_done: bool = False
    scope: Scope = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One pool's share of a pass: what differs, and where to go on."""

    version: int
    pool: PoolConf | None
    """What SQL asks of the pool itself, when that differs."""
    scopes: list[ScopeLimits]
    """What SQL asks of the scopes that differ."""
    keys: list[KeyLimits]
    """What SQL asks of the concurrency keys that differ."""
    pool_in_force: PoolConf
    scopes_in_force: Mapping[Scope, ScopeLimits]
    keys_in_force: Mapping[str, KeyLimits]
    """By the digest of their pattern."""
    seen: int
    then: Turn
    done: bool
    """Nothing of the pool is left to compare."""


_turn = Turn()
_one_at_a_time = threading.Lock()


def repair(limit: int = 2000) -> int:
    """Compare up to `limit` records and rewrite what differs; how many were rewritten.

    The next call goes on where this one stopped, pool by pool, around and around. Errors of the store are raised: at
    once when it is away, else (another schema, a code that is taken, a policy that cannot be) when the other pools have
    had their turn. A call while another runs in this process does nothing.
    """
    if not _one_at_a_time.acquire(blocking=False):
        return 0
    try:
        return _pass(limit)
    finally:
        _one_at_a_time.release()


def _pass(limit: int) -> int:
    global _turn
    settle()
    known = sorted(conf.known_pools() | set(Pool.objects.values_list("name", flat=True)) | set(shards.pools()))
    rewritten = 0
    fault: DuctorError | None = None
    for name in [pool for pool in known if pool >= _turn.pool] + [pool for pool in known if pool < _turn.pool]:
        if name != _turn.pool:
            _turn = Turn(pool=name)
        try:
            found = look(name, _turn, limit)
            try:
                rewritten += bring(name, found)
            except InvalidOption as error:  # all but the policy is in force, and the next page has its turn
                fault = error
        except OldVersion:
            # Somebody saved meanwhile, so that what was read may be old. The next pass looks at the same records again.
            break
        except StoreError as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, Upgrading):
                raise
            fault = error
            _turn = _after(name)
            continue
        limit -= found.seen
        _turn = _after(name) if found.done else found.then
        if limit <= 0:
            break
    if fault is not None:
        raise fault
    return rewritten


def _after(pool: str) -> Turn:
    """The turn of whatever pool comes next in the order of names."""
    return Turn(pool=f"{pool}\0")


def look(name: str, turn: Turn, limit: int) -> Found:
    """Compares up to `limit` records of a pool, from where `turn` stands. Writes nothing."""
    version = versions.next(shards.reads(name).version())
    reads = shards.reads(name)
    in_force, keys_in_force = reads.limits()
    wanted, configured = wanted_pool(name), reads.configured()

    rows: list[TenantLimits] = []
    if not turn.rows_done:
        of_pool = TenantLimits.objects.filter(pool__name=name, pk__gt=turn.row)
        rows = list(of_pool.select_related("tenant", "pool").order_by("pk")[:limit])
    rows_done = len(rows) < limit
    scopes: list[Scope] = []
    if rows_done:
        scopes = [scope for scope in sorted(in_force) if scope > turn.scope][: limit - len(rows)]
    # All at once, with the pool itself: there are as many patterns as tasks name.
    key_rows = list(map(key_limits, KeyLimit.objects.filter(pool__name=name))) if turn == Turn(pool=name) else []
    keys = [asked for asked in key_rows if keys_in_force.get(asked.pattern) != asked]
    if turn == Turn(pool=name):
        rowless = keys_in_force.keys() - {asked.pattern for asked in key_rows}
        keys += [replace(keys_in_force[pattern], clear=True) for pattern in sorted(rowless)]
    seen = len(rows) + len(scopes) + len(key_rows)

    differing = [asked for asked in map(scope_limits, rows) if in_force.get(scope_of(asked)) != asked]
    differing += [asked for asked in wanted_scopes(name, scopes) if asked.clear]
    return Found(
        version=version,
        pool=wanted if wanted != configured else None,
        scopes=differing,
        keys=keys,
        pool_in_force=configured,
        scopes_in_force=in_force,
        keys_in_force=keys_in_force,
        seen=max(1, seen),
        then=Turn(
            pool=name,
            row=rows[-1].pk if rows else turn.row,
            rows_done=rows_done,
            scope=scopes[-1] if scopes else turn.scope,
        ),
        done=len(rows) + len(scopes) < limit,
    )


def bring(name: str, found: Found) -> int:
    """Writes what was found to differ; how many records. A policy that must wait is not counted.

    Raises InvalidOption for a policy that cannot be, when all else is in force.
    """
    if found.pool is None and not found.scopes and not found.keys:
        return 0
    complete = write(name, found.version, found.pool, found.scopes, found.keys)
    with_pool = found.pool is not None and complete
    rewritten = len(found.scopes) + len(found.keys) + with_pool
    if rewritten:
        logger.info(
            "repaired",
            extra={"pool": name, "scopes": len(found.scopes), "keys": len(found.keys), "pool_settings": with_pool},
        )
    return rewritten


def scope_of(limits: ScopeLimits) -> Scope:
    return limits.tenant, limits.lane
