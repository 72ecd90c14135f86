"""Which pools there are: those of the settings, those with a row, those that the store has seen. Tenants with a row."""

from __future__ import annotations

from queueapp import conf
from queueapp.errors import UnknownPool
from queueapp.models import Pool, Tenant
from queueapp.store import shards


def declared_pools() -> list[str]:
    """The pools of settings and rows, sorted: what workers and schedulers serve. Reads the database, not the store."""
    return sorted(conf.known_pools() | set(Pool.objects.values_list("name", flat=True)))


def all_pools() -> list[str]:
    """The declared ones and whatever else the store has seen, such as a pool that left the settings. Asks both. Raises
    what the store raises.
    """
    return sorted({*declared_pools(), *shards.pools()})


def first_tenants(count: int) -> list[str]:
    """The tenants of the first `count` rows that were made: the same ones in every process."""
    return list(Tenant.objects.order_by("pk").values_list("key", flat=True)[:count])


def require(names: list[str], known: list[str]) -> None:
    """Raises UnknownPool, which lists the known ones, when one of `names` is not among them."""
    for name in names:
        if name not in known:
            raise UnknownPool(
                f"{name!r} is not a known pool; known: {', '.join(known)}. Correct the name, or name the pool in "
                'TASKS[...]["QUEUES"] or DUCTOR["POOLS"], or add it in the admin.'
            )
