"""A change of policy while many sub-lanes wait in one lane: what a share costs, and what becomes of their pointers."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.policies.registry import DIRECT
from tests.lua.generations import change, drained, moved_over
from tests.lua.harness import Shard, commands
from tests.lua.keyed import keyed

POLICIES = sorted(DIRECT)
SETS = 120
QUEUE = "q:acme|main"


def many(shard: Shard, jobs_each: int = 1, **options: Any) -> list[str]:
    """One lane, a key set a job; the second jobs of all come after the first ones of all."""
    ids: list[str] = []
    for _ in range(jobs_each):
        ids += shard.add(*(keyed(shard, f"k{number:03}", **options) for number in range(SETS)))
    return ids


def pointers(shard: Shard) -> list[str]:
    """Those that stand in the old generation, which is the first one."""
    members: Any = shard.client.zrange(shard.keys[QUEUE], 0, -1)
    return [member.decode().partition("@")[2] for member in members]


def left(shard: Shard) -> list[str]:
    """Sub-lanes of the old generation with jobs."""
    return sorted(
        key.decode().partition("@")[2] for key in shard.client.scan_iter(f"{shard.keys[QUEUE]}|@*", count=1000)
    )


@pytest.mark.parametrize("jobs_each", [1, 2])
@pytest.mark.parametrize("before", POLICIES)
def test_a_share_costs_what_it_moves_however_many_sub_lanes_there_are(
    shard: Shard, before: str, jobs_each: int
) -> None:
    """Those that were met before are not opened again."""
    change(shard, before, 1)
    many(shard, jobs_each)
    change(shard, "priority" if before != "priority" else "fifo")
    costs = []
    for _ in range(SETS * jobs_each // 20):
        ran = commands(shard)
        assert shard.store.rerank(20).moved == 20
        costs.append(commands(shard) - ran)
        assert sorted(pointers(shard)) == left(shard)
    assert max(costs[1:]) <= min(costs[1:]) + 60
    moved_over(shard)


@pytest.mark.parametrize("before", POLICIES)
def test_who_ends_on_the_way_takes_the_pointer_along(shard: Shard, before: str) -> None:
    """Nobody opens sub-lanes where all were cancelled."""
    change(shard, before, 1)
    ids = many(shard)
    change(shard, "priority" if before != "priority" else "fifo")
    shard.store.cancel(ids[:-1])
    assert pointers(shard) == left(shard)
    assert len(left(shard)) == 1
    ran = commands(shard)
    assert [job_id for _, _, job_id in shard.store.peek(5)] == ids[-1:]
    assert commands(shard) - ran < 30
    assert drained(shard) == ids[-1:]


@pytest.mark.parametrize("before", POLICIES)
def test_a_pointer_stands_where_the_first_that_is_left_does(shard: Shard, before: str) -> None:
    """Its number of submission leads it where ranks tie."""
    change(shard, before, 1)
    first, plain, second, third = shard.add(
        keyed(shard, "k"), shard.job(), keyed(shard, "k"), keyed(shard, "k", priority=-100)
    )
    other = shard.add(shard.job())
    change(shard, "ring")
    ended = {first} if before == "tiered" else {first, third}
    shard.store.cancel(sorted(ended))
    stands = dict(shard.snapshot()[QUEUE])
    (pointer,) = (member for member in stands if b"@" in member)
    queued = next(value for name, value in shard.snapshot().items() if name.startswith(f"{QUEUE}|@"))
    assert stands[pointer] == queued[0][1]
    assert pointer.partition(b"@")[0] == queued[0][0][:-22]
    assert [job_id for _, _, job_id in shard.store.peek(9)] == [
        job_id for job_id in (plain, second, *other, third) if job_id not in ended
    ]
    moved_over(shard)


def test_pointers_to_nothing_are_dropped_in_bounded_calls(shard: Shard) -> None:
    """What a script that broke in its midst would leave behind: each one met costs a look, and is met once."""
    ids = many(shard)
    stood: Any = shard.client.zrange(shard.keys[QUEUE], 0, -1, withscores=True)
    change(shard, "priority")
    shard.store.cancel(ids[:-1])
    shard.client.zadd(shard.keys[QUEUE], dict(stood))
    ran = commands(shard)
    shard.store.peek(1)
    assert commands(shard) - ran < 2 * 66 + 30
    ran = commands(shard)
    assert shard.store.rerank(1).more
    assert commands(shard) - ran < 2 * 66 + 60
    assert len(pointers(shard)) == SETS - 65  # and one at the lane
    moved_over(shard)
    assert drained(shard) == ids[-1:]
