"""In virtual time: runs that fail or are lost, ceilings, weights, and what a job says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from queueapp.bench import profiles
from queueapp.bench.failures import Failures, Fate
from queueapp.bench.simulate import outcomes, result, simulate
from queueapp.bench.workloads import Job, Workload
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits
from tests.simulating import Listening, flood, starts, workload

every_policy = pytest.mark.parametrize("name", sorted(POLICIES))


@dataclass(frozen=True, kw_only=True)
class Planned(Failures):
    """Fates by number and attempt."""

    backoff_ms: int = 100
    lease_ms: int = 60
    fates: Mapping[tuple[int, int], Fate]

    def __bool__(self) -> bool:
        return True

    def fate(self, seed: int, number: int, attempt: int) -> Fate:
        return self.fates.get((number, attempt), "completed")


def test_a_failed_run_is_tried_again_after_its_backoff_and_others_run_meanwhile() -> None:
    given, failures = workload((0, "ant", 10), (0, "bee", 30)), Planned(fates={(1, 1): "failed"})
    ran = simulate(given, POLICIES["fifo"](), failures=failures)
    assert [(run.job.number, run.attempt, run.started_us // 1000, run.fate) for run in ran] == [
        (1, 1, 0, "failed"),
        (2, 1, 10, "completed"),
        (1, 2, 110, "completed"),
    ]
    last = outcomes(ran, failures)[-1]
    assert (last.wait_ms, last.latency_ms, last.attempts, last.busy_us, last.completed) == (0, 120, 2, 20_000, True)


def test_a_lost_run_frees_its_slot_at_once_and_comes_back_when_its_lease_is_over_before_what_came_later() -> None:
    given, failures = workload((0, "ant", 10), (0, "bee", 60), (5, "bee", 10)), Planned(fates={(1, 1): "lost"})
    ran = simulate(given, POLICIES["fifo"](), failures=failures)
    assert starts(ran) == [(1, 0), (2, 10), (1, 70), (3, 80)]


@pytest.mark.parametrize(("fate", "charged"), [("completed", 10), ("failed", 50), ("lost", 50)])
def test_only_a_run_that_completes_teaches_what_jobs_cost(fate: Fate, charged: float) -> None:
    listening, failures = Listening(), Planned(fates={(1, 1): fate}, attempts=1)
    simulate(workload((0, "ant", 10), (200, "bee", 10)), listening, failures=failures)
    assert ("ranked bee", charged) in listening.heard


@pytest.mark.parametrize(("fate", "again_ms"), [("lost", 60), ("failed", 110)])
def test_what_is_lost_comes_back_at_its_old_place_and_what_failed_at_a_new_one(fate: Fate, again_ms: int) -> None:
    """Under wfq, whose ranks count up with each job: eleven jobs of one tenant, the first of which goes wrong."""
    given, failures = workload(*[(0, "ant", 10)] * 11), Planned(fates={(1, 1): fate})
    ran = simulate(given, POLICIES["wfq"](), failures=failures)
    assert [started for number, started in starts(ran) if number == 1] == [0, again_ms]


def test_a_job_that_goes_wrong_in_every_run_is_dead_and_known_so_when_its_lease_is_over() -> None:
    fates: dict[tuple[int, int], Fate] = {(1, 1): "failed", (1, 2): "lost", (2, 1): "failed", (2, 2): "failed"}
    failures = Planned(attempts=2, fates=fates)
    given = workload((0, "ant", 10), (0, "bee", 10))
    ran = simulate(given, POLICIES["fifo"](), failures=failures)
    assert starts(ran) == [(1, 0), (2, 10), (1, 110), (2, 120)]
    found = outcomes(ran, failures)
    assert [(one.tenant, one.completed, one.ended_us // 1000) for one in found] == [
        ("ant", False, 170),
        ("bee", False, 130),
    ]
    summed = result(given, ran, failures=failures).summary
    assert (summed.dead, summed.all.completed, summed.attempts, summed.throughput_per_s) == (2, 0, 4, 0)


@every_policy
def test_every_job_ends_once_whatever_goes_wrong_and_the_same_under_every_policy(name: str) -> None:
    profile = profiles.load("failure")
    failures, given = profile.failures, profile.workload("mixed_cost", jobs=300)
    ran = simulate(given, POLICIES[name](), failures=failures)
    found = outcomes(ran, failures)
    assert len(found) == 300
    assert {1, 2, 3} <= {run.attempt for run in ran} <= {1, 2, 3, 4}
    fates = {(run.job.number, run.attempt): run.fate for run in ran}
    fifo = simulate(given, POLICIES["fifo"](), failures=failures)
    assert fates == {(run.job.number, run.attempt): run.fate for run in fifo}
    again = simulate(given, POLICIES[name](), failures=failures)
    assert repr(result(given, ran, failures=failures)) == repr(result(given, again, failures=failures))


def test_fates_are_as_frequent_as_the_profile_says() -> None:
    failures = Failures(failing=0.1, lost=0.2)
    fates = [failures.fate(1, number, attempt) for number in range(10_000) for attempt in (1, 2)]
    assert fates.count("failed") / 20_000 == pytest.approx(0.1, abs=0.01)
    assert fates.count("lost") / 20_000 == pytest.approx(0.2, abs=0.01)
    assert (bool(failures), bool(Failures()), bool(Failures(lost=0.1))) == (True, False, True)
    assert failures.fate(1, 1, 1) == "completed", "written down: a hash is the same everywhere"


@every_policy
def test_a_ceiling_holds_under_every_policy_and_counts_lost_runs_until_they_are_noticed(name: str) -> None:
    failures = Failures(lost=0.3, lease_ms=500)
    ran = simulate(flood(jobs=400), POLICIES[name](), failures=failures, limits={"atlas": Limits(ceiling=3)})
    mine = [run for run in ran if run.job.tenant == "atlas"]
    ends = [max(run.ended_us, run.started_us + 500_000) if run.fate == "lost" else run.ended_us for run in mine]
    for run in mine:
        held = [other for other, end in zip(mine, ends, strict=True) if other.started_us <= run.started_us < end]
        assert len(held) <= 3
    assert len(outcomes(ran, failures)) == 400


def test_a_weight_is_a_part_of_the_service() -> None:
    """Two tenants with as much work as they like: of the first runs the heavier one has three of four."""
    given = workload(*((0, tenant, 10) for tenant in ("ant", "bee") * 100))
    ran = simulate(given, POLICIES["tiered"](), limits={"ant": Limits(weight=3.0)})
    assert sum(run.job.tenant == "ant" for run in ran[:80]) == pytest.approx(60, abs=2)


def test_priorities_deadlines_lanes_and_declared_costs_reach_the_policy() -> None:
    plain: dict[str, Any] = {"at_us": 0, "tenant": "ant", "service_us": 10_000}
    jobs = [
        Job(number=1, **plain),
        Job(number=2, priority=1, deadline_us=900_000, **plain),
        Job(number=3, deadline_us=500_000, **plain),
        Job(number=4, lane="side", cost=1.0, **plain),
    ]
    given = Workload(name="by hand", seed=0, slots=1, load=1.0, jobs=jobs)
    order = {
        name: [run.job.number for run in simulate(given, POLICIES[name]())] for name in ("priority", "edf", "tiered")
    }
    assert order == {"priority": [2, 1, 3, 4], "edf": [3, 2, 1, 4], "tiered": [2, 4, 1, 3]}
    listening = Listening()
    simulate(Workload(name="by hand", seed=0, slots=1, load=1.0, jobs=jobs[3:]), listening)
    assert ("settled ant", 9.0) not in listening.heard, "what is declared is not corrected"
