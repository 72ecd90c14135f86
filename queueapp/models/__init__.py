"""What people configure, as rows: pools, tenants, limits of tenants and of concurrency keys in a pool, and schedules;
and what Ductor writes down by itself (`records`).

Intent lives here, in SQL; state lives in the store. Saving a row never waits for the store and never fails because of
it: `sync` carries the change over after commit, and the scheduler's repair finds whatever did not arrive. No row is
needed to enqueue or to work: what has none runs with the defaults that stand here.

All tables live in the database that `DUCTOR["DATABASE"]` names.
"""

from __future__ import annotations

from queueapp.models.base import OurManager, OurModel
from queueapp.models.limits import KeyLimit, Tenant, TenantLimits
from queueapp.models.operations import DeadLetters, Jobs, NoRows, Operations
from queueapp.models.pools import Pool, PoolManager, PoolRows
from queueapp.models.records import DeadLetterInspection, Installation, OutboxEntry
from queueapp.models.schedules import Schedule

__all__ = [
    "DeadLetterInspection",
    "DeadLetters",
    "Installation",
    "Jobs",
    "KeyLimit",
    "NoRows",
    "Operations",
    "OurManager",
    "OurModel",
    "OutboxEntry",
    "Pool",
    "PoolManager",
    "PoolRows",
    "Schedule",
    "Tenant",
    "TenantLimits",
]
