"""What the store counts of each tenant's service: once, by the same measure under every policy, and for two hours."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.policies.registry import POLICIES
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import Returned
from tests.lua.harness import LEASE_MS, Shard, completed, counting_commands, failed

DIRECT = sorted({"fifo", "priority", "edf", "wfq", "aging", "tiered", "ring"} & set(POLICIES))
MINUTE_MS = 60_000


def served(shard: Shard, minute: int = 0) -> dict[str, list[float]]:
    """Tenant → units, jobs, largest, corrections, and where there are any jobs and largest for a minimum, ms of entry;
    `|` → units, jobs, most in flight. `minute`: from now on."""
    number = shard.now_ms // MINUTE_MS + minute
    stored: Any = shard.client.hgetall(shard.keys[f"served:{number}"])
    return {
        name.decode(): [float(part or 0) for part in packed.partition(b";")[0].split(b"|")]
        for name, packed in stored.items()
    }


@pytest.mark.parametrize("policy", DIRECT)
def test_a_lease_counts_with_its_charge_under_every_policy(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="acme", weight=2)])
    shard.add(shard.job("acme", cost=7), shard.job("acme", cost=3), shard.job("globex"), shard.job("globex", cost=0.5))
    shard.lease(4)
    found = served(shard)
    assert found["acme"] == [10, 2, 7, 0]
    assert found["globex"] == [51, 2, 50, 0], "the default of the pool, and never less than one"
    assert found["|"][:2] == [61, 4]


@pytest.mark.parametrize("policy", DIRECT)
def test_the_true_cost_corrects_an_estimate_and_no_declared_one(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(shard.job("acme"), shard.job("globex", cost=7), shard.job("initech"), shard.job("umbrella", cost=7))
    jobs = {job.tenant: job for job in shard.lease(4)}
    shard.now_ms += 900
    shard.store.complete([completed(jobs["acme"], 800), completed(jobs["globex"], 800)])
    shard.store.fail([failed(jobs["initech"])])
    shard.store.complete([completed(jobs["umbrella"], 800, cost=20.0)])
    found = served(shard)
    assert found["acme"] == [800, 1, 800, 1]
    assert found["globex"] == [7, 1, 7, 0]
    assert found["initech"] == [10, 1, 50, 1]
    assert found["umbrella"] == [20, 1, 20, 1], "the handler set it"
    assert found["|"][:2] == [837, 4]


@pytest.mark.parametrize("policy", DIRECT)
def test_a_long_job_counts_as_it_runs_and_a_returned_one_not_at_all(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(shard.job("acme"), shard.job("globex"), shard.job("initech", cost=9))
    jobs = {job.tenant: job for job in shard.lease(3)}
    for elapsed in (10_000, 20_000):
        shard.now_ms += 10_000
        shard.store.extend_lease([(jobs["acme"].id, 1)], lease_ms=LEASE_MS)
        assert served(shard)["acme"][0] == elapsed
    returned = [Returned(id=jobs[name].id, attempts=1) for name in ("globex", "initech")]
    assert shard.store.partition_requeue(returned) == ["done", "done"]
    shard.store.complete([completed(jobs["acme"], 21_000)])
    found = served(shard)
    assert found["acme"][:3] == [20_000, 1, 20_000], "no longer than it was leased"
    assert found["globex"][:2] == found["initech"][:2] == [0, 0]
    assert found["|"][:2] == [20_000, 1]


@pytest.mark.parametrize("policy", ["fifo", "tiered"])
def test_a_lost_lease_stays_counted(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(shard.job(cost=5, max_crashes=9))
    shard.lease()
    shard.now_ms += LEASE_MS
    shard.store.partition_recover(10)
    shard.lease(worker="w2")
    assert served(shard)["acme"] == [10, 2, 5, 0]


@pytest.mark.parametrize(("before", "after"), [("fifo", "tiered"), ("tiered", "fifo"), ("ring", "wfq")])
def test_a_job_in_flight_while_the_policy_changes(shard: Shard, before: str, after: str) -> None:
    """What it was charged under the old one is corrected in what is counted, and moves no turn of the new one."""
    shard.store.configure(1, pool=PoolConf(policy=before))
    shard.add(shard.job())
    (job,) = shard.lease()
    shard.store.configure(2, pool=PoolConf(policy=after))
    if after != "fifo":
        shard.add(shard.job("globex"), shard.job())
    places = shard.snapshot().get("walk")
    shard.now_ms += 10_000
    shard.store.complete([completed(job, 9_000)])
    assert served(shard)["acme"] == [9_000, 1, 9_000, 1]
    assert shard.snapshot().get("walk") == places


def test_a_correction_counts_when_it_comes(shard: Shard) -> None:
    shard.add(shard.job())
    (job,) = shard.lease()
    shard.now_ms += MINUTE_MS - shard.now_ms % MINUTE_MS
    shard.store.complete([completed(job, 20)])
    assert served(shard, -1)["acme"] == [50, 1, 50, 0]
    assert served(shard)["acme"] == [-30, 0, 50, 1]


def test_a_repeat_counts_nothing_twice(shard: Shard) -> None:
    shard.add(*(shard.job(cost=2) for _ in range(3)), shard.job())
    jobs = shard.lease(4)
    returned = [Returned(id=jobs[0].id, attempts=1)]
    shard.store.complete([completed(jobs[3], 500, cost=70.0)])
    shard.store.partition_requeue(returned)
    before = served(shard)
    again = shard.store.check_and_lease("w1", shard.seqs["w1"], want=4, begin=4, lease_ms=LEASE_MS)
    assert {job.id for job in again.jobs} == {job.id for job in jobs[1:3]}
    shard.store.complete([completed(jobs[3], 500, cost=70.0)])
    shard.store.partition_requeue(returned)
    assert served(shard) == before
    assert before["acme"][:2] == [74, 3]


@pytest.mark.parametrize("policy", DIRECT)
def test_what_a_minimum_gives_is_counted_apart(shard: Shard, policy: str) -> None:
    """In units and jobs as all, in the largest and the corrections of turns not: it moves none."""
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="acme", min_share=2)])
    shard.add(*(shard.job() for _ in range(4)))
    first, second, turn = shard.lease(3)
    assert served(shard)["acme"] == [150, 3, 50, 0, 2, 50, 0]
    shard.now_ms += 500
    shard.store.complete([completed(first, 90)])
    shard.store.partition_requeue([Returned(id=second.id, attempts=1)])
    assert served(shard)["acme"][:6] == [140, 2, 50, 0, 1, 90]
    shard.store.complete([completed(turn, 70)])
    assert served(shard)["acme"][:6] == [160, 2, 70, 1, 1, 90]
    assert served(shard)["|"][:2] == [160, 2]


def test_the_pool_counts_most_in_flight(shard: Shard) -> None:
    shard.add(*(shard.job(cost=1) for _ in range(6)))
    first = shard.lease(1)
    assert served(shard)["|"] == [1, 1, 0], "the call that begins a minute sets its end instead"
    rest = shard.lease(4)
    shard.store.complete([completed(job) for job in [*first, *rest]])
    shard.lease(1)
    assert served(shard)["|"] == [6, 6, 5]


def test_a_minute_is_kept_for_two_hours(shard: Shard) -> None:
    shard.add(shard.job(), shard.job())
    shard.lease()
    key = shard.keys[f"served:{shard.now_ms // MINUTE_MS}"]
    assert 7_190_000 < int(shard.client.pttl(key)) <= 7_200_000
    shard.client.pexpire(key, 1_000_000)
    shard.lease()
    assert int(shard.client.pttl(key)) <= 1_000_000, "set once"


def test_peek_and_enqueue_count_nothing(shard: Shard) -> None:
    shard.add(shard.job())
    shard.store.peek(5)
    assert served(shard) == {}


@pytest.mark.parametrize("jobs", [1, 60])
def test_it_costs_three_commands_a_call(shard: Shard, jobs: int) -> None:
    """However many jobs and tenants: also for the call that begins a minute, and for one that ends jobs."""
    shard.add(*(shard.job(f"t{number}") for number in range(2 * jobs)))
    count = counting_commands(shard, lambda: shard.lease(jobs))
    assert 0 < count <= 3
    held = shard.lease(jobs, worker="w2")
    assert 0 < counting_commands(shard, lambda: shard.store.complete([completed(job, 300) for job in held])) <= 3


@pytest.mark.dirty_store
@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda client, key: client.persist(key), "never expires"),
        (lambda client, key: client.hset(key, "|", "51|1|1"), "differs from its tenants"),
        (lambda client, key: client.hset(key, "|", "51.0001|2|1"), "differs from its tenants"),
        (lambda client, key: client.hset(key, "acme", "nonsense"), "holds nonsense"),
        (lambda client, key: client.hdel(key, "|"), "differs from its tenants"),
    ],
)
def test_verify_sees_what_is_wrong(shard: Shard, break_it: Any, says: str) -> None:
    shard.add(shard.job(), shard.job("globex", cost=0.1))
    shard.lease(2)
    assert shard.store.verify() == []
    break_it(shard.client, shard.keys[f"served:{shard.now_ms // MINUTE_MS}"])
    assert any(says in problem for problem in shard.store.verify())
