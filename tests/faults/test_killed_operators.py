"""The kill matrix of operators: a verb of `ductor` dies at a call of the store, and is said again.

Before the call, or after it and before the reply is read; at its first call of each script, and in the middle of its
work. Workers go on meanwhile. Said again, it does the rest and ends well: what it was to act on has been acted on once,
what it was not has been left alone, and `verify` finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

from queueapp import enqueue_many
from queueapp.states import Outcome
from queueapp.store import shards
from queueapp.store.keys import ShardKeys
from queueapp.store.store import Store
from queueapp.store.views import JobRecord
from tests.faults.killing import FAST, killed_at
from tests.faults.wire import When, Wire
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, until

pytestmark = pytest.mark.long
SETTINGS: dict[str, Any] = {**FAST, "POOLS": {"default": {}, "other": {}}}
WHENS: tuple[When, ...] = ("before", "after")
DONE = {(Outcome.COMPLETED, None), (Outcome.MOVED, Outcome.COMPLETED)}
"""How a job ended here and in the pool that it was to move to."""
Where = Callable[[Sequence[bytes]], bool]


@dataclass(slots=True)
class Rig:
    """One installation with two pools, its processes, and the wire of those that are to die."""

    manage: Manage
    wire: Wire
    working: list[ManagedProcess] = field(default_factory=list)

    def dies(self, when: When, name: str, *verb: str, where: Where = lambda command: True) -> None:
        killed_at(
            lambda: self.manage("ductor", *verb, env={"REDIS_URL": self.wire.url}, **SETTINGS),
            self.wire,
            name,
            when,
            where=where,
        )

    def says(self, *verb: str) -> str:
        """The same again, by somebody whose wire is whole."""
        process = self.manage("ductor", *verb, **SETTINGS)
        assert process.wait(60) == 0, process.output
        return process.output

    def work(self, *, scheduler: bool = False) -> ManagedProcess:
        """A worker serves both pools; only moves that nobody ends need a scheduler."""
        if scheduler:
            self.working.append(self.manage("scheduler", **SETTINGS))
        self.working.append(self.manage("worker", "--no-reload", "--slots", "3", **SETTINGS))
        return self.working[-1]

    def rest(self) -> None:
        """The pools are still: `verify` is for such ones."""
        for process in self.working:
            if process.process.poll() is None:
                process.wait_for(" started")
                assert process.stop() == 0


@pytest.fixture
def rig(manage: Manage, wire: Wire, store: Store) -> Iterator[Rig]:
    """Both pools are whole in the end (`store` looks at the pool `default`)."""
    made = Rig(manage, wire)
    yield made
    made.rest()
    assert shards.store("other").verify() == []


def sent(*bound: Any) -> list[str]:
    """The ids inside their shard."""
    answers = enqueue_many(list(bound))
    assert all(one.result is not None for one in answers)
    return [one.result.id.rpartition(".")[2] for one in answers if one.result is not None]


def some(tenant: str, number: int, **options: Any) -> list[str]:
    return sent(*[jobs.noop.using(tenant=tenant, **options).bind(n) for n in range(number)])


def records(ids: Sequence[str], pool: str = "default") -> list[JobRecord | None]:
    reads = shards.reads(pool)
    return [reads.job(job_id) for job_id in ids]


def outcomes(ids: Sequence[str], pool: str = "default") -> set[Outcome | None]:
    return {record.outcome if record is not None else None for record in records(ids, pool)}


def all_complete(ids: Sequence[str], pool: str = "default") -> None:
    until(
        lambda: outcomes(ids, pool) == {Outcome.COMPLETED},
        what=f"all of {pool} complete, but {shards.reads(pool).overview()}",
    )


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("name", ["cut", "cancel"])
def test_who_cancels_a_tenant_dies_at(rig: Rig, name: str, when: When) -> None:
    doomed = some("t0", 20) + some("t0", 5, delay=3600)
    others = some("t1", 10)
    verb = ("cancel", "--pool", "default", "--tenant", "t0", "--yes")
    rig.dies(when, name, *verb)
    rig.says(*verb)
    assert outcomes(doomed) == {Outcome.CANCELLED}
    later = some("t0", 3)
    rig.work()
    all_complete(others + later)
    assert shards.reads("default").overview().stats["cancelled"] == len(doomed)


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("name", ["depart", "departed", "arrive", "arrived"])
def test_who_moves_jobs_dies_at(rig: Rig, name: str, when: When) -> None:
    moved = some("t0", 20) + some("t0", 5, delay=1.0)
    others = some("t1", 10)
    verb = ("move", "--from", "default", "--to", "other", "--tenant", "t0", "--yes")
    rig.dies(when, name, *verb)
    rig.says(*verb)
    assert outcomes(moved) == {Outcome.MOVED}
    rig.work()
    all_complete(moved, "other")
    all_complete(others)
    assert shards.reads("other").overview().stats["completed"] == len(moved), "one of them ran twice"
    assert shards.reads("default").overview().stats["completed"] == len(others)


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("name", ["depart", "arrive", "arrived"])
def test_what_a_dead_operator_had_sent_on_its_way_arrives_by_itself(rig: Rig, name: str, when: When) -> None:
    """Nobody says it again: the scheduler brings on what has left, and the rest runs where it is."""
    both = some("t0", 20)
    rig.dies(when, name, "move", "--from", "default", "--to", "other", "--tenant", "t0", "--yes")
    rig.work(scheduler=True)

    def all_done() -> bool:
        here, there = records(both), records(both, "other")
        return all(
            (one is not None and one.outcome is Outcome.COMPLETED)
            or (
                one is not None
                and one.outcome is Outcome.MOVED
                and two is not None
                and two.outcome is Outcome.COMPLETED
            )
            for one, two in zip(here, there, strict=True)
        )

    until(all_done, what="each has run, here or there")
    ran = [shards.reads(pool).overview().stats.get("completed", 0) for pool in ("default", "other")]
    assert sum(ran) == len(both), "one of them ran twice"


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("name", ["erase", "erase_traces"])
def test_who_erases_a_tenant_dies_at(
    rig: Rig, redis_client: redis.Redis, shard_keys: ShardKeys, name: str, when: When
) -> None:
    others = some("t1", 10)
    erased = some("t0-secret", 15) + some("t0-secret", 5, delay=3600)
    erased += sent(jobs.broken.using(tenant="t0-secret", singleton=None).bind())
    verb = ("erase", "t0-secret", "--yes-erase", "t0-secret")
    rig.dies(when, name, *verb)
    rig.says(*verb)
    assert records(erased) == [None] * len(erased)
    left = [key for key in redis_client.scan_iter(f"{shard_keys.prefix}*") if b"t0-secret" in key]
    assert [key for key in left if b"served" not in key] == [], "its traces are gone"
    rig.work()
    all_complete(others)


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("call", [1, 2])
def test_who_obliterates_a_pool_dies_at(rig: Rig, call: int, when: When) -> None:
    gone = some("t0", 240) + some("t1", 240, delay=3600) + some("t2", 240) + some("t3", 240) + some("t4", 240)
    verb = ("obliterate", "default", "--yes-delete", "default")
    seen = []

    def at_call(command: Sequence[bytes]) -> bool:
        seen.append(command)
        return len(seen) == call

    rig.dies(when, "obliterate", *verb, where=at_call)
    rig.says(*verb)
    assert records(gone) == [None] * len(gone)
    later = some("t0", 5)
    rig.work()
    all_complete(later)


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize(("verb", "name"), [("retry", "retry_from_dlq"), ("discard", "discard")])
def test_who_acts_on_dead_letters_dies_at(rig: Rig, verb: str, name: str, when: When) -> None:
    worker = rig.work()
    dead = sent(*[jobs.broken.using(tenant=f"t{n % 3}").bind() for n in range(12)])
    until(lambda: shards.reads("default").overview().dead == len(dead))
    assert worker.stop() == 0
    words = ("dlq", verb, "--pool", "default", "--all", "--yes", *(("--rate", "0") if verb == "retry" else ()))
    rig.dies(when, name, *words)
    rig.says(*words)
    seen = shards.reads("default").overview()
    assert seen.dead == 0
    if verb == "discard":
        assert outcomes(dead) <= {Outcome.DISCARDED, None}
        return
    assert seen.waiting == len(dead)
    rig.work()
    until(lambda: shards.reads("default").overview().dead == len(dead), what="each has run once more")
    found = [record for record in records(dead) if record is not None]
    assert [record.attempts for record in found] == [2] * len(dead)


DAMAGES: dict[str, Callable[[redis.Redis, ShardKeys], object]] = {
    "sum": lambda client, keys: client.hset(keys["counts"], "w", 99),
    "pointer": lambda client, keys: client.delete(keys["walk"]),
    "leftover": lambda client, keys: client.sadd(keys["held:nobody"], "f" * 22),
}


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("call", [1, 2])
def test_who_mends_dies_at(rig: Rig, redis_client: redis.Redis, shard_keys: ShardKeys, call: int, when: When) -> None:
    waiting = some("t0", 10) + some("t1", 10)
    for damage in DAMAGES.values():
        damage(redis_client, shard_keys)
    assert shards.store("default").verify() != []
    seen = []

    def mends(command: Sequence[bytes]) -> bool:
        """FCALL function 1 prefix schema clock part mend limit …"""
        if command[7] != b"1":
            return False
        seen.append(command)
        return len(seen) == call

    verb = ("fsck", "default", "--repair")
    rig.dies(when, "fsck", *verb, where=mends)
    rig.says(*verb)
    assert shards.store("default").verify() == []
    rig.work()
    all_complete(waiting)
