"""The states of a job and the transitions between them: the table that the scripts, the store and the docs follow.

A job is in exactly one state, and each state is one index of the shard (`INDEX`). Paused, blocked and throttled are
reasons, derived when somebody asks, never states. `docs/lifecycle.md` draws this table; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a job stands. The value is the word that users see; `STATE_CODES` holds the byte that the store keeps."""

    INGRESS = "ingress"
    """Scheduled dispatch: came in, and waits for a leader to rank it."""
    PENDING = "pending"
    """Ready to run; stands in the queue of its tenant and lane."""
    READY = "ready"
    """Scheduled dispatch: chosen by a leader, with its slots taken; the next worker that asks has it."""
    SCHEDULED = "scheduled"
    """Waits for its time: `run_after`, or the backoff before another attempt."""
    BACKLOG = "backlog"
    """Parked: it came above a rate, and waits for the moment from which it conforms."""
    ACTIVE = "active"
    """Leased by one worker until a deadline."""
    WAITING = "waiting"
    """Waits for its children to end (`enqueue_flow`, `add_children`)."""
    MOVING = "moving"
    """On its way to another pool, and run by nobody; its new place takes over."""
    DEAD = "dead"
    """Budget spent; kept as a dead letter for inspection."""
    ENDED = "ended"
    """Over; the outcome says how. Kept until retention removes it."""

    @property
    def in_line(self) -> bool:
        """It could run now, as far as its own time goes."""
        return self in (State.INGRESS, State.PENDING, State.READY)

    @property
    def waits(self) -> bool:
        """It is yet to run, now or at its time."""
        return self.in_line or self in (State.SCHEDULED, State.BACKLOG)


class Outcome(StrEnum):
    """How a job ended."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DISCARDED = "discarded"
    REPLACED = "replaced"
    MOVED = "moved"
    """It goes on in another pool, under the id that its row names."""


STATE_CODES: dict[str, State] = {
    "b": State.BACKLOG,
    "i": State.INGRESS,
    "p": State.PENDING,
    "r": State.READY,
    "s": State.SCHEDULED,
    "a": State.ACTIVE,
    "w": State.WAITING,
    "m": State.MOVING,
    "d": State.DEAD,
    "e": State.ENDED,
}
"""First byte of the row (before the first dispatch or lease) or field `s` of its hash (from then on) → state."""

INDEX: dict[State, str] = {
    State.BACKLOG: "backlog",
    State.INGRESS: "ingress",
    State.PENDING: "q",
    State.READY: "ready",
    State.SCHEDULED: "scheduled",
    State.ACTIVE: "active",
    State.WAITING: "waiting",
    State.MOVING: "moving",
    State.DEAD: "dead",
    State.ENDED: "ended",
}
"""State → the sorted set (of ingress: the stream) whose member the job is. One that moved away stands in `stubs`."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One arrow of a job's life: `script` alone performs it."""

    script: str
    source: State | None
    target: State
    outcome: Outcome | None = None


TRANSITIONS: tuple[Transition, ...] = (
    Transition("enqueue", None, State.PENDING),
    Transition("enqueue", None, State.SCHEDULED),
    Transition("enqueue", None, State.INGRESS),
    Transition("enqueue", None, State.BACKLOG),
    Transition("enqueue", State.PENDING, State.ENDED, Outcome.REPLACED),
    Transition("enqueue", State.SCHEDULED, State.ENDED, Outcome.REPLACED),
    Transition("enqueue", State.BACKLOG, State.ENDED, Outcome.REPLACED),
    Transition("enqueue", State.INGRESS, State.ENDED, Outcome.REPLACED),
    Transition("enqueue", State.READY, State.ENDED, Outcome.REPLACED),
    Transition("enqueue_flow", None, State.WAITING),
    Transition("enqueue_flow", None, State.PENDING),
    Transition("enqueue_flow", None, State.SCHEDULED),
    Transition("enqueue_flow", None, State.INGRESS),
    Transition("enqueue_flow", None, State.BACKLOG),
    Transition("add_children", State.ACTIVE, State.WAITING),
    Transition("add_children", State.ACTIVE, State.PENDING),
    Transition("add_children", State.ACTIVE, State.INGRESS),
    Transition("add_children", State.ACTIVE, State.ENDED, Outcome.CANCELLED),
    Transition("child_done", State.WAITING, State.PENDING),
    Transition("child_done", State.WAITING, State.SCHEDULED),
    Transition("child_done", State.WAITING, State.INGRESS),
    Transition("child_done", State.WAITING, State.DEAD),
    Transition("match", None, State.ACTIVE),
    Transition("match", None, State.PENDING),
    Transition("match", None, State.INGRESS),
    Transition("match", None, State.BACKLOG),
    Transition("backlog_promote", State.BACKLOG, State.PENDING),
    Transition("backlog_promote", State.BACKLOG, State.INGRESS),
    Transition("admit", State.INGRESS, State.PENDING),
    Transition("dispatch", State.PENDING, State.READY),
    Transition("dispatch", State.PENDING, State.ENDED, Outcome.EXPIRED),
    Transition("dispatch", State.PENDING, State.ENDED, Outcome.CANCELLED),
    Transition("promote_due", State.SCHEDULED, State.PENDING),
    Transition("promote_due", State.SCHEDULED, State.INGRESS),
    Transition("promote_due", State.READY, State.PENDING),
    Transition("promote_due", State.READY, State.INGRESS),
    Transition("promote_due", State.INGRESS, State.PENDING),
    Transition("promote_due", State.PENDING, State.ENDED, Outcome.EXPIRED),
    Transition("promote_due", State.SCHEDULED, State.ENDED, Outcome.EXPIRED),
    Transition("promote_due", State.BACKLOG, State.ENDED, Outcome.EXPIRED),
    Transition("promote_due", State.INGRESS, State.ENDED, Outcome.EXPIRED),
    Transition("promote_due", State.READY, State.ENDED, Outcome.EXPIRED),
    Transition("promote_due", State.WAITING, State.ENDED, Outcome.EXPIRED),
    Transition("promote_due", State.WAITING, State.DEAD),
    Transition("configure", State.READY, State.PENDING),
    Transition("configure", State.READY, State.INGRESS),
    Transition("rerank", State.PENDING, State.INGRESS),
    Transition("check_and_lease", State.PENDING, State.ACTIVE),
    Transition("check_and_lease", State.READY, State.ACTIVE),
    Transition("check_and_lease", State.READY, State.PENDING),
    Transition("check_and_lease", State.READY, State.INGRESS),
    Transition("check_and_lease", State.READY, State.ENDED, Outcome.EXPIRED),
    Transition("check_and_lease", State.PENDING, State.ENDED, Outcome.EXPIRED),
    Transition("check_and_lease", State.PENDING, State.ENDED, Outcome.CANCELLED),
    Transition("check_and_lease", State.READY, State.ENDED, Outcome.CANCELLED),
    Transition("complete", State.ACTIVE, State.ENDED, Outcome.COMPLETED),
    Transition("complete", State.ACTIVE, State.ENDED, Outcome.CANCELLED),
    Transition("fail", State.ACTIVE, State.SCHEDULED),
    Transition("fail", State.ACTIVE, State.DEAD),
    Transition("fail", State.ACTIVE, State.ENDED, Outcome.CANCELLED),
    Transition("partition_requeue", State.ACTIVE, State.PENDING),
    Transition("partition_requeue", State.ACTIVE, State.INGRESS),
    Transition("partition_requeue", State.ACTIVE, State.SCHEDULED),
    Transition("partition_requeue", State.ACTIVE, State.DEAD),
    Transition("partition_requeue", State.ACTIVE, State.ENDED, Outcome.CANCELLED),
    Transition("partition_recover", State.ACTIVE, State.PENDING),
    Transition("partition_recover", State.ACTIVE, State.INGRESS),
    Transition("partition_recover", State.ACTIVE, State.DEAD),
    Transition("partition_recover", State.ACTIVE, State.ENDED, Outcome.CANCELLED),
    Transition("cancel", State.PENDING, State.ENDED, Outcome.CANCELLED),
    Transition("cancel", State.SCHEDULED, State.ENDED, Outcome.CANCELLED),
    Transition("cancel", State.BACKLOG, State.ENDED, Outcome.CANCELLED),
    Transition("cancel", State.INGRESS, State.ENDED, Outcome.CANCELLED),
    Transition("cancel", State.READY, State.ENDED, Outcome.CANCELLED),
    Transition("cancel", State.WAITING, State.ENDED, Outcome.CANCELLED),
    Transition("move_to_dlq", State.PENDING, State.DEAD),
    Transition("move_to_dlq", State.SCHEDULED, State.DEAD),
    Transition("move_to_dlq", State.BACKLOG, State.DEAD),
    Transition("move_to_dlq", State.INGRESS, State.DEAD),
    Transition("move_to_dlq", State.READY, State.DEAD),
    Transition("move_to_dlq", State.WAITING, State.DEAD),
    Transition("retry_from_dlq", State.DEAD, State.PENDING),
    Transition("retry_from_dlq", State.DEAD, State.INGRESS),
    Transition("retry_from_dlq", State.DEAD, State.SCHEDULED),
    Transition("retry_from_dlq", State.DEAD, State.WAITING),
    Transition("rewrite", State.DEAD, State.DEAD),
    Transition("discard", State.DEAD, State.ENDED, Outcome.DISCARDED),
    Transition("depart", State.PENDING, State.MOVING),
    Transition("depart", State.SCHEDULED, State.MOVING),
    Transition("depart", State.BACKLOG, State.MOVING),
    Transition("depart", State.INGRESS, State.MOVING),
    Transition("depart", State.READY, State.MOVING),
    Transition("arrive", None, State.PENDING),
    Transition("arrive", None, State.SCHEDULED),
    Transition("arrive", None, State.INGRESS),
    Transition("arrive", None, State.ENDED, Outcome.CANCELLED),
    Transition("arrived", State.MOVING, State.ENDED, Outcome.MOVED),
    Transition("recall", State.MOVING, State.PENDING),
    Transition("recall", State.MOVING, State.SCHEDULED),
    Transition("recall", State.MOVING, State.INGRESS),
    Transition("recall", State.MOVING, State.ENDED, Outcome.CANCELLED),
)
"""`cycle` performs what `complete`, `fail`, `check_and_lease`, and in bounded shares `promote_due` and
`partition_recover` perform; it, `check_and_lease` and `dispatch` perform shares of what `rerank` does; whatever ends a
job performs `child_done` for its parent; `trim` removes ended rows and old dead letters for good."""
