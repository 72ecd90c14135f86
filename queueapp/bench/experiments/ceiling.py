"""`bench ceiling`: how many jobs a second a leader can take through scheduled dispatch, and what the fence costs.

Two loads of jobs that wait in ingress, no workers, the leader in this process. The first goes through `admit` alone,
then through `dispatch` alone, in full calls; the second through a leader's own rounds, both together (*end to end*).
Each round of the experiment does so with the fence and without it (`unfenced`), in changing order. A last part has
processes around it: jobs are enqueued in bulk while a scheduler leads and a worker runs them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from queueapp.bench.experiments.memory import jobs as realistic_jobs
from queueapp.bench.experiments.throughput import SLOTS, TENANTS, await_completed, in_bulk
from queueapp.bench.harness import Progress, Report
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.bench.server_cost import Meter
from queueapp.bench.statistics import median
from queueapp.bench.tasks import noop
from queueapp.bench.unfenced import UnfencedStore
from queueapp.bench.waiting import until
from queueapp.bench.worker_process import worker
from queueapp.models import Pool
from queueapp.scheduler.dispatching import Dispatcher
from queueapp.store import shards
from queueapp.store.configuration import PoolConf
from queueapp.store.dispatching import ADMIT_MOST, DISPATCH_MOST
from queueapp.store.leader_records import Term
from queueapp.store.store import Store

POOL = "bench-scripts"
WIDE = 1_000_000
"""A window into which all jobs of a measurement fit."""
TERM_MS = 600_000
STAGES = ("admit", "dispatch", "end_to_end")
LEAST_PER_S = 25_000.0
MOST_PCT = 2.0
"""What the fence may add to the server's time of a job, in percent."""
CHAIN_WINDOW = 2_000
"""Of the last part: jobs that may be ready or leased at once, so that the worker never waits for the leader."""


@dataclass(slots=True, kw_only=True)
class Arm:
    """The measurements of a leader with the fence, or of one without it."""

    name: str
    per_s: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    server_us: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    """Of one job, by stage; as are the commands."""
    commands: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})


def run(
    report: Report,
    client: redis.Redis,
    progress: Progress,
    directory: Path,
    *,
    jobs: int,
    rounds: int,
    policy: str,
) -> None:
    """`jobs` go through each stage in each of `rounds` rounds, in each arm; then as many through processes."""
    client.config_set("auto-aof-rewrite-percentage", 0)  # a child that rewrites the file would be measured, too
    arms = {"fence": Arm(name="fence"), "no_fence": Arm(name="no_fence")}
    experiment = _Experiment(client, jobs, policy)
    for number in range(-1, rounds):  # the first is not counted: it loads the scripts
        for arm in arms.values() if number % 2 else reversed(arms.values()):
            experiment.measure(arm, counted=number >= 0)
            progress.show(f"  {max(0, number + 1)} of {rounds} rounds")
    judge(report, progress, arms["fence"], arms["no_fence"])
    _chain(report, client, progress, directory, jobs)


class _Experiment:
    """Measures on an empty server, each time, and leaves one."""

    def __init__(self, client: redis.Redis, jobs: int, policy: str) -> None:
        self._client, self._jobs, self._policy = client, jobs, policy

    def measure(self, arm: Arm, *, counted: bool) -> None:
        with self._loaded(arm) as (store, term):
            self._time(arm, "admit", lambda: admit_all(store, term), counted)
            self._time(arm, "dispatch", lambda: dispatch_all(store, term), counted)
        with self._loaded(arm) as (store, term):
            self._time(arm, "end_to_end", lambda: lead(store, term), counted)

    @contextmanager
    def _loaded(self, arm: Arm) -> Iterator[tuple[Store, Term]]:
        """A pool with scheduled dispatch whose jobs all wait in ingress, and the term of its leader."""
        store = shards.store(POOL)
        if arm.name == "no_fence":
            store = UnfencedStore(store.client, store.keys)
        store.configure(1, pool=PoolConf(policy=self._policy, dispatch="scheduled", window=WIDE))
        store.enqueue(list(realistic_jobs(self._jobs, TENANTS)))
        yield store, store.lead_acquire("bench", f"bench-{arm.name}", TERM_MS)
        ready = int(self._client.zcard(store.keys["ready"]))
        if ready != self._jobs:
            raise RuntimeError(f"{ready:,} jobs are ready where {self._jobs:,} were enqueued.")
        self._client.flushall()  # the server is ours
        shards.record_again()

    def _time(self, arm: Arm, stage: str, work: Callable[[], object], counted: bool) -> None:
        meter, begun = Meter(self._client), time.perf_counter()
        work()
        seconds, cost = time.perf_counter() - begun, meter.read()
        if counted:
            arm.per_s[stage].append(self._jobs / seconds)
            arm.server_us[stage].append(cost.us_per(self._jobs))
            arm.commands[stage].append(cost.commands_per(self._jobs))


# -- the stages ---------------------------------------------------------------------------------------------------


def admit_all(store: Store, term: Term) -> int:
    """Ingress → pending until ingress is empty; answers how many."""
    admitted = 0
    while entries := store.read_ingress(term.nonce, ADMIT_MOST):
        admitted += store.admit(term, [(entry.entry, entry.id, None) for entry in entries]).admitted
    return admitted


def dispatch_all(store: Store, term: Term) -> int:
    """Pending → ready until nothing waits; answers how many."""
    dispatched = 0
    while done := store.dispatch(term, DISPATCH_MOST, WIDE).jobs:
        dispatched += done
    return dispatched


def lead(store: Store, term: Term) -> None:
    """A leader's rounds until it has nothing more to do."""
    dispatcher = Dispatcher(POOL, store, lambda: shards.reads(POOL))
    told = True
    while dispatcher.round(term, told=told):
        told = False


# -- processes ----------------------------------------------------------------------------------------------------


def _chain(report: Report, client: redis.Redis, progress: Progress, directory: Path, count: int) -> None:
    """Jobs per second from the first call of `enqueue_many` to the last completion, on the server's clock."""
    pool, reads = noop.queue_name, shards.reads(noop.queue_name)
    Pool.objects.update_or_create(name=pool, defaults={"dispatch": "scheduled", "dispatch_window": CHAIN_WINDOW})
    scheduler = SchedulerProcess("leader", directory)
    try:
        scheduler.await_start()
        scheduler.await_lead(reads)
        until(lambda: reads.in_force()[0].dispatch == "scheduled", lambda: "Scheduled dispatch is not in force.")
        with worker(pool, slots=SLOTS, log=directory / "worker.log"):
            seconds, micros = client.time()
            in_bulk(count, progress)
            completed, last_ms = await_completed(client, progress, count, count)
    finally:
        scheduler.end()
    per_s = completed * 1000 / max(1, last_ms - (int(seconds) * 1000 + int(micros) // 1000))
    report.figures["chain_per_s"] = per_s
    progress.say(
        f"  with processes {per_s:10,.0f} jobs/s from enqueue in bulk through a leader and a worker with {SLOTS} slots"
    )


# -- figures ------------------------------------------------------------------------------------------------------


def judge(report: Report, progress: Progress, fence: Arm, no_fence: Arm) -> None:
    """Figures are medians over the rounds."""
    figures = report.figures
    for stage in STAGES:
        for arm, name in ((fence, stage), (no_fence, f"{stage}_no_fence")):
            figures[f"{name}_per_s"] = median(arm.per_s[stage])
            figures[f"{name}_server_us_per_job"] = median(arm.server_us[stage])
            figures[f"{name}_commands_per_job"] = median(arm.commands[stage])
        progress.say(
            f"  {stage.replace('_', ' '):<11}{figures[f'{stage}_per_s']:10,.0f} jobs/s, "
            f"{figures[f'{stage}_server_us_per_job']:5.1f} µs of server time and "
            f"{figures[f'{stage}_commands_per_job']:.2f} commands a job; without the fence "
            f"{figures[f'{stage}_no_fence_per_s']:,.0f}/s, {figures[f'{stage}_no_fence_server_us_per_job']:.1f} µs, "
            f"{figures[f'{stage}_no_fence_commands_per_job']:.2f}"
        )
    reached = median(fence.per_s["end_to_end"])
    cost_pct = fence_cost_pct(fence.server_us["end_to_end"], no_fence.server_us["end_to_end"])
    figures["fence_cost_pct"] = cost_pct
    progress.say(f"  the fence adds {cost_pct:+.2f} % to the server's time of a job (at most {MOST_PCT:g} % promised)")
    if reached < LEAST_PER_S:
        report.missed.append(
            f"A leader takes {reached:,.0f} jobs/s from ingress to ready; at least {LEAST_PER_S:,.0f} are promised."
        )
    if cost_pct > MOST_PCT:
        report.missed.append(
            f"The fence adds {cost_pct:.2f} % to the server's time of a job; at most {MOST_PCT:g} % are promised."
        )


def fence_cost_pct(fence_us: Sequence[float], no_fence_us: Sequence[float]) -> float:
    """What the fence adds, in percent: what both the median over the rounds and the best of each arm show.

    Either alone is as far off as the machine is busy with other things; a round compares two neighbours in time.
    """
    neighbours = median(with_it / without for with_it, without in zip(fence_us, no_fence_us, strict=True))
    return 100 * (min(neighbours, min(fence_us) / min(no_fence_us)) - 1)
