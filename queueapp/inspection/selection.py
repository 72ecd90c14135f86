"""Which jobs of a pool are meant: by state, tenant, lane, task, reason, group, and as of a moment. Changes nothing.

`batches` gives their ids, the oldest of each index first, in bounded chunks; `count` says how many there are; `finding`
is how both go through them. Called by `bulk`, which does something to them, and by the skins that first say how many
these would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from queueapp.errors import InvalidOption
from queueapp.inspection.finding import Finding, dead_index
from queueapp.names import TASK_FORM
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.calls import MAX_IDS_PER_CALL
from queueapp.store.looking import LOOKS

CHUNK = MAX_IDS_PER_CALL
"""Jobs that are acted on together."""
READS = 2_000
"""Pages of up to `LOOKS` jobs that are read to count them."""
READS_OF_REQUEST = 40
"""The same for a web request, which must not take long: some hundred milliseconds."""
TASKS_NAMED = 3
WAITING = tuple(state for state in State if state.waits)
NOT_ENDED = (*WAITING, State.WAITING, State.MOVING, State.ACTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What jobs have in common, whatever the pool. What is empty is no condition."""

    tenant: str = ""
    lane: str = ""
    tasks: tuple[str, ...] = ()
    """Of any of these."""
    reason: str = ""
    """Why it is dead."""
    group: str = ""
    """Of dead letters."""
    as_of_ms: int = 0
    """Dead letters that died before this moment, jobs that ended before it, others that were submitted by then. 0: when
    it begins."""

    @property
    def task(self) -> str:
        """The tasks, as forms have them."""
        return ", ".join(self.tasks)


EVERY = Filter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(Filter):
    """Jobs of one pool, in these states."""

    pool: str
    states: tuple[State, ...]
    submission: int = 0
    """The last number of submission at that moment; 0: not known, as it was given from outside."""

    @property
    def whole_tenant(self) -> bool:
        """All that one tenant has."""
        return bool(self.tenant) and not (self.lane or self.tasks or self.reason or self.group)

    def __post_init__(self) -> None:
        for task in self.tasks:
            if not TASK_FORM.fullmatch(task):
                raise InvalidOption(f"task is {task!r}: that is no name of a task, such as 'shop.tasks.make_report'.")

    def words(self) -> str:
        """The conditions, for a log line: `state=pending,active tenant=acme`."""
        parts = {
            "state": ",".join(state.value for state in self.states),
            "tenant": self.tenant,
            "lane": self.lane,
            "task": ",".join(self.tasks[:TASKS_NAMED]) + (",…" if len(self.tasks) > TASKS_NAMED else ""),
            "reason": self.reason,
            "group": self.group,
            "as_of_ms": str(self.as_of_ms or ""),
        }
        return " ".join(f"{name}={value}" for name, value in parts.items() if value)

    def fixed(self) -> Selection:
        """The same with its moment, so that what comes later is left alone however long it takes."""
        if self.as_of_ms:
            return self
        reads = shards.reads(self.pool)
        return replace(self, submission=reads.submission(), as_of_ms=reads.behind("dead"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many jobs a selection has, by state."""

    by_state: dict[State, int]
    exact: bool
    """False: at least so many."""

    @property
    def number(self) -> int:
        return sum(self.by_state.values())

    def words(self) -> str:
        """`1,203 jobs (1,200 pending, 3 active)`."""
        total = f"{'' if self.exact else 'at least '}{self.number:,} job{'' if self.number == 1 else 's'}"
        parts = [f"{number:,} {state.value}" for state, number in self.by_state.items() if number]
        return f"{total} ({', '.join(parts)})" if parts else total


def count(selection: Selection, *, reads: int = READS) -> Count:
    """How many match. In one read up to `LOOKS` jobs are looked at; after so many it ends."""
    selection = selection.fixed()
    found = dict.fromkeys(selection.states, 0)
    known = {state: size for state in selection.states if (size := _size(selection, state)) is not None}
    rest = replace(selection, states=tuple(state for state in selection.states if state not in known))
    finding = Finding(rest, size=LOOKS, reads=reads, onward=False)
    for state, ids in finding:
        found[state] += len(ids)
    return Count(by_state=found | known, exact=finding.whole and not finding.place)


def batches(selection: Selection, *, size: int = CHUNK) -> Iterator[tuple[State, list[str]]]:
    """Inner ids, at most `size` at a time, and in which state they were found. What runs comes last."""
    yield from Finding(selection.fixed(), size=size)


def _size(selection: Selection, state: State) -> int | None:
    """Of dead letters with at most one condition: what the index says, however many there are."""
    if state is not State.DEAD:
        return None
    reads = shards.reads(selection.pool)
    index, rest = dead_index(reads, selection)
    if rest.tenant or rest.lane or rest.tasks or rest.reason or rest.group:
        return None
    return reads.browse(index, before_ms=selection.as_of_ms, count=0, looks=0).size
