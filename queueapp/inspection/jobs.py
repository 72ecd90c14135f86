"""One job, and lists of jobs, as every skin shows them: facts, and, for those who may see them, contents, masked.

Changes nothing. The cursor of a list is the place (score and id) of the last job that was looked at, so that what comes
and goes meanwhile shifts no page. Active jobs stand by the end of their lease, which heartbeats move on: one may be
seen twice, none is missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from queueapp.errors import InvalidOption
from queueapp.inspection.finding import lanes_in_line, order_in_line, shortly_before
from queueapp.inspection.masking import shown_arguments, shown_result, shown_saved
from queueapp.moments import moment, now_ms
from queueapp.states import Outcome, State
from queueapp.store import shards
from queueapp.store.following import next_id
from queueapp.store.keys import split_public_id
from queueapp.store.looking import LOOKS
from queueapp.store.queues import PAGE, Generations
from queueapp.store.reads import Reads
from queueapp.store.views import Cursor, ErrorRecord, JobRecord
from queueapp.store.waits import Waits

STATES = tuple(state.value for state in State)
NEWEST_FIRST = {State.DEAD, State.ENDED}
MAX_COUNT = 200
MAX_NEXT = 250
"""So many pending jobs are listed at most when no tenant is named, what would run next: 5 ms of the server's time."""
STEPS = 4
"""Calls that one page of several conditions makes at most; each looks at up to `LOOKS` rows."""
SCORE_FORM = r"-?[0-9]{1,17}(?:\.[0-9]{1,17})?(?:e[+-]?[0-9]{1,3})?"
CURSOR_FORM = re.compile(rf"(?:(<?qc?),([^,]*),)?(?:({SCORE_FORM}),([A-Za-z0-9_@-]{{1,64}})|,)")
POSITION_FORM = re.compile(r"[0-9]{0,6}")
ENTRY_FORM = re.compile(r"(?:[0-9]{1,20}-[0-9]{1,20})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job of `pool` under its public id. Moments are aware datetimes or None."""

    id: str
    pool: str
    record: JobRecord

    @property
    def state(self) -> str:
        """The state; of an ended job its outcome."""
        return (self.record.outcome or self.record.state).value

    @property
    def cancelling(self) -> bool:
        """It runs, and was told to stop: in the end its outcome will be cancelled."""
        return self.record.cancelling

    @property
    def moved_to(self) -> str:
        """The public id under which it goes on in another pool; else empty."""
        return next_id(self.record)

    @property
    def submitted_at(self) -> datetime | None:
        return moment(self.record.submitted_ms)

    @property
    def first_leased_at(self) -> datetime | None:
        return moment(self.record.first_leased_ms)

    @property
    def leased_at(self) -> datetime | None:
        return moment(self.record.leased_ms)

    @property
    def ended_at(self) -> datetime | None:
        return moment(self.record.ended_ms)

    @property
    def due_at(self) -> datetime | None:
        return moment(self.record.due_ms)

    @property
    def deadline_at(self) -> datetime | None:
        """When it should have ended; None once it has, as an ended row does not keep it."""
        return moment(self.record.deadline_ms)

    @property
    def group(self) -> str:
        """The group of a dead letter, see `deadletters.DeadGroup`; else empty."""
        return self.record.group

    @property
    def wait(self) -> timedelta | None:
        """How long it waited for its newest lease, or has been waiting; None before its time and where nobody knows."""
        record = self.record
        if record.state.in_line:
            return _span(record.ready_ms, now_ms())
        if record.state.waits or not record.leased_ms:
            return None
        return _span(record.ready_ms, record.leased_ms)

    @property
    def waits(self) -> Waits | None:
        """What it waited for until its newest lease began, over all its attempts; None while it was never leased."""
        return self.record.waits

    @property
    def duration(self) -> timedelta | None:
        """How long its newest attempt ran, or has been running; None when it did not run to an end of its own."""
        record = self.record
        if record.state is State.ACTIVE:
            return _span(record.leased_ms, now_ms())
        error = self.last_error
        raised = error is not None and error.kind == "error" and error.at_ms == record.ended_ms
        if record.outcome is Outcome.COMPLETED or (record.state is State.DEAD and raised):
            return _span(record.leased_ms, record.ended_ms)
        return None

    @property
    def charged(self) -> float | None:
        """What its newest lease cost in the pool's unit, settled once that has ended; None: none, or given back."""
        return self.record.charged or None

    @property
    def last_error(self) -> ErrorRecord | None:
        return self.record.errors[-1] if self.record.errors else None

    def arguments(self) -> tuple[list[Any], dict[str, Any]] | None:
        """`(args, kwargs)`, masked; None once the job has ended. For those who may see payloads."""
        return shown_arguments(self.record)

    def result(self) -> Any:
        """What the task returned, masked. For those who may see payloads."""
        return shown_result(self.record)

    def saved(self) -> dict[str, Any]:
        """The progress that the task told and the job's metadata, where there are any, masked."""
        return shown_saved(self.record)


def view(pool: str, record: JobRecord) -> JobView:
    """The view of a record that was read from this pool."""
    return JobView(id=shards.keys(pool).public_id(record.id), pool=pool, record=record)


def views(pool: str, reads: Reads, ids: Sequence[str]) -> list[JobView]:
    """The jobs of these inner ids that are there, in one round trip."""
    if not ids:
        return []
    return [view(pool, record) for record in reads.jobs(ids) if record is not None]


def find_job(public_id: str) -> JobView | None:
    """The job of this id; None when it is no job id, of no known pool, or the job is gone."""
    place = shards.locate(public_id)
    if place is None:
        return None
    pool, job_id = place
    record = shards.reads(pool).job(job_id)
    return view(pool, record) if record is not None else None


def find_jobs(ids: Iterable[str]) -> list[JobView]:
    """The jobs of these public ids that are there, pool by pool: one round trip each, and at most one more."""
    return [job for pool, inner in by_pool(ids).items() for job in views(pool, shards.reads(pool), inner)]


def by_pool(ids: Iterable[str]) -> dict[str, list[str]]:
    """Inner ids of public ids, by pool. What is no job id, or of no known pool, is left out."""
    places = [parts for parts in map(split_public_id, ids) if parts is not None and parts[1] == shards.SHARD]
    names = shards.pools_of({code for code, _, _ in places})
    found: dict[str, list[str]] = {}
    for code, _, job_id in places:
        if code in names:
            found.setdefault(names[code], []).append(job_id)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of jobs of one state."""

    pool: str
    state: str
    total: int
    exact: bool
    """False: so many were to be looked through, and fewer may match."""
    jobs: tuple[JobView, ...]
    at_least: bool = False
    """Nor were all counted: there may be more. Of a tenant with more than a thousand queues of concurrency keys."""
    next_cursor: str | None
    """None = this is the last page. A page with conditions may hold few jobs, or none, and not be the last."""


def list_jobs(pool: str, state: str, *, tenant: str = "", task: str = "", cursor: str = "", count: int = 50) -> JobPage:
    """At most `count` (up to 200) jobs of `pool` in `state`: at most 8 round trips, at most 4,000 rows looked at.

    Active jobs by the end of their lease, scheduled ones by due time, those of ingress in the order in which they came,
    ready ones in that in which they were chosen, ended and dead ones newest first. Pending ones of
    a tenant lane by lane in their order, else what would run next, up to 250 (none while the pool is paused).
    Raises InvalidOption for a state that there is not, or a cursor that no page gave.
    """
    if state not in STATES:
        raise InvalidOption(f"{state!r} is no state of a job; there are {', '.join(STATES)}.")
    count = max(1, min(count, MAX_COUNT))
    reads = shards.reads(pool)
    if state == State.PENDING:
        if tenant:
            return _pending_of(pool, reads, tenant, task, cursor, count)
        return _next_to_run(pool, reads, task, cursor, count)
    if state == State.INGRESS:
        return _of_ingress(pool, reads, tenant, task, cursor, count)
    return _of_index(pool, reads, State(state), tenant, task, cursor, count)


def _of_ingress(pool: str, reads: Reads, tenant: str, task: str, cursor: str, count: int) -> JobPage:
    """Entry by entry. Those of jobs that were cancelled meanwhile stay until a leader meets them, and are left out."""
    if not ENTRY_FORM.fullmatch(cursor):
        raise _no_cursor(cursor)
    jobs: list[JobView] = []
    after, total, more = cursor, 0, True
    for _ in range(STEPS):
        asked = LOOKS if tenant else count - len(jobs)
        total, found = reads.ingress(after, asked)
        more = len(found) == asked
        ids: list[str] = []
        for entry, job_id, owner in found:
            if len(ids) == count - len(jobs):
                more = True
                break
            after = entry
            if tenant in ("", owner):
                ids.append(job_id)
        jobs += [job for job in _still(pool, reads, ids, State.INGRESS) if task in ("", job.record.task)]
        if not more or len(jobs) == count:
            break
    return JobPage(
        pool=pool,
        state=State.INGRESS.value,
        total=total,
        exact=not (tenant or task),
        jobs=tuple(jobs),
        next_cursor=after if more else None,
    )


def _of_index(pool: str, reads: Reads, state: State, tenant: str, task: str, cursor: str, count: int) -> JobPage:
    index = f"dead:{tenant}" if tenant and state is State.DEAD else state.value
    rest = "" if index != state.value else tenant
    _, _, after = _parsed(cursor)
    ids: list[str] = []
    for _ in range(STEPS):
        page = reads.browse(
            index,
            newest=state in NEWEST_FIRST,
            after=after,
            count=count - len(ids),
            looks=LOOKS,
            tenant=rest,
            task=task,
        )
        ids += page.ids
        after = page.cursor
        if after is None or len(ids) == count:
            break
    whole = not cursor and after is None
    conditional = bool(rest or task)
    return JobPage(
        pool=pool,
        state=state.value,
        total=len(ids) if conditional and whole else page.size,
        exact=whole or not conditional,
        jobs=_still(pool, reads, ids, state),
        next_cursor=None if after is None else ",".join(after),
    )


def _pending_of(pool: str, reads: Reads, tenant: str, task: str, cursor: str, count: int) -> JobPage:
    """Queue by queue: lanes by name, in each the fresh work, then what continues; jobs with concurrency keys behind.

    During a change of policy what has not moved over yet comes first in each lane; a job may be met twice.
    """
    of = reads.queues.generations()
    tier, lane, after = _parsed(cursor)
    begin = f"{tier}:{tenant}|{lane}" if tier else ""
    lanes = lanes_in_line(reads, pool, [tenant], of)[tenant]
    in_lanes = [f"{each}:{tenant}|{name}" for name in lanes for each in of.tiers()]
    first = _sub_lanes(reads, tenant, of, "")
    sizes = dict(zip([*in_lanes, *first], reads.queues.sizes([*in_lanes, *first], of), strict=True))
    for name, parked in zip(first, reads.queues.are_parked(first, of), strict=True):
        if not parked and (of_lane := name.rpartition("|")[0]) in sizes:  # where a member stands for it
            sizes[of_lane] -= 1
    all_of_them = len(first) < PAGE
    sub_lanes = first if all_of_them or "|@" not in lane else _sub_lanes(reads, tenant, of, begin)
    ids: list[str] = []
    steps, then = STEPS - 2, ""  # two round trips went into the sub-lanes and a change of policy
    for name in [*in_lanes, *sub_lanes]:
        if sizes.get(name, 1) <= 0 or (begin and order_in_line(name) < order_in_line(begin)):
            continue
        at = after if name == begin else None
        while True:
            if steps == 0 or len(ids) == count:
                then = _cursor(name, at)
                break
            page = reads.browse(name, after=at, count=count - len(ids), looks=LOOKS, task=task)
            steps -= 1
            ids += page.ids
            at = page.cursor
            if at is None:
                break
        if then:
            break
    if not then and len(sub_lanes) >= PAGE:
        then = _cursor(sub_lanes[-1] + "~", None)  # behind it, before any other
    whole = not cursor and not then
    return JobPage(
        pool=pool,
        state=State.PENDING.value,
        total=len(ids) if task and whole else sum(sizes.values()),
        exact=all_of_them and (whole or not task),
        at_least=not all_of_them and not task,
        jobs=_still(pool, reads, ids, State.PENDING),
        next_cursor=then or None,
    )


def _sub_lanes(reads: Reads, tenant: str, of: Generations, begin: str) -> list[str]:
    """The queues of jobs with concurrency keys from that one on, at most `PAGE`, in their order. One round trip."""
    asked = [(tenant, tier, shortly_before(begin, tenant, tier)) for tier in of.tiers()]
    found = zip(of.tiers(), reads.queues.sub_lanes(asked, of), strict=True)
    names = [f"{tier}:{tenant}|{name}" for tier, names in found for name in names]
    from_there = [name for name in names if not begin or order_in_line(name) >= order_in_line(begin)]
    return from_there[:PAGE]


def _cursor(name: str, at: Cursor | None) -> str:
    tier, _, place = name.partition(":")
    return ",".join((tier, place.partition("|")[2], *(at or ("", ""))))


def _next_to_run(pool: str, reads: Reads, task: str, cursor: str, count: int) -> JobPage:
    """What would be leased next. The cursor is a number of jobs: this order changes with every lease."""
    if not POSITION_FORM.fullmatch(cursor):
        raise _no_cursor(cursor)
    position = int(cursor or 0)
    asked = min(MAX_NEXT, position + (STEPS if task else 1) * count)
    waiting, upcoming = reads.pending_count(), [job_id for _, _, job_id in reads.peek(asked)]
    jobs: list[JobView] = []
    for _ in range(STEPS):
        chunk = upcoming[position : position + count - len(jobs)]
        jobs += [job for job in _still(pool, reads, chunk, State.PENDING) if task in ("", job.record.task)]
        position += len(chunk)
    more = position < len(upcoming) or len(upcoming) == asked < MAX_NEXT
    return JobPage(
        pool=pool,
        state=State.PENDING.value,
        total=waiting,
        exact=not task,
        jobs=tuple(jobs),
        next_cursor=str(position) if more else None,
    )


def _still(pool: str, reads: Reads, ids: Sequence[str], state: State) -> tuple[JobView, ...]:
    """Those that are in the state when they are read."""
    return tuple(job for job in views(pool, reads, ids) if job.record.state is state)


def _parsed(cursor: str) -> tuple[str, str, Cursor | None]:
    """(tier, lane, place) of a cursor."""
    match = CURSOR_FORM.fullmatch(cursor or ",")
    if match is None:
        raise _no_cursor(cursor)
    tier, lane, score, job_id = match.groups()
    return tier or "", lane or "", (score, job_id) if job_id else None


def _no_cursor(cursor: str) -> InvalidOption:
    return InvalidOption(f"{cursor!r} is no cursor: give `next_cursor` of the page before, or none for the first page.")


def _span(first_ms: int, last_ms: int) -> timedelta | None:
    return timedelta(milliseconds=max(0, last_ms - first_ms)) if first_ms else None
