"""What SQL asks of the store, as the store's records, and how it is written. Used by `delivery` and `comparison`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured, ValidationError

from queueapp import conf
from queueapp.codec import digest
from queueapp.errors import InvalidOption, PolicyBusy
from queueapp.models import KeyLimit, Pool, TenantLimits
from queueapp.policies.registry import DIRECT, POLICIES
from queueapp.store import shards
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits

T = TypeVar("T")
Scope = tuple[str, str]
"""(tenant key, lane); the lane is empty for the tenant itself."""

CHUNK = 200
"""Scopes in one call of `configure`, and in one SQL query."""


class _Versions:
    """Microseconds since the epoch, made to grow strictly within this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self, above: int = 0) -> int:
        """A version larger than every earlier one, and than `above`: what the store has from a clock ahead of ours."""
        with self._lock:
            self._last = max(time.time_ns() // 1000, self._last + 1, above + 1)
            return self._last


versions = _Versions()


def ensure_pools() -> list[str]:
    """Make rows for the pools that the settings name and SQL does not have; the names of those made.

    A row that exists is left as it is: from then on the admin decides, not the settings.
    """
    made = []
    for name in sorted(conf.known_pools() - set(Pool.objects.values_list("name", flat=True))):
        try:
            Pool(name=name, **settings_of(name)).full_clean()
        except ValidationError as error:
            raise ImproperlyConfigured(f'DUCTOR["POOLS"]["{name}"]: {" ".join(error.messages)}') from error
        if Pool.objects.get_or_create(name=name, defaults=settings_of(name))[1]:
            made.append(name)
    return made


def wanted_pool(name: str) -> PoolConf:
    """What SQL says of a pool; without a row what the settings say, which is also what its row would begin with.

    Its policy may be one that the store must not be told of (`policy_fault`).
    """
    pool = Pool.objects.filter(name=name).first() or Pool(name=name, **settings_of(name))
    return PoolConf(
        policy=pool.policy,
        by=pool.edf_by,
        step_ms=pool.aging_step_ms,
        dispatch="scheduled" if pool.dispatch == Pool.Dispatch.SCHEDULED else "direct",
        window=pool.dispatch_window,
        backlog_limit=conf.settings.backlog_limit if pool.backlog_limit is None else pool.backlog_limit,
        continue_weight=pool.continue_weight,
        paused=pool.paused,
        max_in_flight=pool.max_in_flight,
        cost_unit=pool.cost_unit,
        default_cost=float(pool.default_cost),
        default_weight=float(pool.default_weight),
    )


def policy_fault(name: str, pool: PoolConf) -> InvalidOption | None:
    """Why the store must not be told of the policy that SQL asks for. Whether one of your own keeps to what a policy
    must do is not looked at here."""
    if pool.policy not in POLICIES and pool.policy not in conf.settings.policies:
        return InvalidOption(
            f"The policy {pool.policy!r} of the pool {name!r} is none; "
            f"there are {', '.join(sorted({*POLICIES, *conf.settings.policies}))}."
        )
    if pool.policy not in DIRECT and pool.dispatch != "scheduled":
        return InvalidOption(
            f"The policy {pool.policy!r} of the pool {name!r} needs scheduled dispatch: set its dispatch to "
            f"“scheduled”, or take one of {', '.join(sorted(DIRECT))}."
        )
    return None


def wanted_scopes(name: str, scopes: Iterable[Scope]) -> list[ScopeLimits]:
    """What SQL says of each scope, in order; a scope without a row is to be cleared."""
    asked = list(dict.fromkeys(scopes))
    found: dict[Scope, ScopeLimits] = {}
    for chunk in chunks(asked, CHUNK):
        rows = TenantLimits.objects.filter(
            pool__name=name, tenant__key__in={tenant for tenant, _ in chunk}, lane__in={lane for _, lane in chunk}
        )
        rows = rows.select_related("tenant", "pool").order_by()
        found |= {(row.tenant.key, row.lane): scope_limits(row) for row in rows}
    return [found.get(scope) or ScopeLimits(tenant=scope[0], lane=scope[1], clear=True) for scope in asked]


def scope_limits(row: TenantLimits) -> ScopeLimits:
    """What one row asks for. Its tenant and pool should be loaded."""
    return ScopeLimits(
        tenant=row.tenant.key,
        lane=row.lane,
        weight=row.asked_weight,
        max_in_flight=row.max_in_flight,
        min_share=row.min_share,
        paused=row.paused,
        rate=row.asked_rate,
        dispatch_rate=row.asked_dispatch_rate,
        backlog_limit=row.backlog_limit,
    )


def wanted_keys(name: str, patterns: Iterable[str]) -> list[KeyLimits]:
    """What SQL says of the keys of each pattern, in order; a pattern without a row is to be cleared."""
    asked = list(dict.fromkeys(patterns))
    found: dict[str, KeyLimits] = {}
    for chunk in chunks(asked, CHUNK):
        rows = KeyLimit.objects.filter(pool__name=name, pattern__in=chunk)
        found |= {row.pattern: key_limits(row) for row in rows.order_by()}
    return [found.get(text) or KeyLimits(pattern=digest(text), text=text, clear=True) for text in asked]


def key_limits(row: KeyLimit) -> KeyLimits:
    """What one row asks for."""
    return KeyLimits(
        pattern=digest(row.pattern),
        text=row.pattern,
        max_in_flight=row.max_in_flight,
        rate=row.asked_rate,
        dispatch_rate=row.asked_dispatch_rate,
    )


def write(
    name: str,
    version: int,
    pool: PoolConf | None,
    scopes: Sequence[ScopeLimits],
    keys: Sequence[KeyLimits] = (),
) -> bool:
    """Bring it into force under one version, in calls of bounded size.

    False: all of it but the policy and its parameters, because waiting jobs still move over to the policy before.
    InvalidOption: all of it but the policy, which is none. A pause, a ceiling or a limit waits for neither.
    OldVersion: somebody wrote something later, and nothing more of this is written.
    """
    store = shards.store(name)
    complete = True
    fault: InvalidOption | None = None
    if pool is not None:
        fault = policy_fault(name, pool)
        try:
            if fault is None:
                store.configure(version, pool=pool)
        except PolicyBusy:
            complete = False
        if fault is not None or not complete:
            kept = shards.reads(name).configured()
            # One that only a leader can run keeps its leader.
            dispatch = pool.dispatch if kept.policy in DIRECT else kept.dispatch
            former = replace(pool, policy=kept.policy, by=kept.by, step_ms=kept.step_ms, dispatch=dispatch)
            if former != kept:
                store.configure(version, pool=former)
    for chunk in chunks(scopes, CHUNK):
        store.configure(version, scopes=chunk)
    for key_chunk in chunks(keys, CHUNK):
        store.configure(version, keys=key_chunk)
    if fault is not None:
        raise fault
    return complete


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def settings_of(name: str) -> dict[str, Any]:
    """The values of `DUCTOR["POOLS"][name]`, by field of Pool."""
    return dict(conf.settings.pools.get(name, {}))
