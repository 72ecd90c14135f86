"""Why a job does not run: the facts of one moment as typed reasons, the first of which is the one that holds it.

Pure: `explain` asks the store and calls `reasons_of`, then `estimates.estimate_of`. The order is that in which removing
them helps: pauses, then workers, then ceilings, pool before tenant before lane before keys, then its turn. `blocks`
says that a reason alone keeps the job from starting.

A tenant is told nothing of the pool as a whole: no sizes, no workers, nobody else's jobs, nor how many of them hold a
concurrency key that it shares. What an exception said, and the text of such a key, are contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queueapp.inspection import waiting_reasons
from queueapp.inspection.reason import Kind, Reader, Reason, moment_of
from queueapp.inspection.wording import ago_words, ahead_words, lasting, ordinal
from queueapp.states import Outcome, State
from queueapp.store.views import JobRecord
from queueapp.store.wait_facts import WaitFacts


def reasons_of(facts: WaitFacts, reader: Reader) -> tuple[Reason, ...]:
    """The reasons, most important first; never empty."""
    record = facts.record
    if facts.broken:
        text = (
            "what stands under this id is no job that this release can read: another program or another release wrote "
            "it, or it was set aside for that"
        )
        return (Reason(kind=Kind.UNREADABLE, text=text, blocks=True),)
    if record is None:
        text = (
            "the store knows no job of this id: it ended and retention removed it, the transaction that enqueued it "
            "has not committed, or the id is wrong"
        )
        return (Reason(kind=Kind.GONE, text=text),)
    match record.state:
        case State.PENDING:
            found = waiting_reasons.pending(facts, record, reader)
        case State.INGRESS:
            found = waiting_reasons.ingress(facts, record, reader)
        case State.READY:
            found = waiting_reasons.ready(facts, record, reader)
        case State.SCHEDULED:
            found = waiting_reasons.scheduled(facts, record, reader)
        case State.BACKLOG:
            found = waiting_reasons.parked(facts, record, reader)
        case State.ACTIVE:
            found = _active(facts, record, reader)
        case State.WAITING:
            found = iter((_waiting(facts, record, reader),))
        case State.MOVING:
            text = (
                "it is on its way to another pool; whoever moves it, or a scheduler, brings it there, and "
                "`manage.py ductor move --from POOL --back` takes back what cannot be brought"
            )
            found = iter((Reason(kind=Kind.MOVING, text=text, blocks=True),))
        case State.DEAD:
            found = iter((_dead(facts, record),))
        case State.ENDED:
            found = iter((_ended(facts, record),))
    return tuple(found)


def sentence_of(reasons: Sequence[Reason]) -> str:
    """The first reason as a sentence; what else blocks stands behind it, because it alone would not help."""
    first, *rest = reasons
    text = first.text
    if more := [reason.text for reason in rest if reason.blocks]:
        text += "; besides, " + "; ".join(more)
    return f"{text[:1].upper()}{text[1:]}."


def _active(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    worker, called = f"the worker {record.worker}" if reader.whole else "a worker", ""
    if reader.whole and facts.heartbeat_ms:
        called = f", which last called {lasting(facts.now_ms - facts.heartbeat_ms)} ago"
    until = moment_of(facts.lease_until_ms)
    if facts.lease_until_ms <= facts.now_ms:
        text = (
            f"its lease ended {ago_words(facts.lease_until_ms, facts.now_ms)} without a sign of {worker}: "
            f"the next call of a scheduler or a worker {'ends it' if record.cancelling else 'puts it back into line'}"
        )
        yield Reason(kind=Kind.LEASE_OVER, text=text, since=until)
        return
    lasts = f"its lease ends {ahead_words(facts.lease_until_ms, facts.now_ms)} unless it is renewed"
    if facts.begun:
        kind = Kind.RUNNING
        text = f"it has been running for {lasting(facts.now_ms - record.leased_ms)} on {worker}{called}"
    else:
        kind, since = Kind.TAKEN, ago_words(record.leased_ms, facts.now_ms)
        text = f"it was taken ahead {since} and has not begun, by {worker}{called}"
    if record.cancelling:
        told = (
            f"it was told to stop {ago_words(record.cancelling_ms, facts.now_ms)}, and ends as cancelled when its body "
            "is through or its lease ends"
        )
        yield Reason(kind=Kind.STOPPING, text=told, since=moment_of(record.cancelling_ms), until=until)
    yield Reason(kind=kind, text=f"{text}; {lasts}", since=moment_of(record.leased_ms), until=until)


def _waiting(facts: WaitFacts, record: JobRecord, reader: Reader) -> Reason:
    every = facts.children_open + facts.children_ended
    text = f"it waits for {facts.children_open:,} of its {every:,} children to end"
    # A child may be another tenant's.
    named = (
        tuple(child if "." in child else reader.public_id(child) for child in facts.children) if reader.whole else ()
    )
    if named:
        text += f": {', '.join(named)}" + (" and others" if facts.children_open > len(named) else "")
    if facts.children_more:
        text += (
            f"{', and' if facts.children_open else ''} more of them are on their way; should whoever sends them not "
            "come back, it fails"
        )
    return Reason(kind=Kind.CHILDREN, text=text, blocks=True, held_by=named)


def _dead(facts: WaitFacts, record: JobRecord) -> Reason:
    error = record.errors[-1] if record.errors else None
    match record.reason:
        case "worker_lost":
            why = f"its worker was lost while it ran, the {ordinal(max(1, record.crashes))} time"
        case "unknown_task":
            why = f"no worker knew its task {record.task} for as long as the settings allow, until"
        case "child_failed":
            how = error.detail if error is not None and error.kind == "child" else {}
            why = f"its child {how.get('child', record.failed_child)} failed ({how.get('outcome', 'unknown')})"
        case "incomplete":
            why = "whoever enqueued it did not come back with all of its children"
        case _ if error is not None and error.kind == "error" and error.at_ms == record.ended_ms:
            name = str(error.detail.get("class") or "an error")
            of = f" of {record.max_attempts:,}" if record.max_attempts else ""
            why = f"its {ordinal(max(1, record.error_count))} attempt{of} failed with {name}"
            if record.reason != "error":
                why += f" ({record.reason})"
        case reason:
            why = f"it was set aside ({reason})"
    text = f"it is a dead letter, because {why} {ago_words(record.ended_ms, facts.now_ms)}"
    return Reason(
        kind=Kind.DEAD, text=f"{text}; it stays one until it is retried or discarded", since=moment_of(record.ended_ms)
    )


def _ended(facts: WaitFacts, record: JobRecord) -> Reason:
    what = {
        Outcome.COMPLETED: "it completed",
        Outcome.CANCELLED: "it was cancelled",
        Outcome.EXPIRED: "its `expires_after` passed before it started, and it was dropped",
        Outcome.DISCARDED: "it was a dead letter and was discarded",
        Outcome.REPLACED: "a newer job of the same singleton took its place",
        Outcome.MOVED: "it was moved to another pool, where it goes on,",
    }[record.outcome or Outcome.COMPLETED]
    text = f"{what} {ago_words(record.ended_ms, facts.now_ms)}"
    if record.outcome is Outcome.COMPLETED and record.leased_ms:
        text += f", after running for {lasting(record.ended_ms - record.leased_ms)}"
    return Reason(kind=Kind.ENDED, text=text, since=moment_of(record.ended_ms))
