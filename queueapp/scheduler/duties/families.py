"""Parents and children in different pools: what one pool has to tell another of them (`store.families`).

Whoever makes a tree relays at once what is to be made elsewhere; the ends of children come by this duty. It also sends
the signal for parents that died of a child, which no worker had then.
"""

from __future__ import annotations

from queueapp.producer import deaths
from queueapp.scheduler.duties import Pace
from queueapp.store import families
from queueapp.store.families import OutboxStore


class Families:
    """One pool's outbox, looked at every 0.05 to 1 s. A share is one page; the next one begins behind it, so that what
    cannot be told keeps nobody waiting."""

    def __init__(self, pool: str, store: OutboxStore) -> None:
        self._pool = pool
        self._store = store
        self._pace = Pace(busy_s=0.05, idle_s=1.0)
        self._after = ""

    def run(self) -> float:
        done = families.share(self._pool, self._store, self._after, deaths.announce)
        self._after = done.cursor
        if done.fault is not None:
            raise done.fault
        return self._pace.after(worked=done.relayed > 0, more=bool(done.cursor))
