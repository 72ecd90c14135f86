"""When a job will start or end, as far as that can be said. Pure; called by `explain` with the facts of one moment.

Nothing is made up: an estimate says what it rests on, and where nobody can know it says that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from queueapp.inspection.reason import Kind, Reader, Reason, moment_of
from queueapp.inspection.wording import counted, lasting, moment_words
from queueapp.states import State
from queueapp.store.views import JobRecord
from queueapp.store.wait_facts import WaitFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When it will start or end, as far as that can be said honestly. Both moments None: it cannot."""

    of: Literal["start", "end"]
    earliest: datetime | None = None
    latest: datetime | None = None
    """None beside an `earliest`: nobody can say how late at most."""
    basis: str
    """What it rests on, or why there is none."""


def in_words(estimate: Estimate) -> str:
    """For people: `Starts about 2026-11-29 18:54:12 UTC: 3 jobs before it, and …`."""
    verb, earliest, latest = f"{estimate.of.capitalize()}s", estimate.earliest, estimate.latest
    if earliest is None:
        return f"When it {estimate.of}s is unknown: {estimate.basis}"
    if latest is None:
        when = f"not before {_words(earliest)}"
    elif latest == earliest:
        when = f"about {_words(earliest)}"
    else:
        when = f"between {_words(earliest)} and {_words(latest)}"
    return f"{verb} {when}: {estimate.basis}"


def _words(at: datetime) -> str:
    return moment_words(round(at.timestamp() * 1000))


def estimate_of(facts: WaitFacts, reasons: Sequence[Reason], reader: Reader) -> Estimate | None:
    """When it starts, or ends; None for what runs no more. Nothing is made up: `basis` says what it rests on."""
    record = facts.record
    if record is None:
        return None
    if record.state is State.ACTIVE:
        return _end(facts, record)
    if record.state in (State.SCHEDULED, State.BACKLOG):
        kinds = {reason.kind for reason in reasons if reason.blocks}
        basis = "its due time; what stands in line then comes before it"
        if Kind.UNKNOWN_TASK in kinds:
            basis = "its next try; it runs only when a worker knows its task by then"
        elif kinds - {Kind.DUE, Kind.BACKOFF, Kind.PARKED}:
            basis = "its due time, if by then what else holds it is gone"
        return Estimate(of="start", earliest=moment_of(max(record.due_ms, facts.now_ms)), basis=basis)
    if record.state is State.INGRESS and reasons[0].kind is Kind.INGRESS:
        return Estimate(of="start", basis="nobody can say where it will stand before it is ranked")
    if record.state is State.READY and reasons[0].kind is Kind.READY:
        return Estimate(
            of="start", earliest=moment_of(facts.now_ms), basis="it is chosen, and starts when a worker has room"
        )
    return _start(facts, reasons, reader) if record.state.in_line else None


UNKNOWN: dict[Kind, str] = {
    **dict.fromkeys((Kind.POOL_PAUSED, Kind.TENANT_PAUSED, Kind.LANE_PAUSED), "nobody can say when the pause ends"),
    Kind.NO_LEADER: "nobody can say when a scheduler leads",
    Kind.NO_WORKER: "nobody can say when a worker starts",
    **dict.fromkeys(
        (Kind.TENANT_FULL, Kind.LANE_FULL, Kind.KEY_FULL), "it depends on when the jobs that hold its place end"
    ),
    **dict.fromkeys((Kind.SUSPECT, Kind.BEHIND_SUSPECT), "it depends on when a worker holds nothing else"),
}
"""What lets nobody say when a job starts."""


def _start(facts: WaitFacts, reasons: Sequence[Reason], reader: Reader) -> Estimate:
    held = [reason.kind for reason in reasons if reason.blocks and reason.kind in UNKNOWN]
    if held == [Kind.TENANT_FULL] and _alone(facts):
        return _by_tenant(facts, reader)
    if held:
        return Estimate(of="start", basis=UNKNOWN[held[0]])
    if facts.pool.limit == 0:
        return Estimate(of="start", basis="nobody can say when the pool's ceiling is raised")
    if reasons[0].kind is Kind.NEXT:
        return Estimate(of="start", earliest=moment_of(facts.now_ms), basis="it is next, as soon as a worker has room")
    if (facts.ahead is None or not facts.ahead_exact) and _alone(facts):
        return _by_tenant(facts, reader)
    if facts.ahead is None:
        return Estimate(of="start", basis="nobody can say how many jobs start before it")
    if facts.started <= 0:
        basis = "the pool's pace is not known yet"
        if facts.window_ms:
            basis = f"no job of the pool started in the last {lasting(facts.window_ms)}"
        return Estimate(of="start", basis=basis)
    earliest = _after(facts, facts.ahead + 1, facts.started)
    latest = earliest if facts.ahead_exact else _after(facts, max(facts.pending, facts.ahead + 1), facts.started)
    before = counted(facts.ahead, "job")
    if not facts.ahead_exact:
        before = f"{facts.ahead:,} to {max(facts.ahead, facts.pending - 1):,} jobs"
    return Estimate(
        of="start",
        earliest=earliest,
        latest=latest,
        basis=_basis(facts, f"{before} before it", facts.started, "pool", reader),
    )


def _alone(facts: WaitFacts) -> bool:
    """Whether its lane is the only one of its tenant with work, so that its place there is its place in the tenant."""
    alone = facts.lane_turns == 1 and not facts.others
    return alone and facts.place is not None and facts.place_exact and facts.tenant_started > 0


def _by_tenant(facts: WaitFacts, reader: Reader) -> Estimate:
    """By the pace of its own tenant: whose turn comes when is in it already."""
    assert facts.place is not None
    at = _after(facts, facts.place + 1, facts.tenant_started)
    before = f"{counted(facts.place, 'job')} of its tenant before it"
    basis = _basis(facts, before, facts.tenant_started, "tenant", reader)
    return Estimate(of="start", earliest=at, latest=at, basis=basis)


def _basis(facts: WaitFacts, before: str, started: int, whose: str, reader: Reader) -> str:
    if whose == "pool" and not reader.whole:
        return "its place in line and the pace of the pool in the last minutes"
    return (
        f"{before}, and {counted(started, 'job')} of the {whose} started in the last {lasting(facts.window_ms)}; "
        "it holds as long as that goes on and nothing comes before it"
    )


def _after(facts: WaitFacts, number: int, started: int) -> datetime | None:
    """When so many further jobs will have started at the pace of the last minutes."""
    return moment_of(facts.now_ms + round(number * facts.window_ms / started))


def _end(facts: WaitFacts, record: JobRecord) -> Estimate:
    if facts.lease_until_ms <= facts.now_ms:
        return Estimate(of="end", basis="it runs again when somebody has put it back into line")
    if facts.usual_ms is None:
        return Estimate(of="end", basis="how long its task runs was not learnt in this pool")
    usual = f"jobs of its task run for {lasting(facts.usual_ms)} here, as learnt from those before it"
    if record.leased_ms + facts.usual_ms <= facts.now_ms:
        return Estimate(of="end", basis=f"it has run for longer than usual ({usual})")
    if not facts.begun:
        earliest = moment_of(facts.now_ms + facts.usual_ms)
        return Estimate(of="end", earliest=earliest, basis=f"{usual}, and it has not begun")
    end = moment_of(record.leased_ms + facts.usual_ms)
    return Estimate(of="end", earliest=end, latest=end, basis=usual)
