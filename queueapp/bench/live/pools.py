"""The pool of a cell: a row that its processes find, limits of tenants, all of it in force; gone with the cell.

The server is the benchmark's own (`ground`): it is emptied behind each cell, so that no cell finds what another left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.core.exceptions import ValidationError

from queueapp.bench.dispatching import conf
from queueapp.bench.live.plan import InvalidPlan
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.policies.room import Limits
from queueapp.store import connection, shards
from queueapp.sync.enforcement import enforce


@contextmanager
def opened(name: str, way: str, policy: str, limits: Mapping[str, Limits]) -> Iterator[None]:
    """A pool that dispatches in this way. Raises InvalidPlan for limits that no tenant may have."""
    wanted = conf(way, policy)
    pool = Pool(name=name, policy=wanted.policy, dispatch=wanted.dispatch, dispatch_window=wanted.window)
    pool.full_clean()
    pool.save()
    try:
        for key, own in limits.items():
            _limit(pool, key, own)
        for done in enforce([name]):
            if done.policy_waits:
                raise RuntimeError(f"The policy of the new pool {name} is not in force.")
        yield
    finally:
        connection.commands().flushdb()
        shards.forget()
        pool.delete()


def _limit(pool: Pool, key: str, own: Limits) -> None:
    tenant, _ = Tenant.objects.get_or_create(key=key)
    limits = TenantLimits(pool=pool, tenant=tenant, weight=own.weight, max_in_flight=own.ceiling)
    try:
        limits.full_clean()
    except ValidationError as error:
        raise InvalidPlan(f"limits.{key} of the profile: {' '.join(error.messages)}") from error
    limits.save()
