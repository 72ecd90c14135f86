"""`bench failover`: how long nothing is dispatched when the leader dies, stops, freezes, or has nobody to follow it.

Real processes: a worker, a leader and a standby, jobs that come every few milliseconds. Every figure is a difference
of stamps that the store itself wrote: the moment at which it dispatched a job and the term that asked for it (run hash
`dt` and `ep`), or the moment of its lease where the store chooses itself. An outage is the gap between the last
dispatch of the old term and the first of the next. After each trial every job must have ended once.

Arms: `crash` SIGKILL to the leader. `clean` SIGTERM. `freeze` SIGSTOP until another one leads, then SIGCONT: what it
wakes up with must be refused. `alone` SIGKILL without a standby: nobody dispatches, and that is what is reported;
a scheduler that is started afterwards finishes the jobs. `direct` SIGKILL to the leader of a pool whose dispatch is
direct: the store chooses, the gap must be an ordinary one. `worker` is another matter (`lost_worker`).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import redis

from queueapp.bench.experiments import lost_worker
from queueapp.bench.harness import Progress, Report
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.bench.statistics import median, percentile
from queueapp.bench.tasks import noop
from queueapp.bench.waiting import until
from queueapp.bench.worker_process import worker
from queueapp.conf import settings
from queueapp.models import Pool
from queueapp.store import shards

ARMS = ("crash", "clean", "freeze", "alone", "direct")
POOL = noop.queue_name
EVERY_S = 0.004
"""Between two jobs: the natural gap of dispatch."""
FLOWS_S = 0.5
"""So long before and after the blow jobs come."""
SLOTS = 4
ENDS_S = 60.0
GRACE_MS = 1_000
"""Above the lease and a retry, for a process that has to wake up on a busy machine."""
CRASH_MEDIAN_MS, CRASH_WORST_MS, CLEAN_MEDIAN_MS, DIRECT_MS, WORKER_MS = 150.0, 500.0, 30.0, 100.0, 1500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One job as the store saw it go: when, and under which term (0 = the store's own choice)."""

    at_ms: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class Trial:
    """What one blow did."""

    arm: str
    jobs: int = 0
    completed: int = 0
    duplicates: int = 0
    outage_ms: float | None = None
    """None: nobody dispatched again by itself."""
    natural_ms: float = 0.0
    """The longest gap of the time before the blow."""
    late: int = 0
    """Jobs that were dispatched under a term that another had followed."""

    def row(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Traffic:
    """A job every few milliseconds, from a thread of its own."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._fault: Exception | None = None

    @contextmanager
    def flowing(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._produce, args=(over,), name="bench-traffic", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if self._fault is not None:
            raise self._fault

    def _produce(self, over: threading.Event) -> None:
        try:
            while not over.wait(EVERY_S):
                self.ids.append(noop.enqueue(len(self.ids)).id.rpartition(".")[2])
        except Exception as error:
            self._fault = error


class _Experiment:
    def __init__(self, report: Report, client: redis.Redis, progress: Progress, directory: Path) -> None:
        self._report, self._client, self._progress, self._directory = report, client, progress, directory
        self._keys, self._reads = shards.keys(POOL), shards.reads(POOL)
        self._numbers = count(1)
        self._running: list[SchedulerProcess] = []
        """The leader first."""

    # -- one arm -----------------------------------------------------------------------------------------------------

    def arm(self, name: str, trials: int) -> list[Trial]:
        done: list[Trial] = []
        way = "direct" if name == "direct" else "scheduled"
        Pool.objects.update_or_create(name=POOL, defaults={"dispatch": way})  # schedulers repair what differs from it
        until(lambda: self._reads.in_force()[0].dispatch == way, lambda: f"{way} dispatch is not in force.")
        for number in range(trials):
            self._lead(standby=name not in {"alone", "direct"})
            done.append(self._trial(name))
            self._progress.show(f"  {name}: {number + 1} of {trials} trials")
        self.end()
        return done

    def _lead(self, *, standby: bool) -> None:
        """A leader that is watched, alone or with one standby that watches."""
        if not self._running:
            self._start()
        leader = self._running[0]
        leader.await_lead(self._reads)
        if standby:
            self._start()
        if settings.leader_presence != "off":
            armed = self._keys["leader"]
            until(lambda: self._client.hget(armed, "armed") == b"1", lambda: "The leader's subscription is not seen.")

    def _start(self) -> None:
        process = SchedulerProcess(f"scheduler-{next(self._numbers)}", self._directory)
        self._running.append(process)
        process.await_start()

    def _trial(self, name: str) -> Trial:
        trial, traffic = Trial(arm=name), Traffic()
        before = self._duplicates()
        with traffic.flowing():
            time.sleep(FLOWS_S)
            blow_ms = self._server_ms()
            getattr(self, f"_{name}")()
            time.sleep(FLOWS_S)
        if name == "alone":
            trial.outage_ms = self._outage(traffic, blow_ms)
            self._start()
        self._await_end(traffic)
        dispatches = self._dispatches(traffic)
        trial.jobs, trial.completed = len(traffic.ids), self._completed(traffic)
        trial.duplicates = self._duplicates() - before
        earlier = [each for each in dispatches if each.at_ms <= blow_ms]
        trial.natural_ms = max((b.at_ms - a.at_ms for a, b in pairwise(earlier)), default=0)
        if name == "direct":
            trial.outage_ms = _longest_gap(dispatches, blow_ms)
        elif name != "alone":
            trial.outage_ms = _between_terms(dispatches)
        newest = 0
        for each in dispatches:
            trial.late += each.epoch < newest
            newest = max(newest, each.epoch)
        return trial

    # -- the blows ---------------------------------------------------------------------------------------------------

    def _crash(self) -> None:
        self._strike(signal.SIGKILL)
        self._running[0].await_lead(self._reads)

    def _clean(self) -> None:
        self._strike(signal.SIGTERM)
        self._running[0].await_lead(self._reads)

    def _freeze(self) -> None:
        frozen = self._running.pop(0)
        frozen.signal(signal.SIGSTOP)
        self._running[0].await_lead(self._reads)
        time.sleep(FLOWS_S)
        frozen.signal(signal.SIGCONT)
        time.sleep(FLOWS_S)
        frozen.end()

    def _alone(self) -> None:
        self._strike(signal.SIGKILL)
        time.sleep((settings.leader_ttl_ms + settings.leader_retry_ms + GRACE_MS) / 1000)

    def _direct(self) -> None:
        self._strike(signal.SIGKILL)
        time.sleep(FLOWS_S)
        self._start()

    def _strike(self, number: signal.Signals) -> None:
        struck = self._running.pop(0)
        struck.signal(number)
        struck.end()

    # -- what the store says -----------------------------------------------------------------------------------------

    def _server_ms(self) -> int:
        seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def _dispatches(self, traffic: Traffic) -> list[Dispatch]:
        """Of all jobs, in the order of time; those of one millisecond in the order of their terms."""
        with self._client.pipeline(transaction=False) as pipeline:
            for job_id in traffic.ids:
                pipeline.hmget(self._keys.run(job_id), "dt", "ep", "st")
            rows = pipeline.execute()
        found = [Dispatch(at_ms=int(at or leased), epoch=int(epoch or 0)) for at, epoch, leased in rows if at or leased]
        return sorted(found, key=lambda each: (each.at_ms, each.epoch))

    def _outage(self, traffic: Traffic, blow_ms: int) -> float | None:
        """None when the store dispatched nothing more after what was on its way at the blow."""
        later = [each for each in self._dispatches(traffic) if each.at_ms > blow_ms + GRACE_MS]
        return later[0].at_ms - blow_ms if later else None

    def _completed(self, traffic: Traffic) -> int:
        with self._client.pipeline(transaction=False) as pipeline:
            for job_id in traffic.ids:
                pipeline.hget(self._keys.run(job_id), "o")
            return sum(outcome == b"completed" for outcome in pipeline.execute())

    def _duplicates(self) -> int:
        """Completions that the store counted beyond one for each job."""
        counted = int(self._client.hget(self._keys["stats"], "completed") or 0)
        return counted - self._client.zcard(self._keys["ended"])

    def _await_end(self, traffic: Traffic) -> None:
        end = time.monotonic() + ENDS_S
        while self._completed(traffic) < len(traffic.ids):
            if time.monotonic() > end:
                return
            time.sleep(0.05)

    def end(self) -> None:
        for process in self._running:
            process.end()
        self._running.clear()


def _between_terms(dispatches: Sequence[Dispatch]) -> float | None:
    """From the last dispatch of the first term to the first one of another."""
    if not dispatches:
        return None
    first = dispatches[0].epoch
    follows = next((position for position, each in enumerate(dispatches) if each.epoch != first), None)
    return None if follows is None else dispatches[follows].at_ms - dispatches[follows - 1].at_ms


def _longest_gap(dispatches: Sequence[Dispatch], blow_ms: int) -> float:
    """Of those that end within a second after the blow."""
    gaps = [b.at_ms - a.at_ms for a, b in pairwise(dispatches) if blow_ms <= b.at_ms <= blow_ms + 1000]
    return max(gaps, default=0)


def run(report: Report, client: redis.Redis, progress: Progress, directory: Path, *, arm: str, trials: int) -> None:
    """All arms, or one of them."""
    experiment = _Experiment(report, client, progress, directory)
    progress.say(
        f"  a job every {EVERY_S * 1000:g} ms, lease of {settings.leader_ttl_ms / 1000:g} s, "
        f"presence {settings.leader_presence}; outage in ms from the store's own stamps"
    )
    leaders = [name for name in ARMS if arm in ("all", name)]
    if leaders:
        with worker(POOL, slots=SLOTS, log=directory / "worker.log"):
            try:
                for name in leaders:
                    _judge(report, progress, name, experiment.arm(name, trials))
            finally:
                experiment.end()
    if arm in ("all", "worker"):
        _judge_worker(report, progress, lost_worker.trials(client, progress, directory, trials))


def _judge(report: Report, progress: Progress, name: str, trials: Sequence[Trial]) -> None:
    figures, missed = report.figures, report.missed
    report.rows += [trial.row() for trial in trials]
    recovered = [trial.outage_ms for trial in trials if trial.outage_ms is not None]
    lost = sum(trial.jobs - trial.completed for trial in trials)
    duplicates, late = sum(trial.duplicates for trial in trials), sum(trial.late for trial in trials)
    figures |= {
        f"{name}_trials": len(trials),
        f"{name}_recovered": len(recovered),
        f"{name}_jobs": sum(trial.jobs for trial in trials),
        f"{name}_not_completed": lost,
        f"{name}_duplicates": duplicates,
        f"{name}_late_dispatches": late,
        f"{name}_natural_gap_ms": median(trial.natural_ms for trial in trials),
    }
    if recovered:
        middle, p90, worst = median(recovered), percentile(recovered, 90), max(recovered)
        figures |= {f"{name}_median_ms": middle, f"{name}_p90_ms": p90, f"{name}_worst_ms": worst}
        told = f"median {middle:.0f}, p90 {p90:.0f}, worst {worst:.0f} ms"
    else:
        told = "never recovered by itself"
    progress.say(
        f"  {name:<7}{len(trials)} trials: {told}; longest gap before {figures[f'{name}_natural_gap_ms']:.0f} ms; "
        f"{figures[f'{name}_jobs']:,} jobs, {lost} not completed, {duplicates} recorded twice, {late} under an old term"
    )
    if lost or duplicates or late:
        missed.append(f"{name}: {lost} jobs did not complete, {duplicates} were recorded twice, {late} went out late.")
    if name == "alone":
        if recovered:
            missed.append("alone: somebody dispatched although no scheduler was left.")
        return
    if len(recovered) < len(trials):
        missed.append(f"{name}: after {len(trials) - len(recovered)} of {len(trials)} blows nobody followed.")
        return
    freeze_ms = settings.leader_ttl_ms + settings.leader_retry_ms + GRACE_MS
    natural_ms = figures[f"{name}_natural_gap_ms"] or 0.0
    checks: Mapping[str, Sequence[tuple[str, float, float]]] = {
        "crash": [("median", middle, CRASH_MEDIAN_MS), ("worst", worst, CRASH_WORST_MS)],
        "clean": [("median", middle, CLEAN_MEDIAN_MS)],
        "freeze": [("worst", worst, freeze_ms)],
        "direct": [("median", middle, max(DIRECT_MS, 2 * natural_ms))],
    }
    for what, found, most in checks[name]:
        if found > most:
            missed.append(f"{name}: the {what} outage is {found:.0f} ms; at most {most:.0f} ms are promised.")


def _judge_worker(report: Report, progress: Progress, found: Sequence[float]) -> None:
    middle, worst = median(found), max(found)
    report.figures |= {"worker_trials": len(found), "worker_median_ms": middle, "worker_worst_ms": worst}
    report.rows += [{"arm": "worker", "outage_ms": outage_ms} for outage_ms in found]
    progress.say(
        f"  worker {len(found)} trials: {lost_worker.LEASES} leases of a killed worker run elsewhere after "
        f"median {middle:.0f}, worst {worst:.0f} ms"
    )
    if worst > WORKER_MS:
        report.missed.append(
            f"worker: the last job of the killed worker runs elsewhere after {worst:.0f} ms; "
            f"at most {WORKER_MS:.0f} ms are promised."
        )
