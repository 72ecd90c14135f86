"""What passes between a leader and the store: its term, new jobs to rank, what it chose, a change of policy. Pure.

Moments are milliseconds since the epoch on the server's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from queueapp.store.records import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A grant of leadership: unique by `nonce`, ordered by `epoch`."""

    epoch: int
    nonce: str
    ttl_ms: int
    seen: bool = True
    """The store sees somebody on the channel that the leader told."""


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
    """Ask again at once: jobs whose concurrency keys are full are in the way of others, more than one call moves; or
    jobs of the order before have to come over."""
    taken: Sequence[Taken] = ()
    """In order; only for picks."""
    entered: Sequence[MirrorLane] = ()
    """As in `Admitted`; without the lanes that `taken` tells of."""
    corrected: Sequence[Correction] = ()
