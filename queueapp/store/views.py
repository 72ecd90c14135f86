"""What the store answers to who only looks: jobs, pages of indices, tenants, workers, a pool as a whole. Pure.

Moments are milliseconds since the epoch on the server's clock. Ids are the 22 characters inside a shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from queueapp.states import Outcome, State
from queueapp.store.waits import Waits


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """One failed (`kind` error) or lost (`kind` lost) attempt."""

    kind: str
    attempt: int
    worker: str
    at_ms: int
    detail: Mapping[str, object]
    """`class`, `message`, `traceback` of an error; empty for a loss."""
    started_ms: int = 0
    """When its lease began; 0 = nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """All that the store knows of a job, read without changing it."""

    id: str
    state: State
    task: str
    tenant: str
    lane: str
    outcome: Outcome | None = None
    reason: str = ""
    """Why a dead letter died: error, worker_lost, unknown_task, or what an operator gave."""
    group: str = ""
    """The group of a dead letter: those that died of the same have the same."""
    priority: int = 0
    charged: float = 0
    """What its newest lease cost, settled once that has ended; 0 = nothing: there was none, or it was given back."""
    learnt: bool = False
    """What was charged is run time in ms, estimated until the run has ended; else it was declared, or is the pool's."""
    attempts: int = 0
    error_count: int = 0
    crashes: int = 0
    submitted_ms: int = 0
    ready_ms: int = 0
    """Since when it could have been leased: submitted, or when its time came, or when it went back to wait."""
    first_leased_ms: int = 0
    leased_ms: int = 0
    waits: Waits | None = None
    """What it waited for until its newest lease; None while it was never leased."""
    ended_ms: int = 0
    due_ms: int = 0
    moved_to: str = ""
    """Of a job that is moving or moved: prefix (code and shard) of the pool where it goes on, under the same id."""
    failed_child: str = ""
    """Of a dead letter: the child that it died of, as it names it."""
    deadline_ms: int = 0
    """The moment it should have ended by; 0 = none, or not known any more: an ended row does not keep it."""
    worker: str = ""
    cancelling_ms: int = 0
    """When it was told to stop while it ran; 0 = it was not."""
    max_attempts: int = 0
    """0 = not known any more: an ended row does not keep it."""
    edits: int = 0
    """How often its arguments were edited while it was dead."""
    edited_ms: int = 0
    """When last; 0 = never."""
    payload: bytes | None = None
    """None once the job has ended: an ended row keeps no arguments."""
    result: bytes | None = None
    errors: Sequence[ErrorRecord] = ()
    data: Mapping[str, bytes] = field(default_factory=dict)
    """`progress`, `metadata`: JSON that the task saved."""

    @property
    def cancelling(self) -> bool:
        """It runs, and was told to stop: however its lease ends, the job ends as cancelled."""
        return self.state is State.ACTIVE and self.cancelling_ms > 0


Cursor = tuple[str, str]
"""A place in an index: score, as the server spells it, and id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of one index."""

    ids: Sequence[str]
    size: int
    """Members of the index (below the moment that was asked for), whatever the conditions."""
    position: int
    """How many of them lie before the next page."""
    cursor: Cursor | None
    """Where the next page goes on; None = this was the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEntry:
    """Dead letters that died of the same."""

    group: str
    size: int
    first_ms: int
    last_ms: int
    newest: str
    """Id of the member that died last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantEntry:
    """A tenant that the shard knows. `active` is known only where a ceiling or a guaranteed minimum counts it."""

    tenant: str
    waiting: int
    parked: int
    """Of those that wait: above a rate, until their moment comes."""
    dead: int
    active: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingJob:
    """A pending job, and since when it has stood in line."""

    tenant: str
    lane: str
    id: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The answer to `oldest`. `first`, `lane` and `cursor` say where to go on; -1 and "-1" = that part is done."""

    jobs: Sequence[StandingJob]
    first: int
    lane: int
    cursor: str
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEntry:
    """A worker that made itself known."""

    id: str
    last_ms: int
    held: int
    info: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of policy that is on its way."""

    policy: str
    """The one before."""
    moved: int
    """Jobs that have left its order, ranked anew or ended, of the `total` that waited at the change."""
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSizes:
    """How much of everything a shard has."""

    waiting: int
    active: int
    scheduled: int
    parked: int
    """Waiting jobs that came above a rate, until their moment comes."""
    throttled: int
    """Tenants and lanes whose waiting jobs a dispatch rate holds back, or did until a moment ago."""
    dead: int
    ended: int
    tenant_count: int
    """How many tenants have waiting jobs."""
    ingress: int
    """Waiting jobs that no leader has ranked yet; those that were cancelled stay counted until it meets them."""
    ready: int
    """Waiting jobs that a leader has chosen and no worker has taken yet."""
    reranking: Change | None
    """A change of policy that is on its way: how many jobs have moved over to the new order."""
    parents: int
    """Jobs that wait for their children; none of the waiting ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview(ShardSizes):
    """One look at a shard: sizes, tenants with waiting jobs, workers, totals, who leads."""

    tenants: Mapping[str, int]
    """Tenant → waiting jobs; the `reads.MAX_TENANTS` with most of them."""
    workers: Sequence[WorkerEntry]
    stats: Mapping[str, int]
    leader: str
    """Owner of a lease of leadership that is in force; empty = nobody leads."""
    leader_fault: str
    """Why the leader cannot dispatch, as it said at its last renewal; empty = it can."""
    leader_until_ms: int
    leader_epoch: int
    """Number of the newest term, whether it is in force or not: the moment in ms at which it began; 0 = none yet."""
    last_tick_ms: int
    """When a leader last took or renewed the lease of leadership; 0 = never."""
    quarantined: int
    moving: int
    """Jobs on their way to another pool."""
    moving_since_ms: int
    """When the one of them left that is longest on its way; 0 = there is none."""
    now_ms: int
