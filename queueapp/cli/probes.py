"""`worker --check` and `scheduler --check`: is what belongs to this machine alive? For exec probes of containers.

They need no port: they ask the store. Both also look whether scripts can run: a store that answers and refuses every
script is no store. The answer is one line, and comes within about two seconds or not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from django.core.management.base import CommandError
from django.db import connections

from queueapp.cli import startup
from queueapp.conf import settings
from queueapp.inspection.overview import pool_status
from queueapp.inspection.pools import declared_pools, require
from queueapp.store.safety import check_scripts

PATIENCE_S = 2.0
SILENT_MS = 15_000
"""An idle worker calls every 5 s: however short its leases are, less than this proves nothing."""


def check_worker(name: str | None, pools: Sequence[str], processes: int | None = None) -> str:
    """A line about the worker of this name (without one: of this host). Raises CommandError unless it is alive.

    Alive: in every pool (of `pools`, else of all) heard of within two leases, or 15 s where these are shorter; all of
    its `processes`, where given.
    """
    prefix = startup.process_name(name) + "." if name else startup.process_name(None).rpartition("-")[0] + "-"
    if name and processes:
        prefix = startup.process_name(name) + "-"
    known = declared_pools()
    require(list(pools), known)
    longest_ms = max(SILENT_MS, 2 * settings.lease_ms)
    silent_ms = 0
    for pool in pools or known:
        check_scripts(pool)
        heard = sorted(worker.silent_ms for worker in pool_status(pool).workers if worker.id.startswith(prefix))
        alive = [silent for silent in heard if silent <= longest_ms]
        if not alive:
            raise CommandError(f"no worker {prefix}… has been heard of in pool {pool} lately")
        if processes and len(alive) < processes:
            raise CommandError(f"only {len(alive)} of {processes} workers {prefix}… have been heard of in pool {pool}")
        silent_ms = max(silent_ms, alive[(processes or 1) - 1])
    return f"ok: worker {prefix}… was heard of {silent_ms / 1000:.1f} s ago"


def check_scheduler() -> str:
    """A line about who leads. Raises CommandError unless every pool has a leader; one that hangs loses its lease."""
    leaders = set()
    for pool in declared_pools():
        check_scripts(pool)
        leader = pool_status(pool).leader
        if not leader:
            raise CommandError(f"no scheduler leads pool {pool}")
        leaders.add(leader)
    return f"ok: every pool is led, by {', '.join(sorted(leaders))}"


def in_time(check: Callable[[], str]) -> str:
    """What `check` answers or raises, within `PATIENCE_S`: one that hangs is as bad as one that fails."""
    answers: SimpleQueue[str | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(check())
        except Exception as error:
            answers.put(error)
        finally:
            connections.close_all()

    threading.Thread(target=ask, name="ductor-check", daemon=True).start()
    try:
        answer = answers.get(timeout=PATIENCE_S)
    except Empty:
        raise CommandError(f"no answer within {PATIENCE_S:g} s: the database or the store hangs") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
