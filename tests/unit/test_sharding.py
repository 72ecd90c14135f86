"""Shards of one pool in virtual time: who is in which, whose turn a free slot is, and that they share nothing else."""

from __future__ import annotations

import pytest

from queueapp.bench.sharding import Shards, parts, shard_of
from queueapp.bench.simulate import Ran, result, simulate
from queueapp.bench.workloads import Workload
from queueapp.policies.charge import Charge
from queueapp.policies.fifo import Fifo
from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits
from tests.simulating import flood, starts, workload

TENANTS = [f"t{number}" for number in range(2_000)]


def apart(first: str, shards: int) -> str:
    """A tenant in another shard."""
    return next(tenant for tenant in TENANTS if shard_of(tenant, shards) != shard_of(first, shards))


def beside(first: str, shards: int) -> str:
    return next(tenant for tenant in TENANTS if shard_of(tenant, shards) == shard_of(first, shards))


def test_tenants_spread_evenly_and_few_move_when_a_shard_is_added() -> None:
    before, after = ([shard_of(tenant, shards) for tenant in TENANTS] for shards in (4, 5))
    assert min(before.count(shard) for shard in range(4)) > 400
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {4}, "a tenant stays, or goes to the new shard"
    assert 300 < len(moved) < 500


def test_where_a_tenant_is_is_the_same_everywhere() -> None:
    assert [shard_of(tenant, 4) for tenant in ("atlas", "birch", "cedar", "dahlia", "elm")] == [1, 3, 1, 3, 0]


def test_slots_are_split_as_evenly_as_can_be() -> None:
    assert (parts(16, 4), parts(10, 4), parts(4, 1)) == ([4, 4, 4, 4], [3, 3, 2, 2], [4])


class Full:
    """A shard that always has a job, and tells its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[str] = []
        self.empty = False

    def push(self, job: Candidate, rank: float | None = None) -> None:
        self.heard.append(f"push {job.tenant}")

    def park(self, job: Candidate) -> None:
        self.heard.append(f"park {job.tenant}")

    def pick(self) -> Charge | None:
        if self.empty:
            return None
        return Charge(
            id=self.name,
            tenant=self.name,
            lane="main",
            rank=0,
            charged=1,
            tenant_weight=1,
            lane_weight=1,
            fallback=0,
            estimated=True,
        )

    def let_go(self, charge: Charge, run_ms: float) -> None:
        self.heard.append(f"let go {charge.tenant}")

    def learn(self, tenant: str, run_ms: float) -> None:
        self.heard.append(f"learn {tenant}")


def test_a_free_slot_asks_the_shard_that_was_served_longest_ago_and_then_the_others() -> None:
    made = [Full(name) for name in "abc"]
    left = list(made)
    shards = Shards(3, lambda: left.pop(0))
    picked = [charge.id for _ in range(4) if (charge := shards.pick())]
    made[1].empty = True
    picked += [charge.id for _ in range(3) if (charge := shards.pick())]
    made[1].empty = False
    picked += [charge.id for _ in range(2) if (charge := shards.pick())]
    assert "".join(picked) == "abcacacba"
    for shard in made:
        shard.empty = True
    assert shards.pick() is None


def test_what_is_a_tenants_goes_to_its_shard() -> None:
    made = [Full(str(number)) for number in range(4)]
    left = list(made)
    shards = Shards(4, lambda: left.pop(0))
    job = Candidate(id="1", tenant="birch", seq=1)
    shards.push(job)
    shards.park(job)
    shards.learn("birch", 5)
    charge = Full("birch").pick()
    assert charge is not None
    shards.let_go(charge, 5)
    assert [shard.heard for shard in made] == [[], [], [], ["push birch", "park birch", "learn birch", "let go birch"]]


def test_inside_a_shard_the_policy_holds_and_between_shards_only_the_turns_of_the_slots() -> None:
    """Two tenants share a shard, one has another for itself: it gets every second slot, they get a quarter each."""
    alone, other = "big", beside(apart("big", 2), 2)
    third = next(t for t in TENANTS if t != other and shard_of(t, 2) == shard_of(other, 2))
    given = workload(*[(0, tenant, 10) for tenant in (alone, other, third) for _ in range(8)])
    ran = simulate(given, POLICIES["tiered"](), shards=2)
    first = [run.job.tenant for run in ran[:16]]
    assert (first.count(alone), first.count(other), first.count(third)) == (8, 4, 4)


def test_split_slots_idle_while_work_waits_in_another_shard() -> None:
    other = apart("big", 2)
    given = workload(*[(0, "big", 10)] * 4, (0, other, 10), slots=2)
    assert starts(simulate(given, POLICIES["fifo"](), shards=2)) == [(1, 0), (5, 0), (2, 10), (3, 10), (4, 20)]
    split = simulate(given, POLICIES["fifo"](), shards=2, shard_slots="split")
    assert sorted(starts(split)) == [(1, 0), (2, 10), (3, 20), (4, 30), (5, 0)]


def test_each_shard_learns_costs_for_itself() -> None:
    """A long run in another shard leaves the estimate where it was: the last job of `big` is charged 10, not more."""
    other, seen = apart("big", 2), []

    class Noting(Fifo):
        def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
            seen.append((job.tenant, cost))
            return super().rank(root, job, cost, weight)

    simulate(workload((0, "big", 10), (20, other, 500), (600, "big", 10)), Noting(), shards=2)
    assert seen == [("big", 50), (other, 50), ("big", 10)]


@pytest.mark.parametrize("slots", ["shared", "split"])
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_job_runs_once_and_the_run_repeats(name: str, slots: str) -> None:
    given = flood(seed=5, jobs=300, slots=8)

    def run() -> list[Ran]:
        return simulate(given, POLICIES[name](), shards=3, shard_slots=slots, limits={"elm": Limits(ceiling=1)})  # type: ignore[arg-type]

    ran = run()
    assert sorted(one.job.number for one in ran) == list(range(1, 301))
    assert [one.started_us for one in ran] == sorted(one.started_us for one in ran)
    assert result(given, ran).digest == result(given, run()).digest


def test_one_shard_is_no_shards() -> None:
    given: Workload = flood(seed=5, jobs=200)
    plain, one = (
        simulate(given, POLICIES["tiered"](), **more)  # type: ignore[arg-type]
        for more in ({}, {"shards": 1, "shard_slots": "split"})
    )
    assert plain == one
