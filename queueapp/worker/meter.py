"""The meter: what a worker measures of its jobs, at the price of a few additions in plain numbers a job.

The I/O thread alone uses it. Each line has a `PoolMeter`, which only counts; once a second, and at the end, `Meter`
carries what was counted over to the instruments of `queueapp.metrics`, and adds what running bodies have used so far,
so that an hour-long job shows while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from queueapp import metrics
from queueapp.store.records import Completed, Finish, LeasedJob, Word
from queueapp.store.waits import PARTS
from queueapp.worker.slots import Held, Slots

FLUSH_S = 1.0
WINDOW_S = 60.0
"""The longest wait is that of this window and the one before."""


@dataclass(slots=True)
class Service:
    """What one tenant label got since the last flush."""

    completed: int = 0
    seconds: float = 0.0
    waited: list[int] = field(default_factory=lambda: [0] * len(PARTS))
    """Milliseconds that its leased jobs had waited for each of `PARTS`."""


class PoolMeter:
    """One pool's measurements since the last flush."""

    def __init__(self, pool: str, labels: metrics.TenantLabels | None = None) -> None:
        self._labels = labels or metrics.TenantLabels((), 0)
        self._waits = metrics.Tally()
        self._latencies = metrics.Tally()
        self._runs = metrics.Tally()
        self._busy_s = 0.0
        self._retries = 0
        self._refused = 0
        self._longest_s = self._longest_before_s = 0.0
        self._window_ends = 0.0
        self._wait = metrics.QUEUE_WAIT.labels(pool)
        self._latency = metrics.TASK_LATENCY.labels(pool)
        self._exec = metrics.TASK_EXEC.labels(pool)
        self._longest = metrics.MAX_OBSERVED_WAIT.labels(pool)
        self._busy = metrics.WORKER_BUSY.labels(pool)
        self._retried = metrics.TASK_RETRIES.labels(pool)
        self._duplicates = metrics.DUPLICATE_COMPLETIONS.labels(pool)
        self._completed = {label: metrics.TASKS_COMPLETED.labels(pool, label) for label in self._labels.all}
        self._service = {label: metrics.TENANT_SERVICE.labels(pool, label) for label in self._labels.all}
        self._pool = pool
        self._tenants = {label: Service() for label in self._labels.all}
        """By label; a tenant without one is looked up each time, so that this cannot grow."""
        self._ended: dict[str, tuple[LeasedJob, float]] = {}
        """Jobs whose outcome the store has not answered yet, with their run time in ms."""

    def leased(self, jobs: Iterable[LeasedJob]) -> None:
        """These leases were granted."""
        note = self._waits.note
        for job in jobs:
            wait_s = max(0, job.leased_ms - job.ready_ms) / 1000
            note(wait_s)
            waited, waits = self._tenant(job.tenant).waited, job.waits
            waited[0] += waits.schedule_ms
            waited[1] += waits.backoff_ms
            waited[2] += waits.limits_ms
            waited[3] += waits.line_ms
            if wait_s > self._longest_s:
                self._longest_s = wait_s

    def ran(self, held: Held, run_ms: float) -> None:
        """This job has been running for so long, and may still: its time counts, whatever becomes of the outcome."""
        seconds = (run_ms - held.counted_ms) / 1000
        if seconds > 0:
            held.counted_ms = run_ms
            self._busy_s += seconds
            self._tenant(held.job.tenant).seconds += seconds

    def ended(self, job: LeasedJob, run_ms: float) -> None:
        """Its outcome is on its way to the store."""
        self._ended[job.id] = job, run_ms

    def answered(self, finished: Sequence[Finish], words: Sequence[Word], now_ms: int) -> None:
        """The store's words about outcomes. A repeated call is answered once, so nothing is counted twice."""
        for finish, word in zip(finished, words, strict=True):
            job, run_ms = self._ended.pop(finish.id, (None, 0.0))
            if word in {"stale", "gone"}:
                self._refused += 1
                continue
            if job is None:
                continue
            self._runs.note(run_ms / 1000)
            if word == "cancelled":
                continue
            if isinstance(finish, Completed):
                self._tenant(job.tenant).completed += 1
                self._latencies.note(max(0, now_ms - job.submitted_ms) / 1000)
            elif word == "retry" or (word == "done" and finish.retry_ms is not None):
                # `done` of a failure: it had been recorded before, by a call whose reply was lost.
                self._retries += 1

    def flush(self, now: float) -> None:
        """Carries everything over. `now` is on the worker's monotonic clock."""
        self._waits.drain(self._wait)
        self._latencies.drain(self._latency)
        self._runs.drain(self._exec)
        self._busy.inc(self._busy_s)
        self._retried.inc(self._retries)
        self._duplicates.inc(self._refused)
        self._busy_s, self._retries, self._refused = 0.0, 0, 0
        for label, service in self._tenants.items():
            if service.completed:
                self._completed[label].inc(service.completed)
                service.completed = 0
            if service.seconds:
                self._service[label].inc(service.seconds)
                service.seconds = 0.0
            for position, waited_ms in enumerate(service.waited):
                if waited_ms:
                    metrics.WAITED.labels(self._pool, label, PARTS[position]).inc(waited_ms / 1000)
                    service.waited[position] = 0
        self._longest.set(max(self._longest_s, self._longest_before_s))
        if now >= self._window_ends:
            self._longest_before_s, self._longest_s = self._longest_s, 0.0
            self._window_ends = now + WINDOW_S

    def _tenant(self, tenant: str) -> Service:
        service = self._tenants.get(tenant)
        if service is None:
            label = self._labels.label(tenant)
            service = self._tenants.get(label)
            if service is None:
                service = self._tenants[label] = Service()
                self._completed[label] = metrics.TASKS_COMPLETED.labels(self._pool, label)
                self._service[label] = metrics.TENANT_SERVICE.labels(self._pool, label)
        return service


class Meter:
    """All that one worker measures: the pools' meters, and the slots' own time."""

    def __init__(self, pools: Sequence[PoolMeter], slots: Sequence[Slots], now: float) -> None:
        self._pools = pools
        self._slots = slots
        self._counted_until = now
        self.next_at = now + FLUSH_S

    def flush(self, now: float) -> None:
        """Carries over what was counted, and the time of what runs."""
        self.next_at = now + FLUSH_S
        count = sum(slots.count for slots in self._slots if slots.in_use)
        metrics.WORKER_SLOTS.inc(max(0.0, now - self._counted_until) * count)
        self._counted_until = now
        for slots in self._slots:
            for chunk in slots.outstanding.values():
                # In this order: should the slot begin its next job meanwhile, too little is counted now, more later.
                held = chunk.current
                if held is not None:
                    held.line.meter.ran(held, (now - chunk.since) * 1000)
        for pool in self._pools:
            pool.flush(now)
