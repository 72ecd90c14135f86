"""Changes of policy at random moments in random traffic: nothing lost, nothing twice, the shard whole after a call."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from queueapp.codec import digest
from queueapp.errors import PolicyBusy
from queueapp.policies.registry import DIRECT
from queueapp.store import scripts
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, Failed, KeyUse, LeasedJob, NewJob, Returned
from queueapp.store.store import Store

START_MS = 1_800_000_000_000
LEASE_MS = 5_000
TENANTS, LANES, KEYS = ("ant", "bee", "cat", "dog"), ("main", "x"), ("k", "m")
_shards = itertools.count(1)


class Traffic:
    """Random calls on one shard, and what became of every job that was accepted."""

    def __init__(self, client: redis.Redis, namespace: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = START_MS
        self.keys = ShardKeys(namespace, "change", next(_shards))
        self.store = Store(client, self.keys, clock_ms=lambda: self.now_ms)
        self.reads = Reads(client, self.keys)
        self.version, self.changes, self.seq = 0, 0, 0
        self.pool = PoolConf()
        self.numbers = itertools.count(1)
        self.accepted: list[str] = []
        self.leased: list[LeasedJob] = []
        self.completed: list[str] = []

    def configure(self, **options: Any) -> None:
        self.version += 1
        self.store.configure(self.version, **options)

    def enqueue(self) -> None:
        jobs = [self.job() for _ in range(self.chance.randint(1, 8))]
        assert {answer.outcome for answer in self.store.enqueue(jobs)} == {"enqueued"}
        self.accepted += [job.id for job in jobs]

    def job(self) -> NewJob:
        chance = self.chance
        names = chance.choice([(), (), (), ("k",), ("m",), ("k", "m")])
        return NewJob(
            id=f"{next(self.numbers):022d}",
            task="t",
            tenant=chance.choice(TENANTS),
            lane=chance.choice(LANES),
            priority=chance.choice([0, 0, 7, -3]),
            tier=chance.choice(["start", "start", "continue"]),
            cost=chance.choice([0, 1, 2.5, 50]),
            delay_ms=chance.choice([0, 0, 0, 300]),
            deadline_ms=chance.choice([0, 0, START_MS + 5_000]),
            expires_after_ms=chance.choice([0, 0, 0, 0, 700]),
            max_attempts=chance.choice([1, 3]),
            max_crashes=5,
            keys=tuple(KeyUse(digest=digest(name), text=name, limit=1, pattern=digest(name)) for name in names),
            fingerprint="f",
            payload=b"{}",
        )

    def change(self) -> None:
        """Another policy, or another parameter; refused while the change before it is on its way."""
        pool = PoolConf(
            policy=self.chance.choice(sorted(DIRECT)),
            by=self.chance.choice(["deadline", "latest_start"]),
            step_ms=self.chance.choice([60_000, 100]),
            paused=self.pool.paused,
            max_in_flight=self.pool.max_in_flight,
        )
        self.version += 1
        try:
            self.store.configure(self.version, pool=pool)
        except PolicyBusy:
            return
        self.changes += pool.rule != self.pool.rule
        self.pool = pool

    def limits(self) -> None:
        tenant, lane = self.chance.choice(TENANTS), self.chance.choice(["", "", *LANES])
        if self.chance.random() < 0.35:
            change = ScopeLimits(tenant=tenant, lane=lane, clear=True)
        else:
            change = ScopeLimits(
                tenant=tenant,
                lane=lane,
                weight=self.chance.choice([1, 3]),
                max_in_flight=self.chance.choice([None, 0, 1, 2]),
                min_share=0 if lane else self.chance.choice([0, 0, 2]),
                paused=self.chance.random() < 0.4,
            )
        self.configure(scopes=[change])

    def key(self) -> None:
        name = self.chance.choice(KEYS)
        limit, clear = self.chance.choice([None, 0, 1, 3]), self.chance.random() < 0.4
        self.configure(keys=[KeyLimits(pattern=digest(name), text=name, max_in_flight=limit, clear=clear)])

    def lease(self) -> None:
        self.seq += 1
        ask = self.chance.choice([self.store.check_and_lease, self.store.cycle])
        want = self.chance.randint(0, 5)
        found = ask("w", self.seq, want=want, begin=want, lease_ms=LEASE_MS)
        if self.chance.random() < 0.2:  # the reply was lost
            assert {job.id for job in found.jobs} == {
                job.id for job in ask("w", self.seq, want=want, begin=want, lease_ms=LEASE_MS).jobs
            }
        self.leased += found.jobs

    def taken(self) -> list[LeasedJob]:
        chosen = [job for job in self.leased if self.chance.random() < 0.5]
        self.leased = [job for job in self.leased if job not in chosen]
        return chosen

    def complete(self) -> None:
        jobs = self.taken()
        words = self.store.complete(
            [Completed(id=job.id, attempts=job.attempts, run_ms=self.chance.choice([1, 90])) for job in jobs]
        )
        self.completed += [job.id for job, word in zip(jobs, words, strict=True) if word == "done"]

    def fail(self) -> None:
        retry_ms = self.chance.choice([None, 0, 200])
        self.store.fail(
            [Failed(id=job.id, attempts=job.attempts, run_ms=5, error=b"{}", retry_ms=retry_ms) for job in self.taken()]
        )

    def give_back(self) -> None:
        self.store.partition_requeue([Returned(id=job.id, attempts=job.attempts) for job in self.taken()])

    def cancel(self) -> None:
        chosen = [job_id for job_id in self.accepted if self.chance.random() < 0.05]
        if self.chance.random() < 0.5:
            self.store.cancel(chosen)
        else:
            self.store.move_to_dlq(chosen, "by_hand")

    def redrive(self) -> None:
        self.store.retry_from_dlq([job_id for job_id in self.accepted if self.chance.random() < 0.2])

    def rerank(self) -> None:
        self.store.rerank(self.chance.choice([1, 3, 250]))

    def look(self) -> None:
        """What people read while it goes on."""
        self.store.peek(9)
        self.store.oldest()
        job_id = self.chance.choice(self.accepted or ["0" * 22])
        assert not self.store.explain(job_id, live_ms=1_000, most=3, walked=9, looks=50).broken

    def step(self) -> None:
        acts: list[Callable[[], object]] = [
            *[self.enqueue] * 5,
            *[self.lease] * 4,
            *[self.complete] * 3,
            *[self.limits] * 3,
            *[self.change] * 2,
            *[self.rerank] * 2,
            *[self.cancel, self.fail, self.give_back, self.key, self.redrive, self.look],
            self.store.promote_due,
            self.store.partition_recover,
        ]
        act = self.chance.choice(acts)
        act()
        self.now_ms += self.chance.choice([0, 1, 50, 400, 3_000])
        assert self.store.verify() == [], f"after {getattr(act, '__name__', act)}"

    def drain(self) -> None:
        """All limits go, and everything that may run is run."""
        for tenant in TENANTS:
            for lane in ("", *LANES):
                self.configure(scopes=[ScopeLimits(tenant=tenant, lane=lane, clear=True)])
        for name in KEYS:
            self.configure(keys=[KeyLimits(pattern=digest(name), text=name, clear=True)])
        idle = 0
        while idle < 12:
            self.lease()
            idle = 0 if self.leased else idle + 1
            while self.leased:
                self.complete()
            self.now_ms += 1_000


@pytest.fixture
def traffic(redis_client: redis.Redis, namespace: str) -> Callable[[int], Traffic]:
    return lambda seed: Traffic(redis_client, namespace, seed)


def run(traffic: Traffic, steps: int) -> None:
    for _ in range(steps):
        traffic.step()
    traffic.drain()
    assert len(traffic.completed) == len(set(traffic.completed)), "a job ran to its end twice"
    for job_id in traffic.accepted:
        record = traffic.reads.job(job_id)
        assert record is not None
        assert record.state in {"ended", "dead"}, f"{job_id} is {record.state}"
    while traffic.store.rerank().more:
        pass
    assert traffic.store.verify() == []


@pytest.fixture
def tiny_shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts with a bound of one or two wherever a share has one, so that a change takes many calls."""
    whole, bounds = scripts.source, "VISIT, PAGES, FORGOTTEN, LEAST, MOST = "
    assert whole("include/moving.lua").count(bounds) == 1

    def source(path: str) -> str:
        return re.sub(rf"{bounds}.*", f"{bounds}1, 1, 1, 1, 2", whole(path)).replace("'COUNT', 100", "'COUNT', 1")

    monkeypatch.setattr(scripts, "source", source)
    scripts.script.cache_clear()
    yield
    scripts.script.cache_clear()


def compare(traffic: Callable[[int], Traffic], seeds: range, steps: int) -> None:
    changes = 0
    for seed in seeds:
        made = traffic(seed)
        run(made, steps)
        changes += made.changes
    assert changes >= len(seeds)


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_whatever_happens_around_a_change_nothing_is_lost(traffic: Callable[[int], Traffic], first: int) -> None:
    compare(traffic, range(first, first + 10), 80)


@pytest.mark.parametrize("first", range(100, 140, 10))
def test_whatever_happens_between_two_shares_nothing_is_lost(
    tiny_shares: None, traffic: Callable[[int], Traffic], first: int
) -> None:
    compare(traffic, range(first, first + 10), 80)


def test_a_lane_that_a_call_passes_over_may_get_another_head_in_it(
    tiny_shares: None, traffic: Callable[[int], Traffic]
) -> None:
    """Its head is a suspect; a key set that steps aside wakes another of the lane, whose rank is better. The pointer
    of the tenant stood at the suspect's until something else touched it."""
    run(traffic(1165), 90)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_nothing_is_lost_for_long(tiny_shares: None, traffic: Callable[[int], Traffic]) -> None:
    compare(traffic, range(1_000, 1_300), 150)
