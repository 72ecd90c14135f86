"""What goes into the store and what comes out of it, as typed records. Pure: no I/O, no Redis.

Moments are integers of milliseconds since the epoch on the server's clock; durations are milliseconds. Ids here are the
22 characters inside a shard; `ShardKeys.public_id` makes the id that users see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from queueapp.states import Outcome, State

Tier = Literal["start", "continue"]
KEYS_MAX = 4
"""Concurrency keys of one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """A concurrency key of one job: at most `limit` leased jobs of the pool may share its `digest`."""

    digest: str
    """Of the text; names the key in the store."""
    text: str
    """The key with its fields filled in, for people."""
    limit: int
    """The task's own; a limit configured for the pattern goes before it."""
    pattern: str
    """Digest of the pattern as the task names it, under which limits are configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebounceUse:
    """The debounce of one job: calls of its tenant with the same `digest` make one run."""

    digest: str
    period_ms: int
    most_ms: int = 0
    """Longest wait after the first call; 0 = as long as calls come."""


SingletonMode = Literal["skip", "replace", "next"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SingletonUse:
    """The singleton of one job. With modes other than `skip`, a concurrency key of limit 1 has the same `digest`."""

    digest: str
    mode: SingletonMode = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to enqueue. `payload` is opaque to the store; `fingerprint` digests task and arguments."""

    id: str
    task: str
    tenant: str
    payload: bytes
    fingerprint: str
    lane: str = "main"
    priority: int = 0
    tier: Tier = "start"
    cost: float = 0
    """Declared units; 0 = undeclared."""
    due_ms: int = 0
    """Run not before this moment; 0 = at once. `delay_ms` is the same relative to the server's clock."""
    delay_ms: int = 0
    expires_after_ms: int = 0
    max_attempts: int = 1
    max_crashes: int = 3
    idempotency: str = ""
    """Digest of the idempotency key; the tenant scopes it."""
    idempotency_ttl_ms: int = 86_400_000
    deadline_ms: int = 0
    """The moment it should have ended by; 0 = none. Only some policies order by it, and nothing is dropped for it."""
    keys: tuple[KeyUse, ...] = ()
    """At most `KEYS_MAX`, by digest, each digest once."""
    parks: bool = False
    """Above a rate it is parked; else it is refused."""
    debounce: DebounceUse | None = None
    singleton: SingletonUse | None = None


Entry = Literal["enqueued", "parked", "exists", "debounced", "skipped", "conflict", "throttled", "backlog_full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """What became of one job of a call, and the id that stands for it.

    enqueued, parked: it is there. exists, debounced, skipped: another one stands for it. The last three refuse it.
    """

    outcome: Entry
    id: str
    wait_ms: int = 0
    """Of a parked job until it is due; of `throttled` and `backlog_full` until it is worth another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedJob:
    """A job that the caller may run until `deadline_ms`. `attempts` is the fence of every later call about it."""

    id: str
    attempts: int
    errors: int
    crashes: int
    task: str
    tenant: str
    lane: str
    priority: int
    cost: float
    submitted_ms: int
    ready_ms: int
    """Since when it could have been leased: submitted, or when its time came, or when it went back to wait."""
    leased_ms: int
    deadline_ms: int
    max_attempts: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A body that returned. `run_ms` is measured by the worker's monotonic clock; `result` is JSON or None."""

    id: str
    attempts: int
    run_ms: int
    result: bytes | None = None
    cost: float = 0
    """True cost set by the handler; 0 = not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A body that raised. `retry_ms` asks for another attempt after that delay; None asks for none."""

    id: str
    attempts: int
    run_ms: int
    error: bytes
    """JSON with `class`, `message`, `traceback`."""
    retry_ms: int | None = None
    reason: str = "error"
    fingerprint: str = ""
    """Group of the dead letter that this may become: 12 hex characters; "" = one of task and reason."""
    cost: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A job given back unrun. With `unknown_task` it waits `delay_ms` and dies after `grace_ms` since first seen."""

    id: str
    attempts: int
    delay_ms: int = 0
    unknown_task: bool = False
    grace_ms: int = 0


Finish = Completed | Failed
Word = Literal["done", "stale", "gone", "retry", "dead"]
"""What a finish became: `done` (now or before), `retry` and `dead` for failures; `stale` and `gone` are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The answer to `check_and_lease`."""

    jobs: Sequence[LeasedJob]
    runnable: bool
    """Something could be leased now by whoever asks."""
    next_due_ms: int
    """Milliseconds until something becomes due by time alone; -1 = nothing."""
    now_ms: int
    more: bool = False
    """Ask again at once: jobs whose concurrency keys are full are in the way of others, more than one call moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle(Leases):
    """The answer to `cycle`: leases, one word per finish, and the ids whose leases were lost."""

    finished: Sequence[Word]
    lost: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Counts of a bounded move; `more` says that another call would find work."""

    pending: int = 0
    dead: int = 0
    expired: int = 0
    more: bool = False
    next_due_ms: int = -1
    """Until the next one becomes due (`promote_due` only); -1 = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of policy that is on its way."""

    policy: str
    """The one before."""
    moved: int
    """Jobs that have left its order, ranked anew or ended, of the `total` that waited at the change."""
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranked:
    """A share of a change of policy: `gone` of the `total` jobs that waited at the change have left the old order."""

    moved: int
    """By this call."""
    gone: int
    total: int
    more: bool
    """Something is left to do, be it only to clear away what the old order was made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A grant of leadership: unique by `nonce`, ordered by `epoch`."""

    epoch: int
    nonce: str
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`rate` jobs in `period_ms`, evenly, and after a rest `burst` of them at once."""

    rate: int
    period_ms: int
    burst: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLimits:
    """What the admin configured for a tenant (`lane=""`) or a lane of it. None clears the record."""

    tenant: str
    lane: str = ""
    weight: float = 1.0
    max_in_flight: int | None = None
    """None = no limit, 0 = closed."""
    min_share: int = 0
    """Slots that the tenant gets before others; 0 = none. A lane has none."""
    paused: bool = False
    rate: Rate | None = None
    """At which jobs come in; None = any."""
    backlog_limit: int | None = None
    """Most waiting jobs of the tenant; None = any number. A lane has none."""
    clear: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """What the admin configured for the concurrency keys of one pattern."""

    pattern: str
    """Digest of the text."""
    text: str
    """The pattern as tasks name it."""
    max_in_flight: int | None = None
    """None = no limit, 0 = closed."""
    rate: Rate | None = None
    """At which jobs with the same key come in; None = any."""
    clear: bool = False


def described(policy: str, by: str, step_ms: int) -> str:
    """A policy with the parameter that it takes, for people."""
    match policy:
        case "edf":
            return f"edf by {by}"
        case "aging":
            return f"aging {step_ms / 1000:g} s a step"
    return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConf:
    """What the admin configured for a pool."""

    policy: str = "tiered"
    by: str = "deadline"
    """What `edf` compares; other policies ignore it."""
    step_ms: int = 60_000
    """What a step of priority is worth under `aging`; other policies ignore it."""
    paused: bool = False
    max_in_flight: int | None = None
    cost_unit: str = "ms"
    default_cost: float = 50.0
    default_weight: float = 1.0
    dispatch: Literal["direct", "scheduled"] = "direct"
    """direct: each lease walks the pool. scheduled: a leader fills `ready`, from which leases take."""
    window: int = 0
    """Most jobs in ready and active together under scheduled dispatch; 0 = as many as live workers have slots."""
    backlog_limit: int | None = None
    """Most waiting jobs of the pool; None = any number."""
    continue_weight: int = 10
    """How many parked jobs of tier continue leave the backlog for each of tier start, while both are due."""

    @property
    def rule(self) -> str:
        """The policy with the parameter that it takes."""
        return described(self.policy, self.by, self.step_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """One failed (`kind` error) or lost (`kind` lost) attempt."""

    kind: str
    attempt: int
    worker: str
    at_ms: int
    detail: Mapping[str, object]
    """`class`, `message`, `traceback` of an error; empty for a loss."""


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
    attempts: int = 0
    error_count: int = 0
    crashes: int = 0
    submitted_ms: int = 0
    ready_ms: int = 0
    """Since when it could have been leased: submitted, or when its time came, or when it went back to wait."""
    first_leased_ms: int = 0
    leased_ms: int = 0
    ended_ms: int = 0
    due_ms: int = 0
    deadline_ms: int = 0
    """The moment it should have ended by; 0 = none, or not known any more: an ended row does not keep it."""
    worker: str = ""
    max_attempts: int = 0
    """0 = not known any more: an ended row does not keep it."""
    payload: bytes | None = None
    """None once the job has ended: an ended row keeps no arguments."""
    result: bytes | None = None
    errors: Sequence[ErrorRecord] = ()
    data: Mapping[str, bytes] = field(default_factory=dict)
    """`progress`, `metadata`: JSON that the task saved."""


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
    """A tenant that the shard knows. `active` is known only where a ceiling counts it."""

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
    """The answer to `oldest`. `first` and `cursor` say where to go on; -1 and "-1" = that part is done."""

    jobs: Sequence[StandingJob]
    first: int
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
class PoolOverview:
    """One look at a shard: sizes, tenants with waiting jobs, workers, totals, who leads."""

    waiting: int
    active: int
    scheduled: int
    parked: int
    dead: int
    ended: int
    tenants: Mapping[str, int]
    """Tenant → waiting jobs; the `reads.MAX_TENANTS` with most of them."""
    tenant_count: int
    """How many tenants have waiting jobs."""
    workers: Sequence[WorkerEntry]
    stats: Mapping[str, int]
    leader: str
    """Owner of a lease of leadership that is in force; empty = nobody leads."""
    leader_until_ms: int
    leader_epoch: int
    """Number of the newest term, whether it is in force or not: the moment in ms at which it began; 0 = none yet."""
    last_tick_ms: int
    """When a leader last took or renewed the lease of leadership; 0 = never."""
    quarantined: int
    ingress: int
    """Entries that wait for a leader; those of jobs that were cancelled meanwhile go when it meets them."""
    ready: int
    """Jobs that a leader chose and no worker has taken yet."""
    reranking: Change | None
    """The change of policy that is on its way."""
    now_ms: int


# -- scheduled dispatch ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressEntry:
    """An entry of the stream `ingress`: what a leader needs to rank a new job. With `id` "" it is none of ours.

    Such a garbled entry is handed to `admit` like any other, which acknowledges and counts it; nothing ranks it.
    """

    entry: str
    """Its id in the stream."""
    id: str = ""
    tenant: str = ""
    lane: str = "main"
    tier: Tier = "start"
    priority: int = 0
    cost: float = 0.0
    """Units: declared, or as they were estimated when it was written; at least 1."""
    deadline_ms: int = 0
    ready_ms: int = 0
    """The moment from which its waiting counts."""
    seq: int = 0
    keys: bool = False
    """It has concurrency keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLane:
    """A lane, or with `lane` "" a tenant, as the store's walk has it now: what a leader's own nodes must follow.

    `runs` False: it stands in no walk (empty, paused, at a ceiling), and `rank`, `seq`, `cost` say nothing. A lane
    that runs below a tenant that does not is told as running; the tenant is told by an entry of its own.
    """

    tenant: str
    lane: str
    runs: bool
    rank: float
    """Of the first job of the lane that may run; of a tenant, of its lanes."""
    seq: int
    cost: float
    """What that job will be charged, at least 1; of a tenant 0."""
    tenant_weight: float
    lane_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """How much more (or, negative, less) jobs of a lane have cost than they were charged."""

    tenant: str
    lane: str
    difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The answer to `admit`. `entered` and `corrected` concern pools whose policy the store does not know.

    Both hold what happened since they were last answered, at most 500 each: ask again when there are so many. They are
    told once: who may have lost a reply reads the whole mirror anew.
    """

    admitted: int
    duplicates: int
    """Entries whose jobs are no longer in `ingress`: admitted before, cancelled, expired."""
    garbled: int
    entered: Sequence[MirrorLane] = ()
    """Lanes and tenants that entered or left a walk, or whose first job is another, in the order of their change."""
    corrected: Sequence[Correction] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of one pick of `dispatch`, or of a job that it took for a guaranteed minimum before a pick.

    taken: the first job of the lane is in `ready`. empty: the lane has no job. blocked: it may not run now. unasked:
    the window or the pool was full before it came to that.
    """

    tenant: str
    lane: str
    outcome: Literal["taken", "empty", "blocked", "unasked"]
    minimum: bool = False
    """Taken for a guaranteed minimum and not by the caller's pick: the tenant's turn is not charged for it."""
    id: str = ""
    rank: float = 0.0
    cost: float = 0.0
    """What was charged."""
    lane_now: MirrorLane | None = None
    """The lane after the whole call; None when unasked."""
    tenant_runs: bool = False
    """The tenant stands in the walk after the whole call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """The answer to `dispatch`."""

    jobs: int
    """How many went to `ready`."""
    room: int
    """What is left of the window, at least 0."""
    runnable: bool
    """Something stands in the walk and the pool lets it run: with room left, ask again. A caller that picks itself and
    whose picks were all in vain has a wrong mirror."""
    more: bool = False
    """Ask again at once: jobs whose concurrency keys are full are in the way of others, more than one call moves."""
    taken: Sequence[Taken] = ()
    """In order; only for picks."""
    entered: Sequence[MirrorLane] = ()
    """As in `Admitted`; without the lanes that `taken` tells of."""
    corrected: Sequence[Correction] = ()
