"""Which jobs of a pool are meant: by state, tenant, lane, task, reason, group, and as of a moment. Changes nothing.

`batches` gives their ids, the oldest of each index first, in bounded chunks, also while what was given is cancelled,
retried or discarded: each page begins behind the place where the one before ended. `count` says how many there are.
Called by `bulk`, which does something to them, and by the skins that first say how many these would be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from queueapp.errors import InvalidOption
from queueapp.inspection.jobs import configured_lanes
from queueapp.names import TASK_FORM
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.reads import Reads
from queueapp.store.views import Cursor

CHUNK = 250
LOOKS = 1_000
PAGES_COUNTED = 1_000
PAGES_OF_REQUEST = 20
"""The same for a web request, which must not take long."""
MAX_LANES = 200
WAITING = tuple(state for state in State if state.waits)
NOT_ENDED = (*WAITING, State.ACTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Jobs of one pool. What is empty is no condition."""

    pool: str
    states: tuple[State, ...]
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


def count(selection: Selection, *, pages: int = PAGES_COUNTED) -> Count:
    """How many match. A page is a round trip in which up to `LOOKS` jobs are looked at; after so many it ends."""
    selection = selection.fixed()
    found: dict[State, int] = {}
    for state in selection.states:
        size = _size(selection, state)
        found[state] = size or 0
        if size is not None:
            continue
        for ids in _of_state(selection, state, LOOKS):
            found[state] += len(ids)
            pages -= 1
            if pages == 0:
                return Count(by_state=found, exact=False)
    return Count(by_state=found, exact=True)


def batches(selection: Selection, *, size: int = CHUNK) -> Iterator[tuple[State, list[str]]]:
    """Inner ids, at most `size` at a time, and in which state they were found. What runs comes last."""
    selection = selection.fixed()
    for state in sorted(selection.states, key=lambda one: one is State.ACTIVE):
        for ids in _of_state(selection, state, size):
            if ids:
                yield state, ids


def _of_state(selection: Selection, state: State, size: int) -> Iterator[list[str]]:
    """Page by page; one that holds none that match is empty."""
    reads = shards.reads(selection.pool)
    match state:
        case State.PENDING:
            yield from _pending(reads, selection, size)
        case State.INGRESS:
            yield from _ingress(reads, selection, size)
        case State.DEAD:
            index, rest = _dead_index(reads, selection)
            yield from _pages(reads, index, rest, size, before_ms=selection.as_of_ms)
        case State.ENDED:  # of its row little is left, not even the moment of submission for a lane
            yield from _pages(reads, "ended", selection, size, before_ms=selection.as_of_ms)
        case State.BACKLOG if selection.tenant:
            rest = replace(selection, tenant="")
            for index in (f"bl:{selection.tenant}", f"blc:{selection.tenant}"):
                yield from _pages(reads, index, rest, size, submitted_by_ms=selection.as_of_ms)
        case State.ACTIVE:  # heartbeats move them behind others, so that one may be met again
            seen: set[str] = set()
            for ids in _pages(reads, "active", selection, size, submitted_by_ms=selection.as_of_ms):
                fresh = [job_id for job_id in ids if job_id not in seen]
                seen.update(fresh)
                yield fresh
        case _:
            yield from _pages(reads, state.value, selection, size, submitted_by_ms=selection.as_of_ms)


def _pages(
    reads: Reads, index: str, rest: Selection, size: int, *, before_ms: int = 0, submitted_by_ms: int = 0
) -> Iterator[list[str]]:
    cursor: Cursor | None = None
    while True:
        page = reads.browse(
            index,
            before_ms=before_ms,
            after=cursor,
            count=size,
            looks=LOOKS,
            tenant=rest.tenant,
            lane=rest.lane,
            task="\n".join(rest.tasks),
            reason=rest.reason,
            group=rest.group,
            submitted_by_ms=submitted_by_ms,
        )
        yield list(page.ids)
        cursor = page.cursor
        if cursor is None:
            return


def _dead_index(reads: Reads, selection: Selection) -> tuple[str, Selection]:
    """The smallest index that holds them all, and the conditions that are left to look up."""
    by_group, by_tenant = f"deadgroup:{selection.group}", f"dead:{selection.tenant}"
    group_first = bool(selection.group)
    if selection.group and selection.tenant:
        of_group, of_tenant = reads.sizes([by_group, by_tenant])
        group_first = of_group < of_tenant
    if group_first:
        return by_group, replace(selection, group="")
    if selection.tenant:
        return by_tenant, replace(selection, tenant="")
    return "dead", selection


def _size(selection: Selection, state: State) -> int | None:
    """Of dead letters with at most one condition: what the index says, however many there are."""
    if state is not State.DEAD:
        return None
    reads = shards.reads(selection.pool)
    index, rest = _dead_index(reads, selection)
    if rest.tenant or rest.lane or rest.tasks or rest.reason or rest.group:
        return None
    return reads.browse(index, before_ms=selection.as_of_ms, count=0, looks=0).size


def _ingress(reads: Reads, selection: Selection, size: int) -> Iterator[list[str]]:
    """Entry by entry, up to those that stand there when it begins; their rows say the rest."""
    after, left = "", None
    while left is None or left > 0:
        total, found = reads.ingress(after, size)
        left = (total if left is None else left) - len(found)
        if not found:
            return
        after = found[-1][0]
        ids = [job_id for _, job_id, owner in found if job_id and selection.tenant in ("", owner)]
        matching = [
            job_id
            for job_id, record in zip(ids, reads.letters(ids) if ids else [], strict=True)
            if record is not None
            and record.state is State.INGRESS
            and record.submitted_ms <= selection.as_of_ms
            and selection.lane in ("", record.lane)
            and (not selection.tasks or record.task in selection.tasks)
        ]
        yield matching


def _pending(reads: Reads, selection: Selection, size: int) -> Iterator[list[str]]:
    """Tenant by tenant, lane by lane, each in its order."""
    tenants = [[selection.tenant]] if selection.tenant else reads.waiting_tenants()
    for page in tenants:
        for tenant in page:
            yield from _pending_of(reads, replace(selection, tenant=tenant), size)


def _pending_of(reads: Reads, selection: Selection, size: int) -> Iterator[list[str]]:
    """Again, where a tenant has more lanes than one look shows, until a look shows nothing new."""
    seen: set[str] = set()
    while True:
        queues, all_of_them = _queues(reads, selection)
        fresh = False
        for queue in queues:
            rest = replace(selection, tenant="", lane="")
            for ids in _pages(reads, queue, rest, size, submitted_by_ms=selection.as_of_ms):
                if not all_of_them:
                    ids = [job_id for job_id in ids if job_id not in seen]
                    seen.update(ids)
                fresh = fresh or bool(ids)
                yield ids
        if all_of_them or not fresh:
            return


def _queues(reads: Reads, selection: Selection) -> tuple[list[str], bool]:
    """The queues of a tenant that hold something, by lane, and whether these are all. Four round trips, one query."""
    tenant, of = selection.tenant, reads.queues.generations()
    known = reads.queues.lanes(tenant, MAX_LANES, of)
    sub_lanes = reads.queues.sub_lanes(tenant, MAX_LANES, of)
    lanes = sorted({"main", *known, *configured_lanes(selection.pool, tenant)})
    if selection.lane:
        lanes = [selection.lane]
    tiers = [prefix + tier for prefix, *_ in of.every() for tier in ("q", "qc")]
    places: Sequence[tuple[str, str]] = [
        *((lane, tier) for lane in lanes for tier in tiers),
        *(place for place in sub_lanes if selection.lane in ("", place[0].partition("|")[0])),
    ]
    names = [f"{tier}:{tenant}|{lane}" for lane, tier in places]
    held = [name for name, size in zip(names, reads.queues.sizes(names, of), strict=True) if size > 0]
    return held, len(known) < MAX_LANES and len(sub_lanes) < MAX_LANES
