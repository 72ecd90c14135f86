"""Jobs in every state for the read path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
import redis

from queueapp.codec import encode_arguments
from queueapp.models import Pool
from queueapp.store import transit
from queueapp.store.ids import new_id
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Completed, Failed, LeasedJob, NewJob
from queueapp.store.store import Store
from tests.lua.harness import Shard


@dataclass
class Scene:
    """The pool `default`, on the server's own clock."""

    store: Store
    keys: ShardKeys
    seqs: Iterator[int] = field(default_factory=lambda: count(1))

    def add(self, number: int = 1, **values: Any) -> list[str]:
        """Jobs that wait; their public ids."""
        fields = {"task": "shop.tasks.pay", "tenant": "acme", "payload": encode_arguments([1], {}), **values}
        jobs = [NewJob(id=new_id(), fingerprint="f" * 16, **fields) for _ in range(number)]
        assert {answer.outcome for answer in self.store.enqueue(jobs)} == {"enqueued"}
        return [self.keys.public_id(job.id) for job in jobs]

    def lease(self, number: int = 100) -> Sequence[LeasedJob]:
        return self.store.check_and_lease("w.1", next(self.seqs), want=number, begin=number, lease_ms=30_000).jobs

    def kill(self, number: int = 1, *, group: str = "0123456789ab", **values: Any) -> list[str]:
        """Dead letters, the oldest first."""
        ids = self.add(number, **values)
        error = json.dumps({"class": "builtins.ValueError", "message": "bad row", "traceback": "Traceback\n"}).encode()
        while jobs := self.lease():
            self.store.fail(
                [Failed(id=job.id, attempts=job.attempts, run_ms=1, error=error, fingerprint=group) for job in jobs]
            )
        return ids

    def bury(self, number: int, *, reason: str = "by_hand", **values: Any) -> list[str]:
        """Many dead letters, without a run."""
        ids = self.add(number, **values)
        assert set(self.store.move_to_dlq(self.inner(ids), reason)) == {"moved"}
        return ids

    def end(self, number: int = 1, **values: Any) -> list[str]:
        """Completed jobs."""
        ids = self.add(number, **values)
        while jobs := self.lease():
            self.store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1) for job in jobs])
        return ids

    @staticmethod
    def inner(ids: Sequence[str]) -> list[str]:
        return [public_id.rpartition(".")[2] for public_id in ids]


@pytest.fixture
def scene(store: Store, shard_keys: ShardKeys) -> Scene:
    return Scene(store, shard_keys)


@pytest.fixture
def shard(store: Store, redis_client: redis.Redis, shard_keys: ShardKeys) -> Shard:
    """The pool `default` under a clock that the test moves; recounted after the test by `store`."""
    return Shard(redis_client, shard_keys)


@pytest.fixture
def two_pools() -> None:
    """The pools `default` and `other`; nothing was told of jobs between them."""
    transit._told.forget()
    for name in ("default", "other"):
        Pool.objects.create(name=name)
