"""Why a job does not run: one true sentence, its parts, and an estimate of when. Every skin asks `explain`.

One script gathers the facts of one moment (`Store.explain`); `reasons` puts them into words and order, `estimates` says
when. Changes nothing. At most four round trips, however large the pool: the names of pools when this process does not
know the job's, the facts, and, when nobody serves the pool, which others there are and who serves them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from queueapp.conf import settings
from queueapp.errors import StoreUnavailable
from queueapp.inspection.estimates import Estimate, estimate_of
from queueapp.inspection.overview import LIVE_MS
from queueapp.inspection.reason import Kind, Reader, Reason, moment_of
from queueapp.inspection.reasons import reasons_of, sentence_of
from queueapp.inspection.wording import ahead_words
from queueapp.moments import now_ms
from queueapp.producer import outbox
from queueapp.producer.results import DEFERRED
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.keys import split_public_id
from queueapp.store.wait_facts import WaitFacts

if TYPE_CHECKING:
    from queueapp.models import OutboxEntry

HOLDERS = 8
"""So many jobs that hold a place are named."""
WALKED = 50
"""So far the walk is followed."""
LOOKS = 500
"""So many commands are spent on counting who stands before it where the walk does not come to it and the policy has an
order. Either takes at most about 3 ms of the server's time."""
OTHER_POOLS = 200
UNREADABLE = "unreadable"
GONE = "gone"
STATES = (*(state.value for state in State), DEFERRED, UNREADABLE, GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer about one job, at one moment."""

    id: str
    state: str
    """Its state, or `deferred` (the outbox has it), `unreadable`, `gone`."""
    outcome: str | None = None
    """How it ended, when it has."""
    pool: str = ""
    tenant: str = ""
    task: str = ""
    sentence: str
    reasons: tuple[Reason, ...]
    """The most important first: the one whose end would let the job go on."""
    until: datetime | None
    """The moment until which the first reason holds, where it has one."""
    estimate: Estimate | None
    as_of: datetime
    """The moment of the facts, on the server's clock."""


def explain(public_id: str, *, tenants: Container[str] | None = None, contents: bool = False) -> Why:
    """Why the job of this id does not run, or what became of it.

    `tenants`: for whom the reader may speak; None: who runs the pools. Whether they may see this very job is for the
    caller to decide, by `Why.tenant` and `Why.task`. `contents`: may see what arguments say. Raises what the store
    raises, unless the outbox has the job: then that the store is away is the answer.
    """
    try:
        found = _in_store(public_id, tenants, contents)
    except StoreUnavailable:
        if (kept := not_sent(public_id, tenants=tenants)) is None:
            raise
        return kept
    return (not_sent(public_id, tenants=tenants) or found) if found.state == GONE else found


def not_sent(public_id: str, *, tenants: Container[str] | None = None) -> Why | None:
    """The answer about a job that the outbox keeps, without asking the store; None when it keeps none of this id."""
    if split_public_id(public_id) is None:
        return None
    for alias in outbox.served():
        entry = outbox.rows(alias).filter(job_id=public_id).defer("payload").first()
        if entry is not None:
            return _kept(entry, tenants)
    return None


def _in_store(public_id: str, tenants: Container[str] | None, contents: bool) -> Why:
    place = shards.locate(public_id)
    if place is None:
        return _why(public_id, WaitFacts(now_ms=now_ms(), record=None), Reader(pool="", public_id=str))
    pool, job_id = place
    reads = shards.reads(pool)
    live_ms = max(LIVE_MS, 2 * settings.lease_ms)
    facts = reads.explain(job_id, live_ms=live_ms, most=HOLDERS, walked=WALKED, looks=LOOKS)
    waits = facts.record is not None and facts.record.state.waits
    elsewhere: list[str] = []
    if waits and not facts.workers and tenants is None:
        others = sorted(shards.pools().keys() - {pool})[:OTHER_POOLS]
        live = reads.live_workers([shards.keys(other) for other in others], facts.now_ms - live_ms)
        elsewhere = [other for other, number in zip(others, live, strict=True) if number]
    reader = Reader(
        pool=pool,
        public_id=shards.keys(pool).public_id,
        tenants=tenants,
        contents=contents,
        elsewhere=elsewhere,
        grace_ms=settings.unknown_task_grace_ms,
    )
    return _why(public_id, facts, reader)


def _why(public_id: str, facts: WaitFacts, reader: Reader) -> Why:
    reasons, record = reasons_of(facts, reader), facts.record
    state = record.state.value if record is not None else UNREADABLE if facts.broken else GONE
    return Why(
        id=public_id,
        state=state,
        outcome=record.outcome.value if record is not None and record.outcome is not None else None,
        pool=reader.pool,
        tenant=record.tenant if record is not None else "",
        task=record.task if record is not None else "",
        sentence=sentence_of(reasons),
        reasons=reasons,
        until=reasons[0].until,
        estimate=estimate_of(facts, reasons, reader),
        as_of=moment_of(facts.now_ms) or datetime.now(UTC),
    )


def _kept(entry: OutboxEntry, tenants: Container[str] | None) -> Why:
    """The answer about a job that the store has not taken. What went wrong may name hosts: not for tenants."""
    due = timezone.make_aware(entry.due) if timezone.is_naive(entry.due) else entry.due
    at_ms, due_ms = now_ms(), round(due.timestamp() * 1000)
    said = f" ({entry.error.rstrip('.')})" if entry.error and tenants is None else ""
    until = None
    estimate: Estimate | None = Estimate(of="start", basis="nobody can say when the store takes it")
    if entry.state == entry.State.REFUSED:
        text = f"the store refused it for good{said}: it stays in the outbox until somebody removes it"
        reason = Reason(kind=Kind.REFUSED, text=text, blocks=True)
        estimate = None
    else:
        until = moment_of(due_ms)
        tried = f"the store did not take it{said}" if entry.tries or entry.error else "the store has not taken it yet"
        when = ahead_words(due_ms, at_ms) if due_ms > at_ms else "by the next pass of a scheduler"
        text = f"{tried}: the outbox keeps it, and it is sent again {when}"
        reason = Reason(kind=Kind.DEFERRED, text=text, blocks=True, until=until)
    return Why(
        id=entry.job_id,
        state=DEFERRED,
        pool=entry.pool,
        tenant=entry.tenant,
        task=entry.task,
        sentence=sentence_of([reason]),
        reasons=(reason,),
        until=until,
        estimate=estimate,
        as_of=datetime.fromtimestamp(at_ms / 1000, tz=UTC),
    )


# -- for machines ------------------------------------------------------------------------------------------------------


def as_mapping(why: Why) -> Mapping[str, Any]:
    """All of the answer as JSON's own types and moments: what `--json` and REST say."""
    facts = asdict(why)
    for reason in facts["reasons"]:
        reason["kind"] = str(reason["kind"])
        reason["held_by"] = list(reason["held_by"])
    facts["reasons"] = list(facts["reasons"])
    return facts
