"""The event loop in virtual time, and what the policies promise under one tenant's flood."""

from __future__ import annotations

import io

import pytest

from queueapp.bench.experiments import simulation
from queueapp.bench.experiments.simulation_figures import Price, judge, medians, prices
from queueapp.bench.experiments.simulation_plan import PROMISED, Plan
from queueapp.bench.harness import Progress, Report
from queueapp.bench.simulate import SmallFirst, result, simulate
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from tests.simulating import Listening, flood, starts, workload

every_policy = pytest.mark.parametrize("name", sorted(POLICIES))


# -- the event loop ----------------------------------------------------------------------------------------------


def test_jobs_wait_for_a_slot_and_idle_slots_for_a_job() -> None:
    given = workload((0, "big", 10), (1, "big", 10), (2, "ant", 10), (100, "ant", 10), slots=2)
    ran = simulate(given, POLICIES["fifo"]())
    assert starts(ran) == [(1, 0), (2, 1), (3, 10), (4, 100)]
    assert [(run.wait_ms, run.latency_ms) for run in ran] == [(0, 10), (0, 10), (8, 18), (0, 10)]


def test_at_one_moment_arrivals_come_before_starts() -> None:
    """The slot that is freed at 50 goes to the tenant that has had nothing, though it arrives only then."""
    given = workload((0, "big", 50), (0, "big", 50), (50, "ant", 50))
    assert starts(simulate(given, POLICIES["tiered"]())) == [(1, 0), (3, 50), (2, 100)]
    assert starts(simulate(given, POLICIES["fifo"]())) == [(1, 0), (2, 50), (3, 100)]


def test_a_job_is_charged_an_estimate_and_settled_at_its_end_before_what_arrives_then() -> None:
    listening = Listening()
    simulate(workload((0, "ant", 90), (90, "big", 58), (148, "ant", 86)), listening)
    # The first run is the average, the next one an eighth of it; each is learnt before the next job is ranked.
    assert listening.heard == [
        *[("ranked ant", 50), ("served ant", 50), ("settled ant", 40)],
        *[("ranked big", 90), ("served big", 90), ("settled big", -32)],
        *[("ranked ant", 86), ("served ant", 86)],
    ]


@every_policy
def test_no_slot_idles_while_work_waits_and_every_job_runs_once(name: str) -> None:
    given = flood(seed=5, jobs=400, slots=4)
    ran = simulate(given, POLICIES[name]())
    assert sorted(run.job.number for run in ran) == list(range(1, 401))
    for run in ran:
        running = sum(other.started_us <= run.started_us < other.ended_us for other in ran)
        assert running <= 4
        if run.wait_ms:
            # It waited until a slot was freed: at that moment one ended, and all slots run again.
            assert any(other.ended_us == run.started_us for other in ran)
    busy_until = sorted(run.ended_us for run in ran)[-1]
    assert busy_until == sorted(run.ended_us for run in simulate(given, POLICIES[name]()))[-1]


@every_policy
def test_two_runs_are_the_same_to_the_byte(name: str) -> None:
    given = flood(seed=5, jobs=400)
    first, second = (result(given, simulate(given, POLICIES[name]())) for _ in range(2))
    assert repr(first) == repr(second)  # NaN is not equal to itself


def test_a_run_is_the_same_everywhere() -> None:
    given = flood(seed=42, jobs=300)
    expected = "e10fe43ad9c8de8d043253e686465fcb2deebfea9006f77bb2c36bf19efe402a"
    assert result(given, simulate(given, POLICIES["fifo"]())).digest == expected


def test_order_and_times_make_the_digest() -> None:
    given = workload((0, "big", 50), (0, "big", 50), (50, "ant", 50))
    fifo, tiered = (result(given, simulate(given, POLICIES[name]())) for name in ("fifo", "tiered"))
    assert fifo.digest != tiered.digest


def test_results_take_the_small_tenants_together_and_apart() -> None:
    given = workload((0, "big", 10), (0, "ant", 10), (0, "bee", 20), (0, "big", 10))
    found = result(given, simulate(given, POLICIES["fifo"]()))
    assert (found.small.jobs, found.small.wait_p50_ms, found.small.wait_max_ms) == (2, 15, 20)
    assert (found.big.latency_mean_ms, found.big.latency_p50_ms) == (30, 30)
    assert {tenant: times.jobs for tenant, times in found.summary.tenants.items()} == {"ant": 1, "bee": 1, "big": 2}
    assert (found.summary.makespan_s, found.summary.utilisation) == (0.05, 1.0)


def test_the_ideal_serves_every_small_tenants_job_first() -> None:
    policy = SmallFirst("big")
    ranks = [
        policy.rank(None, Candidate(id="", tenant=tenant, seq=seq), 1, 1)  # type: ignore[arg-type]  # as much of it as is asked here
        for tenant, seq in (("ant", 10**12), ("big", 1), ("big", 2))
    ]
    assert ranks == sorted(ranks)


def test_progress_is_told_now_and_then() -> None:
    told: list[int] = []
    simulate(flood(seed=1, jobs=1_200), POLICIES["fifo"](), told.append)
    assert len(told) == 2
    assert 500 <= told[0] < 1_000 <= told[1] < 1_200


# -- the promise -------------------------------------------------------------------------------------------------


def test_small_tenants_do_not_wait_for_the_flood_of_a_big_one_which_hardly_notices() -> None:
    """90/3/3/2/2 at 1.25 times capacity: p95 wait at least 36 times lower than under fifo, p95 latency at most 3 % up.

    A burst of 4,000 jobs through 16 slots, 40 to 60 ms each: 10 s, in which a queue of 2.5 s builds up. Seven seeds in
    a row. What the big tenant pays differs from burst to burst (1.2 to 4.0 % over 40 seeds, above 3 % in 12 of them)
    because the last arrivals do; it is the same under an ideal policy, so the limit is one for the median.
    """
    promised, plan = sorted(PROMISED), Plan(policy="wfq")
    assert promised == ["tiered", "wfq"]
    report = Report(bench="simulate", run={})
    found = simulation.cells(report, Progress(io.StringIO()), plan, plan.scenarios()[0], promised)
    assert {name: len(results) for name, results in found.items()} == dict.fromkeys(found, 7)
    ideals = prices(found["small_first"], found["fifo"])
    for name in promised:
        own = prices(found[name], found["fifo"])
        middle = medians(own)
        assert min(price.small_p95_wait for price in own) >= 36
        assert middle.big_p95_latency <= 1.03
        assert judge(name, middle) == []
        for price, best in zip(own, ideals, strict=True):
            assert abs(price.big_p95_latency - best.big_p95_latency) < 0.0005
            assert abs(price.big_mean_latency - best.big_mean_latency) < 0.0005
        # The mean, for the record: 11.1 %. A tenth of the work is done sooner, so the rest is done later.
        assert middle.big_mean_latency == pytest.approx(1.111, abs=0.002)


def test_fifo_keeps_neither_promise_so_the_test_can_fail() -> None:
    assert len(judge("wfq", Price(small_p95_wait=1.0, big_p95_latency=1.031, big_mean_latency=1.0))) == 2
