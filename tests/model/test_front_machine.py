"""The front door under anything that may happen between two calls: whatever comes, the shard recounts, no singleton has
more than one job that waits and one that runs, and each window has one job.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import redis

from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.records import DebounceUse, KeyUse, NewJob, Returned, SingletonMode, SingletonUse
from tests.lua.harness import LEASE_MS, Shard, completed, failed

STEPS, CHECKED_EVERY = 100, 5
MODES: list[SingletonMode] = ["skip", "replace", "next"]
REFUSED = {"throttled", "backlog_full"}


class Door:
    """One random run. `mode` of a key's singleton is fixed: that is what tasks that share one promise each other."""

    def __init__(self, shard: Shard, seed: int, policy: str) -> None:
        self.shard, self.random = shard, random.Random(seed)
        self.leased: dict[str, Any] = {}
        self.known: list[str] = []
        self.outcomes: Counter[str] = Counter()
        shard.store.configure(
            1,
            pool=PoolConf(policy=policy, backlog_limit=self.random.choice([None, 12])),
            scopes=[
                ScopeLimits(tenant="a", rate=Rate(rate=3, period_ms=1_000, burst=2), backlog_limit=8),
                ScopeLimits(tenant="a", lane="slow", rate=Rate(rate=1, period_ms=1_000)),
                ScopeLimits(tenant="b", max_in_flight=2),
            ],
        )

    def job(self) -> NewJob:
        draw = self.random.random
        options: dict[str, Any] = {
            "tenant": self.random.choice("abc"),
            "lane": self.random.choice(["main", "slow"]),
            "tier": self.random.choice(["start", "start", "continue"]),
            "parks": draw() < 0.5,
            "delay_ms": self.random.choice([0, 0, 0, 700]),
            "expires_after_ms": self.random.choice([0, 0, 0, 3_000]),
            "max_attempts": self.random.choice([1, 2]),
            "max_crashes": self.random.choice([1, 2]),
            "priority": self.random.choice([0, 0, 5]),
            "payload": b'{"a":[%d]}' % self.random.randrange(1_000),
            "fingerprint": f"f{self.random.randrange(1_000)}",
        }
        keys: list[KeyUse] = []
        if draw() < 0.3:
            name = self.random.choice("xy")
            keys.append(KeyUse(digest=f"key-{name}", text=name, limit=2, pattern=f"pattern-{name}"))
        if draw() < 0.4:
            number = self.random.randrange(3)
            digest = f"single-{options['tenant']}-{number}"
            options["singleton"] = SingletonUse(digest=digest, mode=MODES[number])
            if number:
                keys.append(KeyUse(digest=digest, text=digest, limit=1, pattern="singleton"))
        if draw() < 0.4:
            options["debounce"] = DebounceUse(digest="d", period_ms=600, most_ms=1_500)
        return self.shard.job(keys=tuple(sorted(keys, key=lambda key: key.digest)), **options)

    def some(self) -> list[str]:
        return self.random.sample(self.known, min(len(self.known), 3))

    def step(self) -> None:
        store, shard = self.shard.store, self.shard
        match self.random.randrange(12):
            case 0 | 1 | 2 | 3:
                jobs = [self.job() for _ in range(self.random.randrange(1, 5))]
                answers = store.enqueue(jobs)
                self.outcomes.update(answer.outcome for answer in answers)
                for job, answer in zip(jobs, answers, strict=True):
                    if answer.outcome in ("enqueued", "parked"):
                        self.known.append(answer.id)
                        assert answer.id == job.id
                    assert answer.wait_ms >= 0
                    assert (answer.wait_ms > 0) == (answer.outcome in {*REFUSED, "parked"})
                self.repeat(jobs, [answer.id for answer in answers], [answer.outcome for answer in answers])
            case 4 | 5:
                for taken in shard.lease(self.random.randrange(1, 4), worker=self.random.choice(["w1", "w2"])):
                    self.leased[taken.id] = taken
            case 6:
                for job in self.taken():
                    store.complete([completed(job)])
            case 7:
                for job in self.taken():
                    store.fail([failed(job, retry_ms=self.random.choice([None, 400]))])
            case 8:
                shard.now_ms += self.random.choice([50, 400, 1_000, LEASE_MS])
                store.backlog_promote(self.random.randrange(1, 10**6), self.random.choice([1, 5, 64]))
                store.promote_due()
                store.partition_recover()
            case 9:
                store.cancel(self.some())
            case 10:
                self.random.choice([store.move_to_dlq])(self.some(), "why")
                store.retry_from_dlq(self.some())
            case 11:
                store.discard(self.some())
                for job in self.taken():
                    store.partition_requeue([Returned(id=job.id, attempts=job.attempts)])

    def repeat(self, jobs: list[NewJob], ids: list[str], outcomes: list[str]) -> None:
        """The call comes again: nothing is charged or moved, and accepted jobs answer as before."""
        again = [
            (job, job_id)
            for job, job_id, word in zip(jobs, ids, outcomes, strict=True)
            if word in ("enqueued", "parked")
        ]
        if not again:
            return
        before = self.shard.snapshot() if self.random.random() < 0.2 else None
        answers = self.shard.store.enqueue([job for job, _ in again])
        assert {answer.outcome for answer in answers} <= {"enqueued", "parked"}
        assert [answer.id for answer in answers] == [job_id for _, job_id in again]
        assert before is None or self.shard.snapshot() == before

    def taken(self) -> list[Any]:
        ids = self.random.sample(sorted(self.leased), min(len(self.leased), 2))
        return [self.leased.pop(job_id) for job_id in ids]

    def check(self) -> None:
        assert self.shard.store.verify() == []
        snapshot = self.shard.snapshot()
        running = {job_id for job_id, _ in snapshot.get("active", [])}
        for key, value in snapshot.items():
            if key.startswith("single:"):
                holders = value.split()
                assert len(holders) <= (1 if key.endswith("-0") else 2), (key, holders)
                assert len([holder for holder in holders if holder in running]) <= 1


@pytest.mark.parametrize(("policy", "seed"), [("tiered", 0), ("tiered", 1), ("edf", 2), ("wfq", 3), ("ring", 4)])
def test_whatever_happens_the_shard_recounts(
    redis_client: redis.Redis, shard_keys: ShardKeys, seed: int, policy: str
) -> None:
    door = Door(Shard(redis_client, shard_keys), seed, policy)
    for number in range(STEPS):
        door.step()
        if number % CHECKED_EVERY == 0:
            door.check()
    door.check()
    assert {"enqueued", "debounced", "skipped", "throttled", "parked"} <= door.outcomes.keys()
