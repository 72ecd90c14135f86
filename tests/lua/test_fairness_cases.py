"""What others' queues got wrong about fairness, by the number of the case: by order, on a clock that the test moves."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from queueapp.inspection.fairness import certificate
from queueapp.inspection.shares import Standing
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import LeasedJob, NewJob
from tests.lua.harness import START_MS, Shard, completed

SLOTS = 4
JOB_MS = 50
MINUTE_MS = 60_000
FAIR = pytest.mark.parametrize("policy", ["wfq", "tiered"])


def configure(shard: Shard, policy: str, **weights: float) -> None:
    scopes = [ScopeLimits(tenant=tenant, weight=weight) for tenant, weight in weights.items()]
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=scopes)


def add(shard: Shard, tenant: str, number: int, **options: object) -> None:
    jobs: list[NewJob] = [shard.job(tenant, **options) for _ in range(number)]
    for first in range(0, number, 250):
        shard.add(*jobs[first : first + 250])


def work(shard: Shard, running: list[LeasedJob], jobs: int, *, run_ms: int = JOB_MS) -> list[str]:
    """Ends the oldest of the running jobs and leases the next, `jobs` times; whose jobs were leased, in order."""
    order = []
    for _ in range(jobs):
        shard.now_ms += run_ms // SLOTS
        shard.store.complete([completed(running.pop(0), run_ms)])
        (leased,) = shard.lease()
        running.append(leased)
        order.append(leased.tenant)
    return order


@FAIR
def test_c057_a_flood_does_not_delay_another_s_single_job(shard: Shard, policy: str) -> None:
    configure(shard, policy)
    add(shard, "ant", 10_000)
    running = shard.lease(SLOTS)
    work(shard, running, 40)
    add(shard, "bee", 1)
    assert "bee" in work(shard, running, 2), "before nearly all of the 9,956 that waited already"
    if policy == "tiered":
        assert not [one for one in certificate("default", now_ms=shard.now_ms).tenants if one.beyond_bound]


def test_c057_fifo_drains_the_flood_first_and_the_certificate_says_so(shard: Shard) -> None:
    """The arm that the others are measured against: the job of the small tenant starves, and that is seen."""
    configure(shard, "fifo")
    add(shard, "ant", 300, cost=JOB_MS)
    running = shard.lease(SLOTS)
    add(shard, "bee", 20, cost=JOB_MS)
    assert set(work(shard, running, 100, run_ms=4_000)) == {"ant"}
    seen = certificate("default", now_ms=shard.now_ms)
    bee, ant = seen.of("bee"), seen.of("ant")
    assert bee is not None
    assert ant is not None
    assert (bee.state, bee.units, ant.state) == (Standing.STARVED, 0, Standing.BORROWING)
    assert bee.entitled_units == 20 * JOB_MS, "all that it asks for is less than its half"
    assert seen.jain_entitled == pytest.approx(0.5, abs=0.1)
    assert bee.wait_s == pytest.approx(100)


@FAIR
def test_c059_an_idle_tenant_banks_no_credit(shard: Shard, policy: str) -> None:
    configure(shard, policy, bee=2.0)
    add(shard, "ant", 500, cost=JOB_MS)
    add(shard, "bee", 5, cost=JOB_MS)
    running = shard.lease(SLOTS)
    work(shard, running, 40)
    for _ in range(30):
        shard.now_ms += 2 * MINUTE_MS
        assert set(work(shard, running, 2)) == {"ant"}
    add(shard, "bee", 1_000, cost=JOB_MS)
    order = work(shard, running, 300)
    # Twice as many for twice the weight, from the first one on: never more than two in a row.
    for last in range(3, 301, 3):
        assert abs(order[:last].count("bee") - 2 * last / 3) <= 2
    assert "bee bee bee" not in " ".join(order)


@FAIR
@pytest.mark.parametrize("batch", [1, 3])
def test_c062_shares_follow_weights_however_small_the_batches(shard: Shard, policy: str, batch: int) -> None:
    configure(shard, policy, ant=7.0, bee=2.0, cat=1.0)
    for tenant in ("ant", "bee", "cat"):
        add(shard, tenant, 1_000, cost=1)
    served: Counter[str] = Counter()
    while served.total() < 1_000:
        jobs = shard.lease(min(batch, 1_000 - served.total()))
        served.update(job.tenant for job in jobs)
        shard.store.complete([completed(job) for job in jobs])
    assert abs(served["ant"] - 700) <= 20
    assert abs(served["bee"] - 200) <= 20
    assert abs(served["cat"] - 100) <= 20
    seen = certificate("default", now_ms=shard.now_ms)
    assert {one.tenant: one.units for one in seen.tenants} == served
    assert {one.state for one in seen.tenants} == {Standing.FAIR}
    assert min(seen.jain_service, seen.jain_entitled) > 0.999
    assert seen.jain_count < 0.7, "ten to one to one is not even by number, and shall not be"


def test_c063_nobody_ages_out_of_the_round(shard: Shard) -> None:
    """A round over 500 tenants takes four hours here, longer than anything that is kept."""
    tenants = [f"t{number:03d}" for number in range(500)]
    double = set(tenants[::10])
    configure(shard, "tiered", **dict.fromkeys(double, 2.0))
    for first in range(0, 500, 50):
        shard.add(*(shard.job(tenant, cost=1) for tenant in tenants[first : first + 50] for _ in range(5)))
    for _ in range(2):
        served: Counter[str] = Counter()
        for _ in range(550):
            shard.now_ms += 4 * 3_600_000 // 550
            (job,) = shard.lease()
            served[job.tenant] += 1
            shard.store.complete([completed(job)])
        assert {tenant: served[tenant] for tenant in tenants} == {
            tenant: 2 if tenant in double else 1 for tenant in tenants
        }
        # The longest wait is seen by what feeds ductor_longest_pending_wait_seconds, however long it is.
        assert shard.store.oldest().jobs[0].since_ms == START_MS


@FAIR
def test_c063_a_tenant_with_a_backlog_is_looked_at_however_long_it_had_nothing(shard: Shard, policy: str) -> None:
    """What is known of a tenant that was not served for hours is its place in line, and that does not expire."""
    configure(shard, policy)
    add(shard, "ant", 5, cost=1)
    shard.lease()
    shard.now_ms += 5 * 3_600_000
    seen = certificate("default", now_ms=shard.now_ms)
    (ant,) = seen.tenants
    assert (ant.waiting, ant.units, ant.wait_s) == (4, 0, 5 * 3_600)
    assert seen.jobs == 0


def test_c069_priority_starves_the_lowest_and_says_so(shard: Shard) -> None:
    """On purpose: `priority` has no ageing (docs). The longest wait and the certificate show it."""
    configure(shard, "priority")
    shard.add(shard.job("low", priority=-10, cost=1))
    add(shard, "high", SLOTS, cost=1)
    running = shard.lease(SLOTS)
    began, waits = shard.now_ms, []
    for _ in range(60):
        add(shard, "high", 4, cost=1)
        assert set(work(shard, running, 4, run_ms=10_000)) == {"high"}
        oldest = shard.store.oldest().jobs[0]
        assert oldest.tenant == "low"
        waits.append(shard.now_ms - oldest.since_ms)
    assert all(later - earlier == 10_000 for earlier, later in pairwise(waits))
    low = certificate("default", now_ms=shard.now_ms).of("low")
    assert low is not None
    assert low.wait_s == (shard.now_ms - began) / 1000
    assert low.units == 0


def test_c069_ageing_bounds_the_wait(shard: Shard) -> None:
    """The same stream under `aging`: 20 levels are worth 20 steps of a minute."""
    configure(shard, "aging")
    shard.add(shard.job("low", priority=-10, cost=1))
    add(shard, "high", SLOTS, priority=10, cost=1)
    running = shard.lease(SLOTS)
    began = shard.now_ms
    while True:
        add(shard, "high", 4, priority=10, cost=1)
        if "low" in work(shard, running, 4, run_ms=10_000):
            break
        assert shard.now_ms - began <= 21 * MINUTE_MS
    assert shard.now_ms - began >= 19 * MINUTE_MS
