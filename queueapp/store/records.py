"""What goes into the store and what comes out of it for a job to run, as typed records. Pure: no I/O, no Redis.

Moments are integers of milliseconds since the epoch on the server's clock; durations are milliseconds. Ids here are the
22 characters inside a shard; `ShardKeys.public_id` makes the id that users see. What the admin configures stands in
`configuration`, what people look at in `views`, what a leader exchanges with the store in `leader_records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from queueapp.store.waits import NONE, Waits

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
    admitted: bool = False
    """It goes on with what was let in before, so that it is never refused: above a rate it is parked, and it needs no
    room in the backlog."""
    unheard: bool = False
    """Of one that is admitted: a body of it may have begun that the store never heard of. Its first attempt is used up,
    so that no lease has the fence of that body."""
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
    waits: Waits = NONE
    """What it waited for before this lease: since its submission, or since the attempt before."""


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
Word = Literal["done", "stale", "gone", "retry", "dead", "cancelled"]
"""What a finish became: `done` (now or before), `retry` and `dead` for failures, `cancelled` when the job had been told
to stop; `stale` and `gone` are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The answer to `match`: that of an enqueue, and the lease."""

    answer: Enqueued
    job: LeasedJob | None
    """None: it was refused, or goes into line as any other."""


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
    cancelled: Sequence[str] = ()
    """Jobs of this worker that were told to stop, in each answer anew until their leases end."""
    version: int = 0
    """Of the pool's configuration in force; 0 = never configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Counts of a bounded move; `more` says that another call would find work."""

    pending: int = 0
    dead: int = 0
    expired: int = 0
    cancelled: int = 0
    more: bool = False
    next_due_ms: int = -1
    """Until the next one becomes due (`promote_due` only); -1 = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What `partition_recover` found of lost leases; `more` says that another call would find some."""

    pending: int
    dead: int
    cancelled: int
    more: bool
    workers: int
    """How many workers were seen to be gone, before their leases ended."""
    after: str
    """For the next call: the last worker that was looked at, "" = all were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departed:
    """A job on its way to another pool."""

    id: str
    to: str
    """Code and shard of that pool."""
    hop: int
    """Number of its departure."""
    cancelled: bool
    """Somebody cancelled it since."""
    back: Literal[0, 1, 2]
    """1: an operator asked for it back, and what was packed before may arrive still; 2: nothing can any more."""
    packed: bytes | None
    """All that `arrive` needs there; opaque here. None: it was asked back, or its row cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A page of them."""

    jobs: Sequence[Departed]
    cursor: tuple[str, str] | None
    """Behind which place the next page begins; None = this was the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stub:
    """What a moved job left behind."""

    id: str
    to: str
    """Code and shard of the pool where it went."""
    hop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What became of new arguments for a dead letter."""

    word: str
    """rewritten; fits, when it was only asked; changed: somebody else edited it; keys, singleton: others than it has;
    already: not dead any more; gone."""
    edits: int
    """How often its arguments have been edited now."""
    at_ms: int
    """When last; 0 = never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obliterated:
    """What a share of emptying a shard did."""

    word: str
    """running: nothing, because `jobs` run; more: go on at `cursor`; done; reopened: another run was through and opened
    the shard; unmarked: it is open although none was, as the store lost the mark."""
    cursor: str
    jobs: int
    keys: int
    """Keys that went, with those of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that `fsck` found not to be as it must be."""

    kind: str
    """index, member, slot, held, pointer, waiting, sum, …: docs/operations.md has all."""
    name: str
    """The job, tenant, lane, worker or key that it is about."""
    what: str
    word: str
    """mendable (nothing was changed), mended, by_hand (a human has to look)."""
    subject: str
    cursor: str
    """Where `fsck` met it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one call of `fsck` saw."""

    now_ms: int
    findings: Sequence[Difference]
    rest: Sequence[tuple[str, str]]
    """What is left of what it was asked, and the next page of what it looked at."""
    facts: Sequence[tuple[str, ...]]
