"""What the coordinator is shown of a run, and what it wants written and done. Plain data; pure.

Who writes what: the columns of `Run` and `StepRun` are written under the run's `version` alone (one conditional
UPDATE). A worker never touches those: it puts a `Report` beside the row, once for each try, and wakes the coordinator.
So the end of a step is recorded whether or not anybody is there to act on it, and is acted on whether or not its
wake-up arrives.

The items of a map are rows of their own, which no tick ever loads: it is shown at most `ITEMS_PER_TICK` that have ended
and are not counted yet, and keeps counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from flows.values import Json

ITEMS_PER_TICK = 500
"""Most ended items that one tick counts. If there are more it asks to be woken at once."""
ITEMS_PER_PAGE = 1_000
"""Most items that one command lists, and most that one command hands to the queue."""

RunState = Literal["running", "compensating", "completed", "failed", "compensated", "cancelled"]
"""compensating  a step failed; what was done is being undone
compensated   all of it is undone"""
StepState = Literal["waiting", "running", "completed", "failed", "skipped", "cancelled"]
"""running  with the queue, or asleep, or waiting for its event"""
Skipped = Literal["", "condition", "no_value", "upstream"]
"""condition  `when` was not true
no_value   a step whose value it takes left none
upstream   a step before it failed"""
Ending = Literal["completed", "failed", "cancelled", "lost"]
"""lost  the store knows nothing of the job"""
Tier = Literal["start", "continue"]

ENDED_RUNS = frozenset({"completed", "failed", "compensated", "cancelled"})
ENDED_STEPS = frozenset({"completed", "failed", "skipped", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a flow."""

    id: str
    flow: str
    definition: str
    """The version of the flow that it began with, and finishes on."""
    input: Mapping[str, Json]
    tenant: str | None = None
    state: RunState = "running"
    version: int = 0
    """The optimistic lock: whoever writes a change gives it a new value, and writes nothing if it is no longer this."""
    started_ms: int = 0
    ended_ms: int | None = None
    cause: str = ""
    """The step whose failure decided the run."""
    note: str = ""
    """Why the run cannot get on although nothing has failed: tasks that are gone from the code."""
    ends: int = 0
    """Steps that have completed: the next one's place in the order of completion."""
    round: int = 1
    """How often it was started or resumed: each round ends once."""
    watch_ms: int = 0
    """When somebody has to look at this run, come what may. Indexed: a sweep finds runs whose timer was lost."""
    watches: int = 0
    """The requeue count of the watchdog's timer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How one try of a step ended, as whoever saw it wrote it down. The first one for a try stands."""

    attempt: int
    ending: Ending
    output: Json = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReport:
    """How one try of one item of a map ended. What it returned stays in its own row."""

    index: int
    attempt: int
    ending: Ending
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that was sent to the run and that no step has taken yet."""

    id: str
    name: str
    payload: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """What has become of one step of the run. A step without a row waits."""

    step: str
    state: StepState = "waiting"
    attempt: int = 0
    """The try that is under way or was the last: it grows with every hand-over to the queue and fences reports."""
    losses: int = 0
    """Tries in this round of which the store knew nothing afterwards."""
    output: Json = None
    error: str = ""
    skipped: Skipped = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    due_ms: int | None = None
    """When a sleep is over, or a wait is given up."""
    requeues: int = 0
    """The requeue count of its timer."""
    withdrawn: bool = False
    """The queue was asked to take back what has not begun."""
    place: int | None = None
    """In the order in which steps completed; what is undone is undone against it."""

    # Of a map: how many items ...
    listed: int = 0
    """... have rows, and ..."""
    total: int | None = None
    """... there are in all, once that is known: both written by whoever lists them."""
    asked: int = -1
    """The first item of the page that was last asked for."""
    issued: int = 0
    """... were handed to the queue and have not come back to be handed over again."""
    completed: int = 0
    failed: int = 0
    recounted: int = 0
    """The try of the map for which its counts are right: behind `attempt` they are being counted anew."""

    report: Report | None = None
    """Not the coordinator's column: it reads it, and whoever hands the step over again empties it."""

    @property
    def open(self) -> int:
        """Items that are with the queue."""
        return self.issued - self.completed - self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A timer that fired. Its job's id is made of run, reason and requeues: set twice, it is there once."""

    reason: str
    requeues: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run as it was read, the row of the run first: of whatever changed after that, `version` tells."""

    run: Run
    steps: Mapping[str, StepRun] = field(default_factory=dict)
    """An `output` that is large may be WITHHELD, unless the step is among `Definition.looked_at()`."""
    items: Mapping[str, tuple[ItemReport, ...]] = field(default_factory=dict)
    """Step → ended items that are not counted; `ITEMS_PER_TICK` in all at most."""
    more: bool = False
    """There are further ones."""
    events: tuple[Event, ...] = ()
    """The oldest one of each name that is waited for; others may be among them."""
    fired: Timer | None = None
    """The timer that woke this tick, if one did."""


# -- what a tick wants written -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Items whose end is in the counts from now on. `again` goes back to those that wait, with the next try."""

    step: str
    ended: tuple[int, ...] = ()
    again: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Written in one transaction if the run still has `version`; otherwise not at all."""

    version: int
    run: Run | None = None
    steps: tuple[StepRun, ...] = ()
    counted: tuple[Counted, ...] = ()
    taken: Mapping[str, str] = field(default_factory=dict)
    """Event → the step that took it."""
    sent: tuple[Event, ...] = ()
    """Events to be kept."""


# -- what a tick wants done ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """Hand a step to the queue, or start the run of a sub-flow. Its id is made of run, step and attempt.

    Not when the row is no longer running this try, or has a report: a relay may repeat a command after the store has
    lost the job, and what completed must not run again.
    """

    step: str
    attempt: int
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItems:
    """Make rows for the items from `start`, a page of them; if there is none, or the list ends here, tell the total."""

    step: str
    attempt: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueItems:
    """Hand waiting items to the queue, the first ones first, until as many have been handed over as the row's `issued`
    says when this is carried out: repeated, or overtaken by a tick, it does no harm."""

    step: str
    attempt: int
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Recount:
    """Items that have not completed wait again, with the next try; count those that have; set `recounted`."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquire:
    """Ask the store for what it knows of the jobs of a step, and report what has ended or was lost."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Cancel the jobs of a step: those that have not begun, or (`all`) every one, a running one being told.

    Nothing when the row has a later try by now: its jobs are other ones.
    """

    step: str
    attempt: int
    all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Wake the run at a moment."""

    reason: str
    at_ms: int
    requeues: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Wake the run at once: there is more to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run has ended: tell who waits, the parent run, and the signal; once for each round."""

    state: RunState
    round: int


Command = Enqueue | ListItems | IssueItems | Recount | Inquire | Withdraw | SetTimer | Wake | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one tick, or one operation, comes to. Both are written in one transaction, or neither."""

    changes: Changes | None = None
    commands: tuple[Command, ...] = ()

    def __bool__(self) -> bool:
        return self.changes is not None or bool(self.commands)


NOTHING = Decision()
