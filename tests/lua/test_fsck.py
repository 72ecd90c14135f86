"""`fsck`: whatever is damaged in a live shard is found, what can be proven is mended, what is whole is left alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import RedisError

from queueapp.errors import StoreError
from queueapp.store import scripts
from queueapp.store.configuration import ScopeLimits
from queueapp.store.keys import GLOSSARY
from queueapp.store.recount import Recount, Seen, drifts
from tests.lua.damage import FOREIGN, Copy, every_damage, full_scene, recounted
from tests.lua.harness import Shard, completed
from tests.lua.keyed import keyed

SCENES = [
    ("tiered", False),
    ("ring", False),
    ("fifo", False),
    ("edf", False),
    ("wfq", False),
    ("tiered", True),
    ("drr", True),
]
each_scene = pytest.mark.parametrize(("policy", "scheduled"), SCENES)
NOT_COUNTED = (" served:", f"HSET keyusers ('{FOREIGN}'")
"""What tenants had is a statistic that expires; `fsck` does not recount it."""
BY_HAND = ("DEL keysets ", "HDEL keysets ", "DEL conf ", "HDEL conf (b'policy'")
"""Which keys a set of jobs has, and by which policy they wait, nobody can recount: left to people, and to the rows."""
STRIDE = 16


@each_scene
def test_a_whole_shard_is_left_alone(shard: Shard, policy: str, scheduled: bool) -> None:
    full_scene(shard, policy, scheduled=scheduled)
    before = shard.snapshot()
    for repair in (False, True):
        recount = recounted(shard, repair=repair)
        assert (recount.findings, recount.settled, recount.passes) == ([], True, 1)
    assert shard.snapshot() == before


def judged(shard: Shard, first: int, stride: int) -> int:
    """Does every `stride`-th damage; each must be found, and be gone after a repair. How many there were."""
    copy, number = Copy(shard), 0
    for damage in list(every_damage(shard))[first::stride]:
        damage.do()
        try:
            violations = shard.store.verify()
        except (StoreError, RedisError):  # nonsense that `verify` itself stumbles over
            copy.back()
            continue
        number += 1
        damaged = shard.snapshot()
        found = recounted(shard).findings
        assert shard.snapshot() == damaged, f"{damage.name}: without repair something was written"
        if violations and not any(one in damage.name for one in NOT_COUNTED):
            assert found, f"{damage.name}: {violations}"
        if found and not damage.name.startswith(BY_HAND):
            assert recounted(shard, repair=True).settled, damage.name
            left = recounted(shard).findings
            assert [one for one in left if one.word != "by_hand"] == [], damage.name
            assert left or shard.store.verify() == [], damage.name
        copy.back()
    return number


@each_scene
@pytest.mark.dirty_store
def test_every_damage_is_found_and_mended(shard: Shard, policy: str, scheduled: bool) -> None:
    full_scene(shard, policy, scheduled=scheduled)
    assert judged(shard, SCENES.index((policy, scheduled)) * 2, STRIDE) > 20


@pytest.mark.dirty_store
def test_every_damage_of_what_moves_to_another_pool_is_found_and_mended(shard: Shard) -> None:
    moved, moving, back = shard.add(*(keyed(shard, "k", tenant="a") for _ in range(3)))
    shard.store.depart([moved, moving, back], "other.0")
    shard.store.arrived([(moved, 1, False)])
    shard.store.cancel([moving])
    shard.store.recall([(back, 0)])
    assert recounted(shard).findings == []
    assert judged(shard, 0, 1) > 30


@pytest.mark.long
@pytest.mark.timeout(600)
@each_scene
@pytest.mark.dirty_store
def test_every_single_damage_is_found_and_mended(shard: Shard, policy: str, scheduled: bool) -> None:
    full_scene(shard, policy, scheduled=scheduled)
    judged(shard, 0, 1)


def damaged(shard: Shard, *command: Any) -> list[tuple[str, str]]:
    """The kinds that are found and mended after one command; afterwards the shard is whole."""
    shard.client.execute_command(command[0], shard.keys[command[1]], *command[2:])
    recount = recounted(shard, repair=True)
    assert shard.store.verify() == []
    assert recount.settled
    return [(one.kind, one.word) for one in recount.findings]


def test_a_job_that_stands_nowhere_is_put_back_at_its_place(shard: Shard) -> None:
    first, second, _ = shard.add(shard.job(), shard.job(), shard.job())
    assert ("index", "mended") in damaged(shard, "ZREM", "q:acme|main", first)
    assert [job.id for job in shard.lease(2)] == [first, second]


def test_a_member_without_a_job_goes_and_is_never_leased(shard: Shard) -> None:
    (only,) = shard.add(shard.job())
    assert ("member", "mended") in damaged(shard, "ZADD", "q:acme|main", 0, FOREIGN)
    assert [job.id for job in shard.lease(5)] == [only]


def test_a_slot_without_a_lease_is_given_back_and_somebody_is_woken(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=1)])
    one, two = shard.add(shard.job(), shard.job())
    (job,) = shard.lease()
    shard.client.zadd(shard.keys["slots:t:acme"], {FOREIGN: 1})
    shard.store.complete([completed(job)])
    assert shard.lease() == []
    assert damaged(shard, "ZREM", "wake", "w")[0] == ("slot", "mended")
    assert shard.client.zscore(shard.keys["wake"], "w") is not None
    assert [job.id for job in shard.lease()] == [two]
    assert job.id == one


def test_a_lease_that_was_lost_is_recovered_in_time(shard: Shard) -> None:
    (only,) = shard.add(shard.job())
    shard.lease()
    assert damaged(shard, "DEL", "active") == [("index", "mended")]
    shard.now_ms += 31_000
    shard.store.partition_recover()
    assert [job.id for job in shard.lease()] == [only]


@pytest.mark.parametrize("by", [-3, 2])
def test_counters_are_recounted(shard: Shard, by: int) -> None:
    shard.add(shard.job(), shard.job(delay_ms=5_000), shard.job("bert"))
    shard.lease()
    assert damaged(shard, "HINCRBY", "counts", "w", by) == [("sum", "mended")]
    assert damaged(shard, "ZINCRBY", "tenants", by, "acme") == [("sum", "mended")]


def test_a_wake_that_was_lost_is_armed_only_after_some_looks(shard: Shard) -> None:
    shard.add(shard.job())
    assert damaged(shard, "DEL", "wake") == [("wake", "mended")]
    shard.client.delete(shard.keys["wake"])
    pauses: list[float] = []

    def worker_calls(seconds: float) -> None:
        """A worker that took the token along calls now."""
        pauses.append(seconds)
        if len(pauses) == 3:
            shard.store.cycle("w1", 1, want=0, begin=0, lease_ms=1_000)

    recount = Recount(shard.store, repair=False, pause=worker_calls)
    for _ in recount.run():
        pass
    assert (recount.findings, len(pauses)) == ([], 3)


@pytest.mark.dirty_store
def test_what_cannot_be_read_is_set_aside_and_told(shard: Shard) -> None:
    bad, good = shard.add(shard.job(), shard.job())
    shard.client.set(shard.keys.job(bad), "nonsense")
    assert {one.word for one in recounted(shard).findings if one.name == bad} == {"mendable"}
    recounted(shard, repair=True)
    assert [(one.kind, one.name, one.word) for one in recounted(shard).findings] == [("quarantine", bad, "by_hand")]
    assert [job.id for job in shard.lease(5)] == [good]
    assert shard.snapshot()["counts"] == {b"w": b"0"}


def test_what_changes_between_two_looks_is_no_fault(shard: Shard) -> None:
    """Each step of a recount between transitions: whatever it meets half way, nothing is reported or changed."""

    recount = Recount(shard.store, repair=True, pause=lambda seconds: None)
    steps, running = recount.run(), []
    for number, _ in enumerate(steps):
        shard.add(shard.job(f"t{number % 3}"), shard.job("bert", delay_ms=50))
        running += shard.lease(2)
        if number % 2:
            shard.store.complete([completed(job) for job in running[:1]])
            running = running[1:]
        shard.now_ms += 30
        shard.store.promote_due()
    assert recount.findings == []


def test_sums_are_judged_by_what_two_passes_agree_on() -> None:
    waits, runs = Seen("a", True, "", "0"), Seen("a", False, "", "1")
    both = {"x": waits, "y": waits}
    judge = {"bounded": True, "keyed": True}
    assert drifts(both, both, {"w": 2, "t:a": 2}, **judge) == {}
    assert drifts(both, both, {"w": 1, "t:a": 4}, **judge) == {"w": 1, "t:a": -2}
    # One was leased between the passes: both numbers may be right.
    moved = {"x": waits, "y": runs}
    assert drifts(both, moved, {"w": 1, "t:a": 2}, **judge) == {}
    assert drifts(both, moved, {"w": 0, "t:a": 3}, **judge) == {"w": 1, "t:a": -1}
    # It was leased and came back: at the reading it may have waited or not.
    back = Seen("a", True, "", "1")
    assert drifts({"x": waits}, {"x": back}, {"w": 0, "t:a": 0}, **judge) == {}
    again = Seen("a", False, "", "2")
    assert drifts({"x": runs}, {"x": again}, {"w": 1, "t:a": 1}, **judge) == {}
    # A pass that took too long may not have seen some.
    assert drifts(both, both, {"w": 9, "t:a": 1}, bounded=False, keyed=True) == {"t:a": 1}


class Gap(Recount):
    """SCAN may pass over a key that was made while it went: `unseen` is the job, by both of its keys."""

    unseen = ""

    def _names(self) -> Iterator[list[str]]:
        for page in super()._names():
            yield [name for name in page if not self.unseen or self.unseen not in name]


def test_a_job_that_came_and_ended_between_two_passes_is_no_drift(shard: Shard) -> None:
    shard.add(shard.job(delay_ms=60_000))
    recount, counting = Gap(shard.store, repair=True, pause=lambda seconds: None), 0
    for number, stage in enumerate(recount.run()):
        if number == 1:
            (recount.unseen,) = shard.add(shard.job("bert"))
        counting += stage == "counting"
        if counting == 5 and stage == "counting":
            shard.store.complete([completed(job) for job in shard.lease()])
    assert recount.findings == []


def test_every_key_of_the_glossary_is_known_to_fsck(shard: Shard) -> None:
    text = scripts.source("include/fsck_sets.lua")
    for name in GLOSSARY:
        kind = name.split("<")[0].partition(":")[0]
        assert kind in text, name


def test_a_repair_is_counted(shard: Shard, caplog: pytest.LogCaptureFixture) -> None:
    (only,) = shard.add(shard.job())
    caplog.set_level(logging.WARNING)
    damaged(shard, "ZREM", "q:acme|main", only)
    assert int(shard.client.hget(shard.keys["stats"], "fsck_mended") or 0) >= 1
