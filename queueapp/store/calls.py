"""What each transition is called with and what it answers: pure, shared by the sync and the async store.

A `Call` holds a script, its ARGV and the function that reads its reply. `Store` and `AsyncStore` only do the I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from queueapp.codec import digest
from queueapp.errors import REFUSALS, InvalidOption, SchemaMismatch, StoreError
from queueapp.policies.registry import DIRECT
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits
from queueapp.store.rates import pack_dispatch, pack_front
from queueapp.store.records import Completed, Enqueued, Finish, KeyUse, Matched, NewJob, Returned
from queueapp.store.rows import leased_job
from queueapp.store.scripts import Argument, Script, script
from queueapp.store.upgrades import mismatch

T = TypeVar("T")
Reply = list[Any]
Groups = Mapping[str, Sequence[Sequence[Argument]]]

MAX_JOBS_PER_CALL = 250
MAX_BYTES_PER_CALL = 1_000_000
MAX_IDS_PER_CALL = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One call of one script, ready to be sent any number of times."""

    script: Script
    argv: Sequence[Argument]
    read: Callable[[Reply], T]

    def result(self, reply: Reply) -> T:
        """The answer in our terms; raises the exception of a refusal code."""
        if reply[0] == 1:
            return self.read(reply[1:])
        code = reply[1].decode()
        detail = " ".join(part.decode() if isinstance(part, bytes) else str(part) for part in reply[2:])
        if code == SchemaMismatch.code:
            raise mismatch(detail, self.script.name)
        error = REFUSALS.get(code, StoreError)
        refusal = error(f"{error.__doc__} ({self.script.name}: {code} {detail})".rstrip())
        refusal.detail = reply[2:]
        raise refusal


def call(
    name: str,
    clock_ms: int,
    read: Callable[[Reply], T],
    groups: Groups | None = None,
    **arguments: Argument,
) -> Call[T]:
    """A call of the script `name`; arguments and groups by the names of its contract."""
    found = script(name)
    return Call(script=found, argv=found.argv(clock_ms, arguments, groups or {}), read=read)


def words(reply: Reply) -> list[Any]:
    """Replies of the form `{1, {word, …}}`."""
    return [word.decode() for word in reply[0]]


def ids(job_ids: Sequence[str]) -> Groups:
    """The group `jobs(id)`."""
    return {"jobs": [(job_id,) for job_id in job_ids]}


def batches(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """`jobs` in runs of at most 250 jobs and about 1 MB, so that no call holds the server for more than about 5 ms."""
    first = size = 0
    for position, job in enumerate(jobs):
        if position > first and (position - first >= MAX_JOBS_PER_CALL or size + len(job.payload) > MAX_BYTES_PER_CALL):
            yield jobs[first:position]
            first, size = position, 0
        size += len(job.payload)
    if first < len(jobs):
        yield jobs[first:]


def number(value: float) -> Argument:
    """Whole floats as integers, so that rows spell 1 and not 1.0."""
    return int(value) if abs(value) < 1e15 and value == int(value) else value


KEY_SET_LENGTH = 16


def packed_keys(keys: Sequence[KeyUse]) -> str:
    """The field `keys` of `enqueue`: the id of the key set, then a line a key; "" for a job without keys.

    Equal keys with equal limits make equal sets, so that such jobs share a sub-lane. The order is that of the digests.
    """
    if not keys:
        return ""
    ordered = sorted(keys, key=lambda key: key.digest)
    rows = [f"{key.digest} {key.limit} {key.pattern}" for key in ordered]
    lines = [f"{row} {key.text}" for row, key in zip(rows, ordered, strict=True)]
    return "\n".join([digest("\n".join(rows))[:KEY_SET_LENGTH], *lines])


def packed_front(job: NewJob) -> str:
    """The field `front` of `enqueue` (lua/include/front.lua); "" for a job that asks nothing of it."""
    lines = ["u" if job.unheard else "a"] if job.admitted else ["p"] if job.parks else []
    if job.debounce is not None:
        lines.append(f"d {job.debounce.digest} {job.debounce.period_ms} {job.debounce.most_ms}")
    if job.singleton is not None:
        keyed = any(key.digest == job.singleton.digest for key in job.keys)
        lines.append(f"s {job.singleton.digest} {job.singleton.mode} {'k' if keyed else '-'}")
    return "\n".join(lines)


def enqueue(jobs: Sequence[NewJob], clock_ms: int) -> Call[list[Enqueued]]:
    """One batch of `enqueue`."""
    rows = [
        (
            job.id,
            job.task,
            job.tenant,
            job.lane,
            job.priority,
            job.tier,
            number(job.cost),
            job.due_ms,
            job.delay_ms,
            job.expires_after_ms,
            job.max_attempts,
            job.max_crashes,
            job.idempotency,
            job.idempotency_ttl_ms,
            job.deadline_ms,
            packed_keys(job.keys),
            packed_front(job),
            job.fingerprint,
            job.payload,
        )
        for job in jobs
    ]

    def read(reply: Reply) -> list[Enqueued]:
        return [
            Enqueued(outcome=outcome.decode(), id=job_id.decode(), wait_ms=wait[0] if wait else 0)
            for outcome, job_id, *wait in reply
        ]

    return call("enqueue", clock_ms, read, {"jobs": rows})


def match(job: NewJob, worker: str, lease_ms: int, clock_ms: int) -> Call[Matched]:
    """One plain job that this worker has begun: what else an enqueue may ask for is not among the arguments."""
    row = (
        job.id,
        job.task,
        job.tenant,
        job.lane,
        job.priority,
        job.tier,
        number(job.cost),
        job.max_attempts,
        job.max_crashes,
        job.deadline_ms,
        packed_front(job),
        job.fingerprint,
        job.payload,
    )

    def read(reply: Reply) -> Matched:
        outcome, wait_ms, *leased = reply
        return Matched(
            answer=Enqueued(outcome=outcome.decode(), id=job.id, wait_ms=wait_ms),
            job=leased_job(leased[0], {leased[0][6]: job.task}) if leased else None,
        )

    return call("match", clock_ms, read, {"job": [row]}, worker=worker, lease_ms=lease_ms)


def finish_row(finish: Finish) -> Sequence[Argument]:
    """A row of the group `finished`."""
    if isinstance(finish, Completed):
        result = b"" if finish.result is None else finish.result
        return ("completed", finish.id, finish.attempts, finish.run_ms, number(finish.cost), -1, "", "", result)
    retry_ms = -1 if finish.retry_ms is None else finish.retry_ms
    return (
        "failed",
        finish.id,
        finish.attempts,
        finish.run_ms,
        number(finish.cost),
        retry_ms,
        finish.reason,
        finish.fingerprint,
        finish.error,
    )


def returned_row(job: Returned) -> Sequence[Argument]:
    """A row of the group `returned`."""
    return (job.id, job.attempts, job.delay_ms, int(job.unknown_task), job.grace_ms)


def configure(
    version: int,
    pool: PoolConf | None,
    scopes: Sequence[ScopeLimits],
    cursor: str,
    clock_ms: int,
    keys: Sequence[KeyLimits] = (),
) -> Call[str]:
    """One page of `configure`; answers the cursor of the next page, "0" when done.

    Raises InvalidOption for a policy that the scripts do not know in a pool without a leader to choose.
    """
    if pool is not None and pool.policy not in DIRECT and pool.dispatch != "scheduled":
        raise InvalidOption(
            f"The policy {pool.policy!r} needs scheduled dispatch; direct dispatch has {', '.join(sorted(DIRECT))}."
        )
    rows = [
        (
            scope.tenant,
            scope.lane,
            repr(number(scope.weight)),
            "" if scope.max_in_flight is None else scope.max_in_flight,
            scope.min_share or "",
            int(scope.paused),
            int(scope.clear),
            pack_front(scope.rate, scope.backlog_limit),
            pack_dispatch(scope.dispatch_rate),
        )
        for scope in scopes
    ]
    patterns = [
        (
            key.pattern,
            key.text,
            "" if key.max_in_flight is None else key.max_in_flight,
            int(key.clear),
            pack_front(key.rate),
            pack_dispatch(key.dispatch_rate),
        )
        for key in keys
    ]
    conf = pool or PoolConf()
    return call(
        "configure",
        clock_ms,
        lambda reply: str(reply[0].decode()),
        {"scopes": rows, "keys": patterns},
        version=version,
        policy=conf.policy if pool else "",
        paused=int(conf.paused),
        max="" if conf.max_in_flight is None else conf.max_in_flight,
        unit=conf.cost_unit,
        cost=repr(number(conf.default_cost)),
        weight=repr(number(conf.default_weight)),
        by=conf.by,
        step=conf.step_ms,
        cursor=cursor,
        mode=conf.dispatch,
        window=conf.window,
        room="" if conf.backlog_limit is None else conf.backlog_limit,
        draw=conf.continue_weight,
    )
