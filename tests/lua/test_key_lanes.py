"""Sub-lanes: jobs with a full concurrency key step aside, keep their place, and hold up nobody else."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import PoolConf, ScopeLimits
from tests.lua.harness import LEASE_MS, Shard, completed
from tests.lua.keyed import Crew, keyed, left, used, waiters


@pytest.mark.parametrize(("policy", "rounds"), [("fifo", 125), ("tiered", 125), ("ring", 15), ("wfq", 15), ("edf", 15)])
def test_a_full_key_lets_one_run_and_holds_up_nobody_else(shard: Shard, policy: str, rounds: int) -> None:
    """500 jobs under one key of limit 1 over 16 slots, beside 500 others: never two at once, and as long as there are
    others no slot is idle."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    of_key: list[str] = []
    others: set[str] = set()
    for _ in range(rounds):
        ids = shard.add(*(keyed(shard, "one", tenant=tenant, cost=1) for tenant in ("acme", "bee", "acme", "bee")))
        of_key += ids
        others.update(shard.add(*(shard.job(tenant, cost=1) for tenant in ("acme", "cat", "acme", "cat"))))
    crew = Crew(shard, 16)
    crew.fill()
    most = idle = 0
    while crew.running:
        mine = sum(job.id not in others for job in crew.running)
        assert mine == used(shard, "one")
        most = max(most, mine)
        begun_of_key = sum(job_id not in others for job_id in crew.order)
        if len(crew.order) - begun_of_key < len(others):
            assert len(crew.running) == 16, "a slot stands idle beside jobs that could run"
        idle += mine == 0 and begun_of_key < len(of_key)
        crew.end()
        crew.fill()
    assert most == 1
    assert idle == 0 or policy in ("tiered", "ring"), "the key is free while jobs wait for it, and are first in line"
    assert sorted(crew.order) == sorted([*of_key, *others])
    for tenant in (0, 1):
        mine_in_order = of_key[tenant::2]
        assert [job_id for job_id in crew.order if job_id in set(mine_in_order)] == mine_in_order
    assert left(shard) == []


def test_jobs_keep_their_place_in_the_lane(shard: Shard) -> None:
    ids = [shard.add(keyed(shard, "a", limit=9) if number % 3 else shard.job())[0] for number in range(12)]
    assert [job.id for job in shard.lease(12)] == ids


def test_priorities_sort_a_lane_across_its_sub_lanes(shard: Shard) -> None:
    low = shard.add(keyed(shard, "a", limit=9))[0]
    high = shard.add(keyed(shard, "a", limit=9, priority=5))[0]
    plain = shard.add(shard.job(priority=3))[0]
    other = shard.add(keyed(shard, "b", limit=9, priority=1))[0]
    assert [job.id for job in shard.lease(4)] == [high, plain, other, low]


def test_what_continues_has_a_sub_lane_of_its_own(shard: Shard) -> None:
    fresh = shard.add(keyed(shard, "a"))[0]
    continued = shard.add(keyed(shard, "a", tier="continue"))[0]
    (one,) = shard.lease(9)
    assert one.id == continued
    shard.store.complete([completed(one)])
    (two,) = shard.lease(9)
    assert two.id == fresh


def test_all_keys_are_taken_or_none(shard: Shard) -> None:
    first, both, second = shard.add(keyed(shard, "a"), keyed(shard, "a", "b"), keyed(shard, "b"))
    one, two = shard.lease(9)
    assert [one.id, two.id] == [first, second], "the one with both does not sit on b while it waits for a"
    shard.store.complete([completed(two)])
    assert shard.lease(9) == []
    assert used(shard, "b") == 0
    shard.store.complete([completed(one)])
    (three,) = shard.lease(9)
    assert three.id == both
    assert (used(shard, "a"), used(shard, "b")) == (1, 1)


def test_a_job_joins_a_sub_lane_that_waits(shard: Shard) -> None:
    """It is only added; one with a higher priority changes the place of its sub-lane among those that wait."""
    shard.store.configure(1, pool=PoolConf(policy="priority"))
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(keyed(shard, "a", tenant="ant"), keyed(shard, "a", tenant="bee"))
    shard.add(keyed(shard, "a", tenant="bee", priority=5))
    assert waiters(shard, "a") == ["bee", "ant"]
    assert shard.client.zcard(shard.keys["walk"]) == 0
    shard.store.complete([completed(one)])
    (two,) = shard.lease(9)
    assert (two.tenant, two.priority) == ("bee", 5)


def test_a_sub_lane_that_is_emptied_while_it_waits_waits_no_more(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(keyed(shard, "a", tenant="ant", expires_after_ms=500), keyed(shard, "a", tenant="bee"))
    shard.now_ms += 500
    shard.store.promote_due()
    shard.store.cancel([f"{3:022d}"])
    assert waiters(shard, "a") == []
    assert shard.client.exists(shard.keys["waitkeys"], shard.keys["parked"]) == 0
    shard.store.complete([completed(one)])
    assert left(shard) == []


def test_sixteen_step_aside_in_a_call_and_nobody_waits_for_the_others(shard: Shard) -> None:
    """Many sub-lanes that share a key, put in line while it was free: the rest of their lane is passed over in that
    call, the other tenants' jobs are leased, and the reply says that the next call should come at once."""
    shard.add(*(keyed(shard, "shared", f"own {number}") for number in range(40)))
    plain = shard.add(shard.job())[0]
    shard.add(*(shard.job("bee") for _ in range(5)))
    found = shard.store.check_and_lease("w1", 1, want=16, begin=0, lease_ms=LEASE_MS)
    assert [job.tenant for job in found.jobs] == ["acme"] + ["bee"] * 5
    assert (found.runnable, found.more) == (True, True)
    assert len(waiters(shard, "shared")) == 16
    found = shard.store.check_and_lease("w1", 2, want=16, begin=0, lease_ms=LEASE_MS)
    assert (list(found.jobs), found.more) == ([], True)
    found = shard.store.check_and_lease("w1", 3, want=16, begin=0, lease_ms=LEASE_MS)
    assert [job.id for job in found.jobs] == [plain]
    assert (found.runnable, found.more) == (False, False)
    assert len(waiters(shard, "shared")) == 39


def test_a_suspect_with_keys_is_leased_alone(shard: Shard) -> None:
    ids = shard.add(keyed(shard, "a", max_crashes=5))
    for _ in range(2):
        (job,) = shard.lease(1)
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", paused=True)])
    shard.add(shard.job("bee"))
    assert len(shard.lease(1, worker="busy")) == 1
    shard.store.configure(2, scopes=[ScopeLimits(tenant="acme")])
    assert shard.lease(9, worker="busy") == []
    assert used(shard, "a") == 0
    (job,) = shard.lease(9, worker="idle")
    assert job.id == ids[0]


@pytest.mark.parametrize("policy", ["tiered", "fifo", "wfq"])
def test_a_tenant_whose_last_sub_lanes_park_leaves_the_walk(shard: Shard, policy: str) -> None:
    """More park than a call lets step aside: its lane is passed over, and then empty."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    for _ in range(2):
        shard.add(*(keyed(shard, f"k{number}") for number in range(17)))
    assert len(shard.lease(40)) == 17
    assert "walk" not in shard.snapshot()
    assert shard.lease(5) == []
    assert shard.store.verify() == []
