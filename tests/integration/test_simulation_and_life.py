"""The simulator of the benchmarks and the queue itself: they choose alike, and what they say of waits agrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import Popen

import pytest

from queueapp import enqueue_many
from queueapp.bench import profiles
from queueapp.bench.live.producing import OWN, Batches
from queueapp.bench.results.reading import read
from queueapp.bench.simulate import result, simulate
from queueapp.bench.workloads import Workload
from queueapp.policies.registry import DIRECT, POLICIES
from queueapp.store.configuration import PoolConf
from queueapp.store.records import Completed
from queueapp.store.store import Store
from tests.integration.test_demo_command import command, temporary

__all__ = ["temporary"]

BEGIN_S = 4_000_000_000
"""Far ahead, and a whole second: deadlines fall on the same milliseconds in both."""
JOBS = 80
PARTS, BEYOND_MS = 0.25, 250.0
"""By so much a percentile in earnest may differ: processes take time, and the machine does other things."""
SLOW = """
[run]
jobs = 60
slots = 4
repetitions = 1
[arrivals]
load = 1.25
[durations]
least_ms = 150
most_ms = 250
"""


def waiting_from_the_start() -> Workload:
    """All jobs at once, in one slot: nothing is left to time. Costs are declared, and differ."""
    made = profiles.load("quick").workload("multi_tenant", jobs=JOBS, slots=1)
    jobs = [replace(job, at_us=0, service_us=1000, cost=job.service_us / 1000) for job in made.jobs]
    return replace(made, jobs=jobs)


@pytest.mark.parametrize("policy", sorted(DIRECT))
def test_one_slot_takes_what_waits_in_the_order_of_the_simulation(store: Store, policy: str) -> None:
    """Asked of the store itself: a worker that is held up may give back what it had leased ahead."""
    workload = waiting_from_the_start()
    store.configure(1, pool=PoolConf(policy=policy))
    batches = Batches("default", OWN, "sleep")
    sent = enqueue_many([batches.bound(job, BEGIN_S) for job in workload.jobs])
    numbers = {answer.result.id[-22:]: place for place, answer in enumerate(sent, start=1) if answer.result is not None}
    store.register("one-slot", {"slots": "1"}, 60_000)
    taken = []
    for call in range(JOBS):
        [leased] = store.check_and_lease("one-slot", call, want=1, begin=1, lease_ms=60_000).jobs
        taken.append(numbers[leased.id])
        store.complete([Completed(id=leased.id, attempts=leased.attempts, run_ms=1, result=b"null")])
    assert taken == [run.job.number for run in simulate(workload, POLICIES[policy]())]


@pytest.mark.long
@pytest.mark.timeout(200)
def test_percentiles_in_earnest_are_those_of_the_simulation(temporary: Path, tmp_path: Path) -> None:
    file, directory = tmp_path / "slow.toml", tmp_path / "results"
    file.write_text(SLOW)
    process: Popen[str] = command(
        *("bench", "matrix", "--scheduler", "fifo,tiered", "--workload", "multi_tenant", "--profile", str(file)),
        *("--dispatch", "direct", "--no-plots", "--results", str(directory)),
        temporary=temporary,
    )
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    workload = profiles.load(str(file)).workload("multi_tenant")
    for row in read(directory).cells:
        expected = result(workload, simulate(workload, POLICIES[row.setting.policy]())).summary.all
        found = read(directory).cell(row).summary().all
        for figure in ("wait_p50_ms", "wait_p95_ms", "latency_p50_ms", "latency_p95_ms"):
            near = _near(getattr(expected, figure))
            assert near(getattr(found, figure)), (row.name, figure, getattr(found, figure), getattr(expected, figure))


def _near(expected: float) -> Callable[[float], bool]:
    return lambda found: abs(found - expected) <= PARTS * expected + BEYOND_MS
