"""A store whose dispatch is scheduled, behind the calls of one whose dispatch is direct, for quiet traffic.

Whatever comes to ingress is admitted at once, and before a lease as many jobs are dispatched as it wants. So a test
that drives direct dispatch drives `admit` and `dispatch` without knowing of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import redis

from queueapp.store.configuration import PoolConf
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Cycle, Enqueued, Leases, Moved, NewJob
from queueapp.store.store import Store


class LedStore(Store):
    """One leader that never dies."""

    def __init__(self, client: redis.Redis, keys: ShardKeys, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(client, keys, clock_ms=clock_ms)
        self.led = self.lead_acquire("leader", "nonce", 1_000)
        self._leases_of = itertools.count(1)

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers = super().enqueue(jobs)
        self._admit_all()
        return answers

    def promote_due(self, limit: int = 100) -> Moved:
        moved = super().promote_due(limit)
        self._admit_all()
        return moved

    def retry_from_dlq(self, ids: Sequence[str], *, first_ms: float = 0, gap_ms: float = 0) -> list[str]:
        words = super().retry_from_dlq(ids, first_ms=first_ms, gap_ms=gap_ms)
        self._admit_all()
        return words

    def configure(self, version: int, *, pool: PoolConf | None = None, **what: Any) -> None:
        super().configure(version, pool=pool and replace(pool, dispatch="scheduled"), **what)

    def check_and_lease(self, worker: str, seq: int, *, want: int, begin: int, lease_ms: int) -> Leases:
        answer = self.dispatch(self.led, want, 1_000_000)
        leases = super().check_and_lease(worker, next(self._leases_of), want=want, begin=begin, lease_ms=lease_ms)
        assert (len(leases.jobs), leases.runnable) == (answer.jobs, False)
        return replace(leases, runnable=answer.runnable, more=answer.more)

    def cycle(self, worker: str, seq: int, *, want: int, begin: int, lease_ms: int, **what: Any) -> Cycle:
        before = super().cycle(worker, next(self._leases_of), want=0, begin=0, lease_ms=lease_ms, **what)
        self._admit_all()
        leases = self.check_and_lease(worker, seq, want=want, begin=begin, lease_ms=lease_ms)
        return replace(before, jobs=leases.jobs, runnable=leases.runnable, more=leases.more)

    def _admit_all(self) -> None:
        while entries := self.read_ingress(self.led.nonce):
            self.admit(self.led, [(entry.entry, entry.id, None) for entry in entries])
