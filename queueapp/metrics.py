"""The instruments that this process moves: what they are called, how they are labelled, and how they are added to.

Nothing here reads the store or the database: gauges that are true of a pool, whoever asks, come from
`inspection.collector`. All instruments stand in prometheus_client's default registry, so that every exposition of the
host shows them; with PROMETHEUS_MULTIPROC_DIR set they are kept in files there, one set a process. Labels are bounded:
pools are configured, shards are few, and of tenants at most METRICS_TENANTS have a name.
docs/metrics.md explains each; `tests/docs/test_metrics.py` compares it with this module.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client import Counter, Gauge, Histogram

if _directory := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
    # prometheus_client opens files there as soon as an instrument is defined.
    os.makedirs(_directory, exist_ok=True)

OTHER = "_other"
"""The tenant of all tenants that have no label of their own."""
SHARD = "0"
"""Every pool has one shard."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Upper bounds of the buckets of durations: from a millisecond, which an idle pool takes, to an hour."""


class Durations(Histogram):
    """A histogram that takes what was counted elsewhere: a worker counts per job, and adds once a second."""

    def add(self, counts: Sequence[int], total_s: float) -> None:
        """`counts` per bucket of `SECONDS`, the last one for what is longer; `total_s` is the sum of all."""
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(total_s)


class Tally:
    """Durations counted in plain numbers. Not thread-safe: one thread notes and drains."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total_s = 0.0

    def note(self, seconds: float) -> None:
        """One more duration."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total_s += seconds

    def drain(self, into: Durations) -> None:
        """Hands everything over and begins at zero."""
        if self.total_s or any(self.counts):
            into.add(self.counts, self.total_s)
            self.counts, self.total_s = [0] * len(self.counts), 0.0


class TenantLabels:
    """Which tenants have a label of their own in this process. Not thread-safe.

    First those that are given, then, while there is room, those that are met; everybody else is `_other`.
    """

    def __init__(self, tenants: Iterable[str], limit: int) -> None:
        self._limit = limit
        self._named = dict.fromkeys(list(tenants)[:limit])

    @property
    def all(self) -> list[str]:
        """Every label in use."""
        return [*self._named, OTHER]

    def label(self, tenant: str) -> str:
        """What stands in the label `tenant`."""
        if tenant in self._named:
            return tenant
        if len(self._named) < self._limit:
            self._named[tenant] = None
            return tenant
        return OTHER


QUEUE_WAIT = Durations(
    "ductor_queue_wait_seconds",
    "From the moment a job could have been leased to its lease, for each lease.",
    ["pool"],
    buckets=SECONDS,
)
WAITED = Counter(
    "ductor_waited_seconds_total",
    "What leased jobs had waited for since their submission or the attempt before: schedule, backoff, their own "
    "limits, the line.",
    ["pool", "tenant", "part"],
)
TASK_LATENCY = Durations(
    "ductor_task_latency_seconds",
    "From submission to the recorded completion, retries and delays included, of completed jobs.",
    ["pool"],
    buckets=SECONDS,
)
TASK_EXEC = Durations(
    "ductor_task_exec_seconds",
    "Run time of a body, for each attempt whose outcome the store accepted.",
    ["pool"],
    buckets=SECONDS,
)
MAX_OBSERVED_WAIT = Gauge(
    "ductor_max_observed_wait_seconds",
    "Longest wait of a job leased here in the last one to two minutes.",
    ["pool"],
    multiprocess_mode="livemax",
)
TASKS_COMPLETED = Counter(
    "ductor_tasks_completed_total",
    "Jobs whose completion the store recorded.",
    ["pool", "tenant"],
)
TENANT_SERVICE = Counter(
    "ductor_tenant_service_seconds_total",
    "Slot time that a tenant's bodies took, those that still run included.",
    ["pool", "tenant"],
)
TASK_RETRIES = Counter(
    "ductor_task_retries_total",
    "Failed attempts after which the store scheduled another.",
    ["pool"],
)
DUPLICATE_COMPLETIONS = Counter(
    "ductor_duplicate_completions_total",
    "Outcomes that the store refused, because the attempt no longer held its lease.",
    ["pool"],
)
WORKER_BUSY = Counter(
    "ductor_worker_busy_seconds_total",
    "Slot time spent in bodies, those that still run included.",
    ["pool"],
)
WORKER_SLOTS = Counter(
    "ductor_worker_slot_seconds_total",
    "Slot time that there was: slots of the workers times seconds.",
)
LEADER_TRANSITIONS = Counter(
    "ductor_scheduler_leader_transitions_total",
    "Terms of leadership that schedulers began.",
    ["pool", "shard"],
)
LEADER_FENCED = Counter(
    "ductor_scheduler_fenced_total",
    "Renewals and writes of schedulers that the store refused, because another term had begun.",
    ["pool", "shard"],
)
PARENTS_FAILED = Counter(
    "ductor_parents_failed_total",
    "Jobs that waited for children and became dead letters because one failed, or not all of them came.",
    ["pool"],
)
ENQUEUE_FAILED = Counter(
    "ductor_enqueue_failed_total",
    "Jobs that the store did not accept after their transaction had committed.",
    ["pool", "code"],
)
FRONT_DOOR = Counter(
    "ductor_front_door_total",
    "Calls that the front door refused, parked, or answered with another job, by what became of them.",
    ["pool", "outcome"],
)
SYNC_MATCHES = Counter(
    "ductor_syncmatch_total",
    "Jobs enqueued in a worker's process that might have begun there at once, by what became of that: hit, "
    "miss_no_channel, miss_buffer_full, miss_limited.",
    ["pool", "outcome"],
)
OUTBOX_ENTRIES = Gauge(
    "ductor_outbox_entries",
    "Jobs that the outbox keeps: waiting for the store, or refused by it. Shown by schedulers, counted every 15 s.",
    ["state"],
    multiprocess_mode="livemostrecent",
)
SCHEDULE_FIRINGS = Counter(
    "ductor_schedule_firings_total",
    "Firings of schedules: made in time, made late, skipped because the last job was not over, missed, refused.",
    ["outcome"],
)
SCHEDULE_LAST_FIRING = Gauge(
    "ductor_schedule_last_firing_timestamp_seconds",
    "When this scheduler last made a firing.",
    multiprocess_mode="livemostrecent",
)
SCHEDULES_OVERDUE = Gauge(
    "ductor_schedules_overdue",
    "Schedules that should have fired more than a minute ago and have not.",
    multiprocess_mode="livemostrecent",
)

INSTRUMENTS = (
    QUEUE_WAIT,
    WAITED,
    TASK_LATENCY,
    TASK_EXEC,
    MAX_OBSERVED_WAIT,
    TASKS_COMPLETED,
    TENANT_SERVICE,
    TASK_RETRIES,
    DUPLICATE_COMPLETIONS,
    WORKER_BUSY,
    WORKER_SLOTS,
    LEADER_TRANSITIONS,
    LEADER_FENCED,
    PARENTS_FAILED,
    ENQUEUE_FAILED,
    FRONT_DOOR,
    SYNC_MATCHES,
    OUTBOX_ENTRIES,
    SCHEDULE_FIRINGS,
    SCHEDULE_LAST_FIRING,
    SCHEDULES_OVERDUE,
)
"""All of them, for the test of the documentation."""

FIRING_OUTCOMES = ("fired", "late", "skipped", "missed", "refused")
"""What `ductor_schedule_firings_total` counts."""


def terms_begun(pool: str) -> Counter:
    """The counter of a pool's terms; asking for it makes it exist at zero."""
    return LEADER_TRANSITIONS.labels(pool, SHARD)


def terms_fenced(pool: str) -> Counter:
    """The counter of what was refused under a pool's ended terms; asking for it makes it exist at zero."""
    return LEADER_FENCED.labels(pool, SHARD)


def front_door(pool: str, outcome: str) -> None:
    """A call was parked, throttled, debounced, skipped, or met a full backlog."""
    FRONT_DOOR.labels(pool, outcome).inc()


SYNC_MATCH_OUTCOMES = ("hit", "miss_no_channel", "miss_buffer_full", "miss_limited")
"""What `ductor_syncmatch_total` counts."""


def sync_match(pool: str, outcome: str) -> None:
    """A job was offered to the slots of its own process."""
    SYNC_MATCHES.labels(pool, outcome).inc()


def enqueue_failed(pool: str, code: str) -> None:
    """A send was refused when the caller could no longer be told. `code` is that of the DuctorError."""
    ENQUEUE_FAILED.labels(pool, code).inc()
