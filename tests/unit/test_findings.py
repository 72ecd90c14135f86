"""What docs/findings.md says, in small: fewer runs of the same jobs, with limits that leave room for that."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pytest

from queueapp.bench.arms import label
from queueapp.bench.experiments.simulation import cells
from queueapp.bench.experiments.simulation_figures import FIFO, SHARDED, scenario_figures
from queueapp.bench.experiments.simulation_plan import COSTS, Plan
from queueapp.bench.harness import Progress, Report
from queueapp.bench.simulate import Result, simulate
from queueapp.bench.workloads import Job, Workload
from queueapp.policies.registry import POLICIES

Found = Mapping[str, Sequence[Result]]
SOME = "priority,edf,wfq,tiered"
"""One policy of each kind: the others behave like one of them."""


def simulated(plan: Plan) -> tuple[Found, Mapping[str, float]]:
    """Results by arm, and the figures of the plan's only scenario."""
    (scenario,) = plan.scenarios()
    results = cells(Report(bench="simulate", run={}), Progress(io.StringIO()), plan, scenario, plan.policies)
    return results, scenario_figures(results, [label(name) for name in plan.policies])


def full(policy: str, workload: str, load: float = 1.25, **more: object) -> Plan:
    return Plan(policy=policy, workload=workload, profile="full", load=(load,), **{"seeds": 2, **more})  # type: ignore[arg-type]


def test_priority_starves_its_lowest_level_and_aging_with_a_short_step_does_not() -> None:
    results, figures = simulated(full("priority,aging,aging:1", "uniform"))
    assert figures["priority_lowest_p95_latency_ratio"] >= 30
    assert figures["aging_1_lowest_p95_latency_ratio"] < 2
    assert [run.digest for run in results["priority"]] == [run.digest for run in results["aging"]]


def test_tiered_starves_the_lowest_level_inside_each_tenant() -> None:
    assert simulated(full("tiered", "uniform"))[1]["lowest_p95_latency_ratio"] > 20


def test_edf_misses_few_deadlines_under_a_heavy_tail_and_has_the_longest_wait() -> None:
    _, figures = simulated(full(SOME, "heavy_tailed", seeds=5))
    assert figures["edf_miss_rate"] < 0.25 < 0.5 < figures["fifo_miss_rate"]
    longest = {name: figures[f"{name}_wait_max_ms"] for name in (FIFO, *SOME.split(","))}
    assert max(longest, key=lambda name: longest[name]) == "edf"


@pytest.mark.parametrize(("load", "least", "most"), [(0.5, 0, 0.01), (1, 0.5, 10), (3, 0, 0.03)])
def test_near_capacity_the_policy_decides_and_far_from_it_hardly(load: float, least: float, most: float) -> None:
    assert least <= simulated(full(SOME, "uniform", load))[1]["spread_latency_p99"] <= most


@pytest.mark.parametrize("workload", ["uniform", "bursty", "multi_tenant"])
def test_throughput_is_the_same_whatever_the_order(workload: str) -> None:
    assert simulated(full(SOME, workload, seeds=1))[1]["spread_throughput"] < 0.01


def test_a_light_tenant_with_long_jobs_waits_under_wfq_and_not_under_tiered() -> None:
    """Twenty tenants flood; under wfq a job of 500 ms is due when each has had as much: 625 ms through 16 slots."""
    jobs = [(2_500 * number, f"t{number % 20}", 50) for number in range(2_000)]
    jobs += [(1_000_000 * number, "rare", 500) for number in range(1, 5)]
    made = [
        Job(number=number, at_us=at_us, tenant=tenant, service_us=ms * 1000, cost=ms)
        for number, (at_us, tenant, ms) in enumerate(sorted(jobs), start=1)
    ]
    waits = {
        name: [
            run.wait_ms
            for run in simulate(Workload(name="", seed=1, slots=16, load=1.28, jobs=made), POLICIES[name]())
            if run.job.tenant == "rare"
        ]
        for name in ("wfq", "tiered")
    }
    assert max(waits["tiered"]) < 50
    assert min(waits["wfq"]) > 500


def test_edf_does_not_ask_what_a_job_costs() -> None:
    found = {
        tuple(run.digest for run in simulated(full("edf", "mixed_cost", costs=costs, jobs=800))[0]["edf"])
        for costs in COSTS
    }
    assert len(found) == 1


def test_settling_keeps_tiered_fair_where_costs_cannot_be_known() -> None:
    _, figures = simulated(Plan(policy="wfq,tiered", workload="heavy_tailed", seeds=5))
    assert figures["tiered_jain_entitled"] > figures["wfq_jain_entitled"]
    assert figures["tiered_jain_entitled"] > 0.995


def test_shards_with_slots_of_their_own_waste_them_and_shared_ones_do_not() -> None:
    plan = Plan(policy="tiered", shards=4, seeds=1)
    shared = simulated(plan)[1]
    assert shared["sharding_utilisation_ratio"] > 0.999
    assert shared["sharding_small_p95_wait_ratio"] < 1.1
    split = simulated(Plan(policy="tiered", shards=4, seeds=1, shard_slots="split"))[1]
    assert split["sharding_utilisation_ratio"] < 0.3
    assert split["sharding_big_p95_latency_ratio"] > 10


def test_who_is_alone_in_a_shard_has_more_than_its_part() -> None:
    results, figures = simulated(full("tiered", "uniform", shards=4, seeds=1))
    waits = {name: found.wait_p95_ms for name, found in results[f"tiered{SHARDED}"][0].summary.tenants.items()}
    assert waits["elm"] < min(wait for name, wait in waits.items() if name != "elm") / 10
    assert figures["sharding_jain_entitled_ratio"] < 0.99
