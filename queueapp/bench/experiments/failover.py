"""`bench failover`: how long nothing is dispatched when the leader dies, stops, freezes, or has nobody to follow it.

Real processes: a worker, a leader and a standby, jobs that come every few milliseconds. Every figure is a difference
of stamps that the store itself wrote: the moment at which it dispatched a job and the term that asked for it (run hash
`dt` and `ep`), or the moment of its lease where the store chooses itself. An outage is the gap between the last
dispatch of the old term and the first of the next. After each trial every job must have ended once.

Arms: `none` nothing happens: the longest gap that comes by itself. `graceful` SIGTERM to the leader. `crash` SIGKILL.
`single` SIGKILL without a standby: nobody dispatches, and that is what is reported; a scheduler that is started
afterwards finishes the jobs. `pause` SIGSTOP until another one leads, then SIGCONT: what it wakes up with must be
refused. `direct` SIGKILL to the leader of a pool whose dispatch is direct: the store chooses, the gap must be an
ordinary one. `worker` is another matter (`lost_worker`). Each but the last can be run under several lengths of the
lease, beside what that lease predicts (`failover_windows`).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import redis
from django.conf import settings as django_settings

from queueapp.bench.experiments import lost_worker
from queueapp.bench.experiments.failover_trials import ALL, WORKER, Trial, arms_of, figures, missed, told, ttls_of
from queueapp.bench.experiments.failover_windows import GRACE_MS, Lease
from queueapp.bench.harness import Progress, Report
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.bench.tasks import noop
from queueapp.bench.waiting import LOOK_S, WITHIN_S, until
from queueapp.bench.worker_process import worker
from queueapp.conf import load
from queueapp.models import Pool
from queueapp.store import shards

POOL = noop.queue_name
EVERY_S = 0.004
"""Between two jobs: the natural gap of dispatch."""
FLOWS_S = 0.5
"""So long before and after the blow jobs come."""
SLOTS = 4
ENDS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run: `trials` of each arm under each lease."""

    arms: str = ALL
    """Names with commas between them, or `all`."""
    trials: int = 10
    ttls: str | None = None
    """Lengths of the lease in seconds, with commas between them; None: the one in force."""
    presence: str = "auto"
    """`LEADER_PRESENCE` of the schedulers that are struck."""

    def leases(self) -> list[Lease]:
        lengths = [{}] if self.ttls is None else [{"LEADER_TTL_SECONDS": ttl_s} for ttl_s in ttls_of(self.ttls)]
        return [lease_of({"LEADER_PRESENCE": self.presence, **length}) for length in lengths]


def lease_of(own: dict[str, object]) -> Lease:
    """How a scheduler leads that has this beside the benchmark's own settings."""
    loaded, _ = load({**django_settings.DUCTOR, **own})
    return Lease(
        ttl_ms=loaded.leader_ttl_ms,
        renewal_ms=loaded.leader_renewal_ms,
        retry_ms=loaded.leader_retry_ms,
        presence=loaded.leader_presence,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One job as the store saw it go: when, and under which term (0 = the store's own choice)."""

    at_ms: int
    epoch: int


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
    def __init__(self, client: redis.Redis, progress: Progress, directory: Path) -> None:
        self._client, self._progress, self._directory = client, progress, directory
        self._keys, self._reads = shards.keys(POOL), shards.reads(POOL)
        self._numbers = count(1)
        self._running: list[SchedulerProcess] = []
        """The leader first."""

    # -- one arm -----------------------------------------------------------------------------------------------------

    def arm(self, name: str, lease: Lease, trials: int) -> list[Trial]:
        done: list[Trial] = []
        way = "direct" if name == "direct" else "scheduled"
        Pool.objects.update_or_create(name=POOL, defaults={"dispatch": way})  # schedulers repair what differs from it
        until(lambda: self._reads.in_force()[0].dispatch == way, lambda: f"{way} dispatch is not in force.")
        for number in range(1, trials + 1):
            self._lead(lease, standby=name not in {"single", "direct"})
            done.append(self._trial(Trial(arm=name, number=number, lease=lease), lease))
            self._progress.show(f"  {name}: {number} of {trials} trials")
        self.end()
        return done

    def _lead(self, lease: Lease, *, standby: bool) -> None:
        """A leader that is watched, alone or with one standby that watches."""
        if not self._running:
            self._start(lease)
        leader = self._running[0]
        leader.await_lead(self._reads, WITHIN_S + lease.ttl_s)
        if standby and len(self._running) == 1:
            self._start(lease)
        if lease.watched:
            armed = self._keys["leader"]
            until(lambda: self._client.hget(armed, "armed") == b"1", lambda: "The leader's subscription is not seen.")

    def _start(self, lease: Lease) -> None:
        process = SchedulerProcess(f"scheduler-{next(self._numbers)}", self._directory, own=lease.settings)
        self._running.append(process)
        process.await_start()

    def _trial(self, trial: Trial, lease: Lease) -> Trial:
        traffic, before = Traffic(), self._duplicates()
        with traffic.flowing():
            until(lambda: len(self._dispatches(traffic)) > 1, lambda: "Nothing is dispatched.")
            time.sleep(FLOWS_S)
            blow_ms = self._server_ms()
            getattr(self, f"_{trial.arm}")(lease)
            time.sleep(FLOWS_S)
        if trial.arm == "single":
            trial.outage_ms = self._outage(traffic, blow_ms)
            self._start(lease)
        self._await_end(traffic, ENDS_S + lease.ttl_s)
        dispatches = self._dispatches(traffic)
        trial.jobs = len(traffic.ids)
        trial.lost = trial.jobs - self._completed(traffic)
        trial.recorded_twice = self._duplicates() - before
        trial.stale_writes = stale_writes(dispatches)
        earlier = [each for each in dispatches if each.at_ms <= blow_ms]
        trial.natural_gap_ms = max(b.at_ms - a.at_ms for a, b in pairwise(earlier))
        if trial.arm in {"none", "direct"}:
            trial.outage_ms = longest_gap(dispatches, blow_ms)
        elif trial.arm != "single":
            trial.outage_ms = between_terms(dispatches)
        return trial

    # -- the blows ---------------------------------------------------------------------------------------------------

    def _none(self, lease: Lease) -> None:
        time.sleep(FLOWS_S)

    def _graceful(self, lease: Lease) -> None:
        self._strike(signal.SIGTERM)
        self._await_next(lease)

    def _crash(self, lease: Lease) -> None:
        self._strike(signal.SIGKILL)
        self._await_next(lease)

    def _single(self, lease: Lease) -> None:
        self._strike(signal.SIGKILL)
        time.sleep(lease.limit_ms / 1000)

    def _pause(self, lease: Lease) -> None:
        paused = self._running.pop(0)
        try:
            paused.signal(signal.SIGSTOP)
            self._await_next(lease)
            time.sleep(FLOWS_S)
            paused.signal(signal.SIGCONT)
            time.sleep(FLOWS_S)
        finally:
            paused.end()

    def _direct(self, lease: Lease) -> None:
        self._strike(signal.SIGKILL)
        time.sleep(FLOWS_S)
        self._start(lease)

    def _strike(self, number: signal.Signals) -> None:
        struck = self._running.pop(0)
        try:
            struck.signal(number)
        finally:
            struck.end()

    def _await_next(self, lease: Lease) -> None:
        """Until the standby leads, or has not for so long that the trial is censored."""
        end = time.monotonic() + lease.limit_ms / 1000
        while not self._running[0].leads(self._reads) and time.monotonic() < end:
            time.sleep(LOOK_S)

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

    def _await_end(self, traffic: Traffic, within_s: float) -> None:
        end = time.monotonic() + within_s
        while self._completed(traffic) < len(traffic.ids):
            if time.monotonic() > end:
                return
            time.sleep(0.05)

    def end(self) -> None:
        for process in self._running:
            process.end()
        self._running.clear()


def between_terms(dispatches: Sequence[Dispatch]) -> float | None:
    """From the last dispatch of the first term to the first one of another."""
    if not dispatches:
        return None
    first = dispatches[0].epoch
    follows = next((position for position, each in enumerate(dispatches) if each.epoch != first), None)
    return None if follows is None else dispatches[follows].at_ms - dispatches[follows - 1].at_ms


def longest_gap(dispatches: Sequence[Dispatch], blow_ms: int) -> float:
    """Of those that end within a second after the blow."""
    gaps = [b.at_ms - a.at_ms for a, b in pairwise(dispatches) if blow_ms <= b.at_ms <= blow_ms + 1000]
    return max(gaps, default=0)


def stale_writes(dispatches: Sequence[Dispatch]) -> int:
    """Those under a term after the first one under a newer."""
    newest = stale = 0
    for each in dispatches:
        stale += each.epoch < newest
        newest = max(newest, each.epoch)
    return stale


def run(report: Report, client: redis.Redis, progress: Progress, directory: Path, plan: Plan) -> None:
    """Each arm of the plan under each of its leases; `worker` once."""
    experiment = _Experiment(client, progress, directory)
    arms, leases = arms_of(plan.arms), plan.leases()
    trials: list[Trial] = []

    def judge(found: Sequence[Trial]) -> None:
        trials.extend(found)
        report.rows += [trial.row() for trial in found]
        report.missed += missed(found)
        progress.say(told(found))

    progress.say(f"  a job every {EVERY_S * 1000:g} ms; outage in ms from the store's own stamps")
    leaders = [name for name in arms if name != WORKER]
    if leaders:
        with worker(POOL, slots=SLOTS, log=directory / "worker.log"):
            try:
                for lease in leases:
                    progress.say(f"  lease of {lease.ttl_s:g} s, presence {lease.presence}")
                    for name in leaders:
                        judge(experiment.arm(name, lease, plan.trials))
            finally:
                experiment.end()
    if WORKER in arms:
        judge(lost_worker.trials(client, progress, directory, plan.trials))
    report.figures |= figures(trials, leases)
