"""`worker --check` and `scheduler --check`: is what belongs to this machine alive? For exec probes of containers.

Both also look whether scripts can run: a store that answers and refuses every script is no store. That is a StoreError,
which is the reason that the command shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.cli import startup
from queueapp.inspection.overview import pool_status
from queueapp.inspection.pools import declared_pools, require
from queueapp.store.safety import check_scripts


def check_worker(name: str | None, pools: Sequence[str]) -> str:
    """What is wrong with the worker of this name (without one: of this host), or "" when it is alive in every pool."""
    prefix = startup.process_name(name) + "." if name else startup.process_name(None).rpartition("-")[0] + "-"
    known = declared_pools()
    require(list(pools), known)
    for pool in pools or known:
        check_scripts(pool)
        if not any(worker.live and worker.id.startswith(prefix) for worker in pool_status(pool).workers):
            return f"no worker {prefix}… has been heard of in pool {pool} lately"
    return ""


def check_scheduler() -> str:
    """What is wrong with the schedulers, or "" when every pool has a leader."""
    for pool in declared_pools():
        check_scripts(pool)
        if not pool_status(pool).leader:
            return f"no scheduler leads pool {pool}"
    return ""
