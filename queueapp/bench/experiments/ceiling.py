"""`bench ceiling`: how many jobs a second a leader can take through scheduled dispatch, and what the fence costs.

Two loads of jobs that wait in ingress, no workers, the leader in this process. The first goes through `admit` alone,
then through `dispatch` alone; the second through a leader's own rounds, both together (*end to end*). Each round of
the experiment does so with the fence live and with it inert (`unfenced`), with calls of each size that was asked for,
in changing order. A last part has processes around it: jobs are enqueued in bulk while a scheduler leads and a worker
runs them.

How many jobs a leader's call takes at most is a number of the product's, which nobody can set; `calls_of` sets it in
this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import redis

from queueapp.bench.experiments.memory import jobs as realistic_jobs
from queueapp.bench.experiments.throughput import SLOTS, TENANTS, await_completed, in_bulk
from queueapp.bench.harness import Figure, Progress, Report
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.bench.server_cost import Meter
from queueapp.bench.statistics import median
from queueapp.bench.tasks import noop
from queueapp.bench.unfenced import UnfencedStore
from queueapp.bench.waiting import until
from queueapp.bench.worker_process import worker
from queueapp.models import Pool
from queueapp.scheduler import dispatching
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
BOUNDS = {"ADMIT_MOST": ADMIT_MOST, "DISPATCH_MOST": DISPATCH_MOST}
"""What a leader's calls take at most, as `scheduler.dispatching` knows it."""
FULL = max(BOUNDS.values())
Fence = Literal["live", "inert"]
LEAST_PER_S = 25_000.0
MOST_PCT = 2.0
"""What the fence may add to the server's time of a job, in percent."""
CHAIN_WINDOW = 2_000
"""Of the last part: jobs that may be ready or leased at once, so that the worker never waits for the leader."""


def batches_of(text: str) -> list[int]:
    """The numbers of `a,b`, each at most what a leader's call takes. ValueError names the one that is not."""
    found = []
    for part in text.split(","):
        batch = int(part) if part.strip().isdecimal() else 0
        if not 1 <= batch <= FULL:
            raise ValueError(f"{part.strip()!r} is no batch: give jobs of one call, from 1 to {FULL}, as 25,100,{FULL}")
        found.append(batch)
    return list(dict.fromkeys(found))


@dataclass(slots=True, kw_only=True)
class Arm:
    """The measurements of a leader with calls of so many jobs, the fence live or inert."""

    batch: int
    fence: Fence
    per_s: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    server_us: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    """Of one job, by stage; as are the commands."""
    commands: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})

    def medians(self, infix: str = "") -> dict[str, float]:
        """Over the rounds, by name: `<stage><infix>_per_s` and so on."""
        found = {}
        for stage in STAGES:
            found[f"{stage}{infix}_per_s"] = median(self.per_s[stage])
            found[f"{stage}{infix}_server_us_per_job"] = median(self.server_us[stage])
            found[f"{stage}{infix}_commands_per_job"] = median(self.commands[stage])
        return found


def run(
    report: Report,
    client: redis.Redis,
    progress: Progress,
    directory: Path,
    *,
    jobs: int,
    rounds: int,
    policy: str,
    batches: str,
) -> None:
    """`jobs` go through each stage in each of `rounds` rounds, in each arm; then as many through processes."""
    client.config_set("auto-aof-rewrite-percentage", 0)  # a child that rewrites the file would be measured, too
    fences: tuple[Fence, Fence] = ("live", "inert")
    arms = [Arm(batch=batch, fence=fence) for batch in batches_of(batches) for fence in fences]
    experiment = _Experiment(client, jobs, policy)
    for number in range(-1, rounds):  # the first is not counted: it loads the scripts
        for arm in arms if number % 2 else reversed(arms):
            experiment.measure(arm, counted=number >= 0)
            progress.show(f"  {max(0, number + 1)} of {rounds} rounds")
    report.figures |= _figures(Arm(batch=FULL, fence="live"), Arm(batch=FULL, fence="inert"), None)  # null so far
    for live, inert in zip(arms[::2], arms[1::2], strict=True):
        judge(report, progress, live, inert)
    _chain(report, client, progress, directory, jobs)


class _Experiment:
    """Measures on an empty server, each time, and leaves one."""

    def __init__(self, client: redis.Redis, jobs: int, policy: str) -> None:
        self._client, self._jobs, self._policy = client, jobs, policy

    def measure(self, arm: Arm, *, counted: bool) -> None:
        with self._loaded(arm) as (store, term):
            self._time(arm, "admit", lambda: admit_all(store, term, arm.batch), counted)
            self._time(arm, "dispatch", lambda: dispatch_all(store, term, arm.batch), counted)
        with self._loaded(arm) as (store, term), calls_of(arm.batch):
            self._time(arm, "end_to_end", lambda: lead(store, term), counted)

    @contextmanager
    def _loaded(self, arm: Arm) -> Iterator[tuple[Store, Term]]:
        """A pool with scheduled dispatch whose jobs all wait in ingress, and the term of its leader."""
        store = shards.store(POOL)
        if arm.fence == "inert":
            store = UnfencedStore(store.client, store.keys)
        store.configure(1, pool=PoolConf(policy=self._policy, dispatch="scheduled", window=WIDE))
        store.enqueue(list(realistic_jobs(self._jobs, TENANTS)))
        yield store, store.lead_acquire("bench", f"bench-{arm.fence}", TERM_MS)
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


@contextmanager
def calls_of(batch: int) -> Iterator[None]:
    """A leader in this process calls for at most so many jobs at once, until the end."""
    try:
        for name, most in BOUNDS.items():
            setattr(dispatching, name, min(batch, most))
        yield
    finally:
        for name, most in BOUNDS.items():
            setattr(dispatching, name, most)


# -- the stages ---------------------------------------------------------------------------------------------------


def admit_all(store: Store, term: Term, batch: int) -> int:
    """Ingress → pending until ingress is empty; answers how many."""
    admitted = 0
    while entries := store.read_ingress(term.nonce, min(batch, ADMIT_MOST)):
        admitted += store.admit(term, [(entry.entry, entry.id, None) for entry in entries]).admitted
    return admitted


def dispatch_all(store: Store, term: Term, batch: int) -> int:
    """Pending → ready until nothing waits; answers how many."""
    dispatched = 0
    while done := store.dispatch(term, min(batch, DISPATCH_MOST), WIDE).jobs:
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


def judge(report: Report, progress: Progress, live: Arm, inert: Arm) -> None:
    """A row of each, with medians over the rounds. Figures are those of full calls: only these are promised."""
    cost_pct = fence_cost_pct(live.server_us["end_to_end"], inert.server_us["end_to_end"])
    with_it, without = live.medians(), inert.medians()
    report.rows += [_row(live, cost_pct), _row(inert, None)]
    progress.say(f"  calls of at most {live.batch} jobs")
    for stage in STAGES:
        progress.say(
            f"  {stage.replace('_', ' '):<11}{with_it[f'{stage}_per_s']:10,.0f} jobs/s, "
            f"{with_it[f'{stage}_server_us_per_job']:5.1f} µs of server time and "
            f"{with_it[f'{stage}_commands_per_job']:.2f} commands a job; without the fence "
            f"{without[f'{stage}_per_s']:,.0f}/s, {without[f'{stage}_server_us_per_job']:.1f} µs, "
            f"{without[f'{stage}_commands_per_job']:.2f}"
        )
    full = live.batch == FULL
    promised = f" (at most {MOST_PCT:g} % promised)" if full else ""
    progress.say(f"  the fence adds {cost_pct:+.2f} % to the server's time of a job{promised}")
    if not full:
        return
    report.figures |= _figures(live, inert, cost_pct)
    reached = with_it["end_to_end_per_s"]
    if reached < LEAST_PER_S:
        report.missed.append(
            f"A leader takes {reached:,.0f} jobs/s from ingress to ready; at least {LEAST_PER_S:,.0f} are promised."
        )
    if cost_pct > MOST_PCT:
        report.missed.append(
            f"The fence adds {cost_pct:.2f} % to the server's time of a job; at most {MOST_PCT:g} % are promised."
        )


def _figures(live: Arm, inert: Arm, cost_pct: float | None) -> dict[str, Figure]:
    return {**live.medians(), **inert.medians("_no_fence"), "fence_cost_pct": cost_pct}


def _row(arm: Arm, cost_pct: float | None) -> dict[str, Any]:
    rounds = len(arm.per_s["end_to_end"])
    return {"batch": arm.batch, "fence": arm.fence, "rounds": rounds, **arm.medians(), "fence_cost_pct": cost_pct}


def fence_cost_pct(fence_us: Sequence[float], no_fence_us: Sequence[float]) -> float:
    """What the fence adds, in percent: what both the median over the rounds and the best of each arm show.

    Either alone is as far off as the machine is busy with other things; a round compares two neighbours in time.
    """
    neighbours = median(with_it / without for with_it, without in zip(fence_us, no_fence_us, strict=True))
    return 100 * (min(neighbours, min(fence_us) / min(no_fence_us)) - 1)
