"""A reason why a job does not run, and who asks for it: the records that `waiting_reasons` and `reasons` fill. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from queueapp import moments
from queueapp.store.wait_facts import Holder


class Kind(StrEnum):
    """What a reason is about."""

    DEFERRED = "deferred"
    """Kept in the outbox until the store takes it."""
    REFUSED = "refused"
    """The store refused it for good; it stays in the outbox for people."""
    DUE = "due"
    PARKED = "parked"
    """It came above a rate, and its moment has not come."""
    BACKOFF = "backoff"
    UNKNOWN_TASK = "unknown_task"
    POOL_PAUSED = "pool_paused"
    TENANT_PAUSED = "tenant_paused"
    LANE_PAUSED = "lane_paused"
    NO_WORKER = "no_worker"
    NO_LEADER = "no_leader"
    """A leader chooses, and there is none."""
    POOL_FULL = "pool_full"
    TENANT_FULL = "tenant_full"
    LANE_FULL = "lane_full"
    KEY_FULL = "key_full"
    THROTTLED = "throttled"
    """A dispatch rate lets no job of its tenant, its lane or with its key start now."""
    SUSPECT = "suspect"
    """It twice crashed its worker and is leased alone."""
    BEHIND_SUSPECT = "behind_suspect"
    INGRESS = "ingress"
    """The leader has not ranked it yet."""
    WINDOW = "window"
    """The leader has chosen as many jobs as may be chosen and not done."""
    READY = "ready"
    """The leader has chosen it: a worker takes it next."""
    RERANKING = "reranking"
    """It stands in the order of the policy that the pool had before, and is moved over."""
    TURN = "turn"
    """Other jobs start before it."""
    BUSY = "busy"
    """It is next, and every slot of the workers is taken."""
    NEXT = "next"
    EXPIRES = "expires"
    RUNNING = "running"
    STOPPING = "stopping"
    """It runs, and was told to stop."""
    TAKEN = "taken"
    """Leased ahead; its body has not begun."""
    LEASE_OVER = "lease_over"
    CHILDREN = "children"
    """It waits for its children to end."""
    MOVING = "moving"
    """It left its pool, and has not come to the other one."""
    DEAD = "dead"
    ENDED = "ended"
    GONE = "gone"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One part of the answer."""

    kind: Kind
    text: str
    """A clause that is true by itself, without a capital and a full stop."""
    blocks: bool = False
    """It alone keeps the job from starting."""
    used: int | None = None
    limit: int | None = None
    held_by: tuple[str, ...] = ()
    """Public ids of jobs that hold its place, longest first: a bounded list, of tenants whom the reader may see."""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who asks, and about what."""

    pool: str
    public_id: Callable[[str], str]
    tenants: Container[str] | None = None
    """The tenants for whom the reader may speak; None: who runs the pool, and sees it as a whole."""
    contents: bool = False
    """May see contents."""
    elsewhere: Sequence[str] = ()
    """Other pools that live workers serve; known when this one has none."""
    grace_ms: int = 0
    """How long an unknown task is borne (`UNKNOWN_TASK_GRACE`)."""

    @property
    def whole(self) -> bool:
        return self.tenants is None

    def named(self, holders: Sequence[Holder]) -> tuple[str, ...]:
        """Public ids of those whose tenant the reader may see."""
        return tuple(
            self.public_id(holder.id) for holder in holders if self.tenants is None or holder.tenant in self.tenants
        )

    def sees_all(self, holders: Sequence[Holder], number: int) -> bool:
        """Whether all who hold a place are of tenants whom the reader may see, as far as they are known by name."""
        return self.whole or len(self.named(holders)) == number


def moment_of(at_ms: int) -> datetime | None:
    """None also for a number that is no moment: rows are not always ours."""
    try:
        return moments.moment(at_ms)
    except (ValueError, OverflowError, OSError):
        return None
