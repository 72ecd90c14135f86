"""What jobs waited for, under random traffic, against a model that only knows what a limit, a pause and a due time are.

Between two calls nothing changes, so the model adds each gap to one part of each waiting job. Only which sub-lanes wait
for a key is taken from the store, because when one is met is a question of turns, which test_parity.py asks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

from queueapp.codec import digest
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.leader_records import Term
from queueapp.store.records import LeasedJob, Returned
from queueapp.store.waits import Waits
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.keyed import keyed
from tests.lua.test_trim import KEEP

POLICIES = ("tiered", "fifo", "ring", "wfq", "priority", "edf", "aging")
TENANTS, LANES, KEYS = ("a", "b"), ("main", "x"), ("k", "m")
GAPS = (0, 0, 1, 7, 40, 300, 2_000)


@dataclass
class Modelled:
    """A job as the model sees it. `place`: scheduled, ingress, pending, ready, active, dead, ended."""

    tenant: str
    lane: str
    keys: bool
    due_ms: int
    place: str
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("schedule", "backoff", "limits", "line"), 0))
    leased: dict[str, int] | None = None
    """The parts at its newest lease."""
    before: str = "schedule"
    """Which part its due time is."""
    lease: LeasedJob | None = None


class Traffic:
    """A shard, its model and a random hand at both."""

    def __init__(self, shard: Shard, seed: int, *, led: bool) -> None:
        self.shard, self.random, self.led = shard, random.Random(seed), led
        self.jobs: dict[str, Modelled] = {}
        self.limits: dict[tuple[str, str], ScopeLimits] = {}
        self.policy = PoolConf(policy=self.random.choice(POLICIES), dispatch="scheduled" if led else "direct")
        self.configure(pool=self.policy)
        self.leader: Term = shard.term()
        self.version = 0

    # -- the model -------------------------------------------------------------------------------------------------

    def held_back(self, job: Modelled, parked: set[str], job_id: str) -> bool:
        for scope, lane in (((job.tenant, ""), None), ((job.tenant, job.lane), job.lane)):
            limits = self.limits.get(scope)
            if limits is None:
                continue
            if limits.paused:
                return True
            used = sum(
                other.place in ("active", "ready") and other.tenant == job.tenant and lane in (None, other.lane)
                for other in self.jobs.values()
            )
            if limits.max_in_flight is not None and used >= limits.max_in_flight:
                return True
        return job.place == "pending" and job_id in parked

    def parked(self) -> set[str]:
        """Jobs in sub-lanes that wait for a key."""
        found: set[str] = set()
        for generation in (0, 1):
            stored: Any = self.shard.client.hkeys(self.shard.keys.in_line("parked", generation))
            for queue in stored:
                members: Any = self.shard.client.zrange(self.shard.keys.in_line(queue.decode(), generation), 0, -1)
                found |= {member.decode()[-22:] for member in members}
        return found

    def pass_time(self, gap_ms: int) -> None:
        parked = self.parked()
        then = self.shard.now_ms
        self.shard.now_ms += gap_ms
        for job_id, job in self.jobs.items():
            if job.place == "scheduled":
                early = max(0, min(job.due_ms, self.shard.now_ms) - then)
                job.parts[job.before] += early
                job.parts["line"] += gap_ms - early
            elif job.place in ("pending", "ingress"):
                job.parts["limits" if self.held_back(job, parked, job_id) else "line"] += gap_ms
            elif job.place == "ready":
                job.parts["line"] += gap_ms
            elif job.place == "dead":
                job.parts["backoff"] += gap_ms

    def see(self) -> None:
        """Where the jobs stand now, and that what they tell is what the model says."""
        records = self.shard.reads.jobs(list(self.jobs))
        for (job_id, job), record in zip(self.jobs.items(), records, strict=True):
            assert record is not None
            job.place = record.state.value
            want = None if job.leased is None else Waits(**{f"{part}_ms": ms for part, ms in job.leased.items()})
            assert record.waits == want, job_id
            if want is not None:
                assert min(job.leased.values()) >= 0  # type: ignore[union-attr]  # None would fail the test

    # -- what happens ----------------------------------------------------------------------------------------------

    def configure(self, **options: Any) -> None:
        self.shard.versions += 1
        self.shard.store.configure(self.shard.versions, **options)

    def enqueue(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            delay_ms = self.random.choice((0, 0, 0, 50, 900))
            options: Any = {
                "tenant": self.random.choice(TENANTS), "lane": self.random.choice(LANES), "delay_ms": delay_ms,
                "max_attempts": 9, "max_crashes": 99, "tier": self.random.choice(("start", "start", "continue")),
            }  # fmt: skip
            names = self.random.choice(((), (), ("k",), ("k", "m")))
            new = keyed(self.shard, *names, **options) if names else self.shard.job(**options)
            (job_id,) = self.shard.add(new)
            self.jobs[job_id] = Modelled(
                tenant=new.tenant, lane=new.lane, keys=bool(names), due_ms=self.shard.now_ms + delay_ms, place="new"
            )

    def lease(self) -> None:
        for leased in self.shard.lease(self.random.randint(1, 3), worker=self.random.choice("uvw"), begin=9):
            job = self.jobs[leased.id]
            before = job.leased or dict.fromkeys(job.parts, 0)
            job.leased, job.lease = dict(job.parts), leased
            of_this = Waits(**{f"{part}_ms": ms - before[part] for part, ms in job.parts.items()})
            assert leased.waits == of_this

    def active(self) -> tuple[str, Modelled, LeasedJob] | None:
        found = [(job_id, job) for job_id, job in self.jobs.items() if job.place == "active"]
        if not found:
            return None
        job_id, job = self.random.choice(found)
        assert job.lease is not None
        return job_id, job, job.lease

    def complete(self) -> None:
        if one := self.active():
            self.shard.store.complete([completed(one[2])])

    def fail(self) -> None:
        if one := self.active():
            _, job, lease = one
            retry_ms = self.random.choice((None, 0, 30, 700))
            self.shard.store.fail([failed(lease, retry_ms=retry_ms)])
            job.before, job.due_ms = "backoff", self.shard.now_ms + (retry_ms or 0)

    def give_back(self) -> None:
        if one := self.active():
            _, job, lease = one
            delay_ms = self.random.choice((0, 60))
            self.shard.store.partition_requeue([Returned(id=lease.id, attempts=lease.attempts, delay_ms=delay_ms)])
            job.before, job.due_ms = "backoff", self.shard.now_ms + delay_ms

    def lose(self) -> None:
        self.pass_time(LEASE_MS)
        self.shard.store.partition_recover(100)
        self.see()

    def promote(self) -> None:
        self.shard.store.promote_due(100)

    def limit(self) -> None:
        scope = (self.random.choice(TENANTS), self.random.choice(("", *LANES)))
        kind = self.random.choice(("pause", "ceiling", "nothing", "clear", "clear"))
        limits = ScopeLimits(
            tenant=scope[0],
            lane=scope[1],
            paused=kind == "pause",
            max_in_flight=self.random.choice((0, 1, 2)) if kind == "ceiling" else None,
            clear=kind == "clear",
        )
        self.configure(scopes=[limits])
        self.limits[scope] = limits

    def limit_key(self) -> None:
        name = self.random.choice(KEYS)
        change = KeyLimits(
            pattern=digest(name), text=name, max_in_flight=self.random.choice((0, 1, 3, None)),
            clear=self.random.random() < 0.4,
        )  # fmt: skip
        self.configure(keys=[change])

    def change_policy(self) -> None:
        self.policy = PoolConf(policy=self.random.choice(POLICIES), dispatch=self.policy.dispatch)
        self.configure(pool=self.policy)
        while self.shard.store.rerank().more:
            pass

    def by_hand(self) -> None:
        waiting = [job_id for job_id, job in self.jobs.items() if job.place in ("pending", "scheduled", "ingress")]
        dead = [job_id for job_id, job in self.jobs.items() if job.place == "dead"]
        if dead and self.random.random() < 0.7:
            self.shard.store.retry_from_dlq([self.random.choice(dead)])
        elif waiting:
            self.shard.store.cancel([self.random.choice(waiting)])

    def lead(self) -> None:
        if self.led:
            self.leader = self.shard.term()
            self.shard.admit(self.leader)
            if self.random.random() < 0.8:
                self.shard.store.dispatch(self.leader, self.random.randint(1, 3), 6)

    def trim(self) -> None:
        self.shard.store.trim(**KEEP)

    def step(self) -> None:
        acts = (
            *(self.enqueue, self.enqueue, self.lease, self.lease, self.lease, self.lead, self.lead),
            *(self.complete, self.complete, self.complete, self.fail, self.fail, self.give_back, self.lose),
            *(self.promote, self.promote, self.limit, self.limit, self.limit_key, self.change_policy),
            *(self.by_hand, self.trim),
        )
        self.random.choice(acts)()
        self.see()
        self.pass_time(self.random.choice(GAPS))


@pytest.mark.parametrize("led", [False, True], ids=["direct", "scheduled"])
@pytest.mark.parametrize("seed", [*range(10), 104, 105, 114])
def test_the_parts_are_what_happened(redis_client: redis.Redis, shard_keys: ShardKeys, seed: int, led: bool) -> None:
    shard = Shard(redis_client, shard_keys)
    traffic = Traffic(shard, seed, led=led)
    for _ in range(100):
        traffic.step()
    assert shard.store.verify() == []
