"""What a job costs: estimates, by tenant where they differ; what is charged as it runs, at its end, and given back."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.configuration import PoolConf
from queueapp.store.records import Failed, LeasedJob, Returned
from tests.lua.harness import LEASE_MS, Shard, completed
from tests.lua.test_trim import KEEP

TASK = "shop.tasks.bill"
DAY_MS = 86_400_000
POLICIES = ["tiered", "fifo"]
as_it_runs = [("ms", 0, 20_000), ("ms", 10, 10), ("pages", 0, 1), ("pages", 10, 10)]
in_the_end = [("ms", 0, 80), ("ms", 10, 10), ("pages", 0, 1), ("pages", 10, 10)]


def walk_of(shard: Shard) -> dict[bytes, float]:
    return dict(shard.snapshot().get("walk", []))


def estimates(shard: Shard) -> dict[str, str]:
    return {field.decode(): value.decode() for field, value in shard.snapshot().get("est", {}).items()}


def run_once(shard: Shard, tenant: str, run_ms: int) -> None:
    """One run of the task, which takes exactly so long."""
    shard.add(shard.job(tenant))
    (job,) = shard.lease()
    shard.now_ms += run_ms
    assert shard.store.complete([completed(job, run_ms=run_ms)]) == ["done"]


def charge_of(shard: Shard, tenant: str) -> float:
    """What the next run of the task is charged at its lease; the lease is given back."""
    (job_id,) = shard.add(shard.job(tenant))
    (job,) = shard.lease()
    charged = charged_of(shard, job_id)
    shard.store.partition_requeue([Returned(id=job.id, attempts=job.attempts)])
    assert shard.store.cancel([job_id]) == ["cancelled"]
    return charged


def charged_of(shard: Shard, job_id: str) -> float:
    record = shard.reads.job(job_id)
    assert record is not None
    return record.charged


class TestEstimatesPerTenant:
    def test_a_tenant_has_an_estimate_of_its_own_from_its_eighth_run_on(self, shard: Shard) -> None:
        run_once(shard, "light", 10)
        for _ in range(7):
            run_once(shard, "heavy", 1000)
            assert charge_of(shard, "heavy") == charge_of(shard, "light"), "both have the task's"

        run_once(shard, "heavy", 1000)

        assert charge_of(shard, "heavy") == 1000
        assert charge_of(shard, "light") == charge_of(shard, "newcomer") < 1000

    def test_it_is_the_mean_of_eight_runs_and_moves_by_an_eighth_from_there(self, shard: Shard) -> None:
        run_once(shard, "light", 10)
        for run_ms in (800, 1200) * 4:
            run_once(shard, "heavy", run_ms)
        assert charge_of(shard, "heavy") == 1000
        run_once(shard, "heavy", 1800)
        assert charge_of(shard, "heavy") == 1100

    def test_tenants_whose_runs_are_alike_share_the_estimate_of_the_task(self, shard: Shard) -> None:
        for tenant in ("a", "b", "c") * 10:
            run_once(shard, tenant, {"a": 100, "b": 120, "c": 90}[tenant])
        assert estimates(shard).keys() == {"1"}

    def test_below_the_smallest_charge_nothing_differs(self, shard: Shard) -> None:
        run_once(shard, "a", 0)
        run_once(shard, "b", 1)
        assert estimates(shard).keys() == {"1"}

    def test_where_the_pool_keeps_as_many_as_it_may_the_tasks_own_stands(self, shard: Shard) -> None:
        run_once(shard, "light", 10)
        shard.client.hset(shard.keys["est"], mapping={f"7|t{number}": "16|0|1" for number in range(4095)})
        for _ in range(10):
            run_once(shard, "heavy", 1000)
        run_once(shard, "light", 10)
        known = estimates(shard)
        assert len(known) == 4096
        assert not {"1|heavy", "1|light"} & known.keys()

    def test_a_task_has_its_estimate_however_many_are_kept(self, shard: Shard) -> None:
        shard.client.hset(shard.keys["est"], mapping={f"7|t{number}": "16|0|1" for number in range(4096)})
        run_once(shard, "light", 10)
        assert charge_of(shard, "light") == 10

    @pytest.mark.parametrize("tenants", [2, 40])
    def test_a_batch_asks_once_for_all_its_tenants(self, shard: Shard, tenants: int) -> None:
        names = [f"t{number:02d}" for number in range(tenants)]
        shard.add(*(shard.job(name) for name in names))
        leased: list[LeasedJob] = []
        calls = commands(shard, lambda: leased.extend(shard.lease(tenants)))
        assert calls["hget"] + calls["hmget"] <= 12
        assert len(leased) == tenants

        shard.now_ms += 100
        done = [completed(job, run_ms=100) for job in leased]
        calls = commands(shard, lambda: shard.store.complete(done))
        assert calls["hmget"] - tenants <= 5
        assert calls["hset"] - tenants <= 3, "all that was learnt is written together"


@pytest.mark.parametrize("tenants", [2, 40])
@pytest.mark.parametrize("pool", [PoolConf(policy="wfq"), PoolConf(policy="edf", by="latest_start")])
def test_ranks_that_need_a_cost_ask_once_for_a_batch(shard: Shard, pool: PoolConf, tenants: int) -> None:
    shard.store.configure(1, pool=pool)
    jobs = [shard.job(f"t{number:02d}", deadline_ms=shard.now_ms + 1000) for number in range(tenants)]
    assert commands(shard, lambda: shard.store.enqueue(jobs))["hmget"] <= 5


def commands(shard: Shard, act: Any) -> dict[str, int]:
    """How often `act` made the server read or write a hash."""
    shard.client.config_resetstat()
    act()
    stats: Any = shard.client.info("commandstats")
    return {name: int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("hget", "hmget", "hset")}


class TestForgetting:
    def known(self, shard: Shard, **values: str) -> None:
        for field, value in {"1": f"{100 * 16}|{self.day(shard)}", **values}.items():
            shard.client.hset(shard.keys["est"], field, value)

    def day(self, shard: Shard) -> int:
        return shard.now_ms // DAY_MS

    def kept(self, shard: Shard) -> set[str]:
        shard.store.trim(**KEEP)
        return set(estimates(shard))

    def test_what_differs_no_more_goes_at_the_next_look(self, shard: Shard) -> None:
        day = self.day(shard)
        self.known(shard, **{"1|like": f"{120 * 16}|{day}|8", "1|more": f"{200 * 16}|{day}|8"})
        assert self.kept(shard) == {"1", "1|more"}

    def test_what_is_still_being_tried_stays_as_long_as_it_is_used(self, shard: Shard) -> None:
        day = self.day(shard)
        values = {"1|now": f"1600|{day}|7", "1|yesterday": f"1600|{day - 1}|1", "1|before": f"1600|{day - 2}|7"}
        self.known(shard, **values)
        assert self.kept(shard) == {"1", "1|now", "1|yesterday"}

    def test_an_estimate_that_counts_goes_after_thirty_days_unused(self, shard: Shard) -> None:
        day = self.day(shard)
        self.known(shard, **{"1|t": f"16000|{day - 30}|8", "1|u": f"16000|{day - 31}|8", "2": f"16|{day - 31}"})
        assert self.kept(shard) == {"1", "1|t"}

    def test_what_cannot_be_read_goes_and_stands_for_nothing(self, shard: Shard) -> None:
        self.known(shard, **{"1|t": "nonsense"})
        assert charge_of(shard, "t") == 100
        assert self.kept(shard) == {"1"}


@pytest.mark.parametrize("cost", [0, 10])
class TestWhatNeverRan:
    """Declared or estimated: what did not run costs nothing."""

    def test_given_back_unrun(self, shard: Shard, cost: float) -> None:
        shard.add(*(shard.job("a", cost=cost) for _ in range(2)))
        (job,) = shard.lease()
        assert walk_of(shard) == {b"a": cost or 50}
        shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
        assert walk_of(shard) == {b"a": 0}
        assert charged_of(shard, job.id) == 0
        assert shard.store.partition_requeue([Returned(id=job.id, attempts=1)]) == ["done"]
        assert walk_of(shard) == {b"a": 0}, "a repeat refunds nothing twice"

    def test_given_back_after_heartbeats(self, shard: Shard, cost: float) -> None:
        """It waited in a slot's queue; what was charged meanwhile goes back with the rest."""
        shard.add(*(shard.job("a", cost=cost) for _ in range(2)))
        (job,) = shard.lease()
        shard.now_ms += 20_000
        shard.store.extend_lease([(job.id, 1)], LEASE_MS)
        assert walk_of(shard) == {b"a": cost or 20_000}
        shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
        assert walk_of(shard) == {b"a": 0}

    def test_of_an_unknown_task_until_it_dies(self, shard: Shard, cost: float) -> None:
        (first, _) = shard.add(*(shard.job("a", cost=cost) for _ in range(2)))
        (job,) = shard.lease()
        back = Returned(id=job.id, attempts=1, unknown_task=True, grace_ms=0)
        assert shard.store.partition_requeue([back]) == ["dead"]
        assert (walk_of(shard), charged_of(shard, first)) == ({b"a": 0}, 0)

    def test_expired_when_it_was_met(self, shard: Shard, cost: float) -> None:
        shard.add(shard.job("a", cost=cost, expires_after_ms=10), shard.job("b", cost=1), shard.job("a", cost=cost))
        shard.now_ms += 10
        assert [job.tenant for job in shard.lease(1)] == ["a"], "its turn is still its turn"
        assert walk_of(shard) == {b"b": 0}
        assert [job.tenant for job in shard.lease(1)] == ["b"]
        assert shard.snapshot()["stats"][b"expired"] == b"1"

    def test_cancelled_before(self, shard: Shard, cost: float) -> None:
        first, _ = shard.add(*(shard.job("a", cost=cost) for _ in range(2)))
        assert shard.store.cancel([first]) == ["cancelled"]
        assert (walk_of(shard), charged_of(shard, first)) == ({b"a": 0}, 0)


@pytest.mark.parametrize("cost", [0, 10])
@pytest.mark.parametrize("begin", [0, 1])
def test_a_lost_lease_is_not_refunded(shard: Shard, cost: float, begin: int) -> None:
    """Whoever loses workers pays for it: nobody knows how long the body ran."""
    shard.add(*(shard.job("a", cost=cost) for _ in range(2)))
    (job,) = shard.lease(begin=begin)
    shard.now_ms += LEASE_MS
    assert shard.store.partition_recover(10).pending == 1
    assert walk_of(shard) == {b"a": cost or 50}
    assert charged_of(shard, job.id) == (cost or 50)


@pytest.mark.parametrize(("unit", "cost", "charged"), as_it_runs)
def test_only_an_estimate_is_charged_as_it_runs(shard: Shard, unit: str, cost: float, charged: float) -> None:
    shard.store.configure(1, pool=PoolConf(cost_unit=unit))
    shard.add(*(shard.job("a", cost=cost) for _ in range(2)))
    (job,) = shard.lease()
    shard.now_ms += 20_000
    shard.store.extend_lease([(job.id, 1)], LEASE_MS)
    assert (walk_of(shard), charged_of(shard, job.id)) == ({b"a": charged}, charged)


@pytest.mark.parametrize("ending", ["complete", "fail", "retry"])
@pytest.mark.parametrize(("unit", "cost", "charged"), in_the_end)
def test_what_a_job_is_charged_in_the_end(shard: Shard, ending: str, unit: str, cost: float, charged: float) -> None:
    """An estimate becomes the run time, a failed run's too; what was declared, and what is no time, stays."""
    shard.store.configure(1, pool=PoolConf(cost_unit=unit))
    shard.add(*(shard.job("a", cost=cost, max_attempts=2) for _ in range(2)))
    (job,) = shard.lease()
    end(shard, job, ending)
    assert (walk_of(shard), charged_of(shard, job.id)) == ({b"a": charged}, charged)


@pytest.mark.parametrize("ending", ["complete", "fail", "retry"])
@pytest.mark.parametrize("unit", ["ms", "pages"])
@pytest.mark.parametrize("cost", [0, 10, 700])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_handler_set_is_what_the_job_shows(
    shard: Shard, ending: str, unit: str, cost: float, policy: str
) -> None:
    """Under every unit and policy; only where service is charged it moves the tenant's turn."""
    shard.store.configure(1, pool=PoolConf(policy=policy, cost_unit=unit))
    shard.add(*(shard.job("a", cost=cost, max_attempts=2) for _ in range(2)))
    (job,) = shard.lease()
    end(shard, job, ending, cost=700)
    assert charged_of(shard, job.id) == 700
    if policy == "tiered":
        assert walk_of(shard) == {b"a": 700}


def end(shard: Shard, job: LeasedJob, ending: str, cost: float = 0) -> None:
    shard.now_ms += 80
    if ending == "complete":
        assert shard.store.complete([completed(job, run_ms=80, cost=cost)]) == ["done"]
    else:
        retry_ms = 1000 if ending == "retry" else None
        finish = Failed(id=job.id, attempts=job.attempts, run_ms=80, error=b"{}", retry_ms=retry_ms, cost=cost)
        assert shard.store.fail([finish]) == [ending if ending == "retry" else "dead"]
