"""What `explain` (lua/explain.lua) tells of one job at one moment, as typed records. Pure: no I/O, no Redis.

Made by `Store.explain`; `inspection.reasons` turns it into sentences. All of it is of the same moment: one script
gathered it. Moments are ms since the epoch on the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from queueapp.states import State
from queueapp.store.configuration import Rate
from queueapp.store.rates import unpack_dispatch, unpack_front
from queueapp.store.rows import job_record, parse_row
from queueapp.store.views import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A job that runs and holds a slot."""

    id: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeFacts:
    """A pool, a tenant or a lane, as a pick sees it."""

    paused: bool = False
    limit: int | None = None
    """Most jobs at once; None = no ceiling, or one whose slots are still being counted."""
    used: int = 0
    """Slots taken; counted only where there is a ceiling."""
    holders: tuple[Holder, ...] = ()
    """Who holds them, longest held first: a bounded share. Only of a tenant or lane that is full."""

    @property
    def full(self) -> bool:
        return self.limit is not None and self.used >= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """A concurrency key of the job."""

    digest: str
    text: str
    """The key as its pattern and the arguments made it: contents, for those who may see them."""
    limit: int | None
    """In force; None = none."""
    used: int
    holders: tuple[Holder, ...] = ()

    @property
    def full(self) -> bool:
        return self.limit is not None and self.used >= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RateFacts:
    """A rate at which jobs come in."""

    scope: str
    """`tenant`, `lane`, or the digest of a concurrency key."""
    rate: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """A dispatch rate that lets no job start now."""

    scope: str
    """As in `RateFacts`."""
    rate: Rate
    until_ms: int
    """From then on it lets one start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFacts:
    """One job and all that decides when it runs. What does not concern its state is left at its default."""

    now_ms: int
    record: JobRecord | None
    """Without contents: no payload, no result, the last error only. None: the store knows no such job, or `broken`."""
    broken: bool = False
    """There is something under this id that Ductor did not write, or that was set aside for it."""
    policy: str = "tiered"
    ordered: bool = False
    """The policy orders all pending jobs of the pool; else lanes and tenants take turns."""
    scheduled: bool = False
    """A leader chooses: scheduled dispatch."""
    led: bool = False
    """And somebody leads."""
    ingress: int = 0
    """How many jobs wait for the leader's next look, those that were cancelled meanwhile included."""
    chosen: int = 0
    """How many jobs it has chosen that are not done."""
    most_chosen: int | None = None
    """How many these may be, as a leader last said; None: none did yet."""
    ready_place: int | None = None
    """How many chosen jobs workers take before it; None: it is not chosen."""
    pool: ScopeFacts = ScopeFacts()
    tenant: ScopeFacts = ScopeFacts()
    lane: ScopeFacts = ScopeFacts()
    keys: tuple[KeyFacts, ...] = ()
    rates: tuple[RateFacts, ...] = ()
    """Of a parked job: those that it had to conform to and that are still there."""
    throttled: tuple[TokenFacts, ...] = ()
    """The dispatch rates of a pending job that let it not start now."""
    continues: bool = False
    """It stands among the work of its lane that has begun (tier `continue`)."""
    aside: bool = False
    """It stands aside with the jobs of its lane that have the same keys, until one of these is offered to them."""
    place: int | None = None
    """How many jobs of its lane and tier stand before it; when it stands aside, of those beside it. None: it stands in
    no queue."""
    place_exact: bool = True
    """False: there are at least so many."""
    old_policy: str = ""
    """It still stands in the order of this policy, which the pool had before, and so does `place`."""
    moved: int = 0
    moving: int = 0
    """How many jobs have left that order, of how many."""
    others: int = 0
    """How many jobs of its lane stand in the other tier."""
    turn: int | None = None
    """How many tenants have their turn before its own; None: it takes none now."""
    turns: int = 0
    """How many tenants have something that may run."""
    lane_turn: int | None = None
    lane_turns: int = 0
    """The same for the lanes of its tenant."""
    ahead: int | None = None
    """How many pending jobs of the pool start before it; at least so many unless `ahead_exact`. None: not known."""
    ahead_exact: bool = True
    suspect: bool = False
    """It twice crashed its worker, and is leased alone."""
    passed_ms: int = 0
    """Since when a suspect has been passed over; 0 = it was not yet."""
    head_suspect: str = ""
    """A suspect that stands before it and must run alone first."""
    workers: int = 0
    """Live workers of the pool."""
    slots: int = 0
    """How many jobs these can run at once, as far as they said."""
    held: int = 0
    """How many jobs they have leased."""
    begun: bool = True
    """False: leased ahead, its body has not begun as far as the store knows."""
    lease_until_ms: int = 0
    heartbeat_ms: int = 0
    """When the worker that has the job last called; 0 = it is not known any more."""
    expires_ms: int = 0
    unknown_since_ms: int = 0
    """Since when workers have given it back because they do not know its task; 0 = they did not."""
    usual_ms: int | None = None
    """How long its task usually runs here, as learnt; None = nothing was learnt yet."""
    window_ms: int = 0
    """How far back `started` looks: this minute and the one before; 0 = too short a time to say anything."""
    started: int = 0
    """How many jobs of the pool started in that time."""
    tenant_started: int = 0
    """How many of them of the job's tenant."""
    pending: int = 0
    """Pending jobs of the pool."""
    children_open: int = 0
    """How many children a job that waits for them has that have not ended."""
    children_ended: int = 0
    children: tuple[str, ...] = ()
    """Some of those that have not, as it names them."""
    children_more: bool = False
    """More of them are on their way: its caller has not sent the whole tree."""


def wait_facts(job_id: str, reply: Sequence[Any]) -> WaitFacts:
    """The facts behind a reply: names and values in turn. A row that is none of ours makes the facts `broken`."""
    said = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    now_ms = int(said["now"])
    if "run" not in said:
        return WaitFacts(now_ms=now_ms, record=None, broken="broken" in said)
    try:
        return _facts(now_ms, *_record(job_id, said), said)
    except (ValueError, KeyError):  # no row, or no hash, of this release
        return WaitFacts(now_ms=now_ms, record=None, broken=True)


def _facts(now_ms: int, record: JobRecord, expires_ms: int, said: Mapping[str, Any]) -> WaitFacts:
    if said.get("scheduled") == MIRRORED:
        # The store's walk is not the policy's: whose turn comes when only the leader knows.
        said = {name: value for name, value in said.items() if name not in TURNS}
    return WaitFacts(
        now_ms=now_ms,
        record=record,
        policy=said["policy"].decode(),
        scheduled="scheduled" in said,
        led="led" in said,
        ingress=int(said.get("ingress", 0)),
        chosen=int(said.get("chosen", 0)),
        most_chosen=_maybe(said, "most_chosen"),
        ready_place=_maybe(said, "ready_place"),
        ordered=bool(said["ordered"]),
        pool=_scope(said, "pool", record.tenant),
        tenant=_scope(said, "tenant", record.tenant),
        lane=_scope(said, "lane", record.tenant),
        keys=tuple(_key(entry) for entry in said.get("keys", ())),
        rates=tuple(
            RateFacts(scope=scope.decode(), rate=rate)
            for scope, packed in said.get("rates", ())
            if (rate := unpack_front(packed)[0]) is not None
        ),
        throttled=tuple(
            TokenFacts(scope=scope.decode(), rate=rate, until_ms=int(moment))
            for scope, packed, moment in said.get("tokens", ())
            if (rate := unpack_dispatch(packed.decode())) is not None
        ),
        continues=bool(said.get("continues", 0)),
        aside="parked" in said,
        place=_maybe(said, "place"),
        place_exact="place_at_least" not in said,
        old_policy=said.get("old_policy", b"").decode(),
        moved=int(said.get("moved", 0)),
        moving=int(said.get("moving", 0)),
        others=int(said.get("others", 0)),
        turn=_maybe(said, "turn"),
        turns=int(said.get("turns", 0)),
        lane_turn=_maybe(said, "lane_turn"),
        lane_turns=int(said.get("lane_turns", 0)),
        ahead=_maybe(said, "ahead"),
        ahead_exact=bool(said.get("ahead_exact", 1)),
        suspect=record.state is State.PENDING and record.crashes >= SUSPECT,
        passed_ms=int(said.get("passed", 0)),
        head_suspect=said.get("head_suspect", b"").decode(),
        workers=int(said.get("workers", 0)),
        slots=int(said.get("slots", 0)),
        held=int(said.get("held", 0)),
        begun=bool(int(said.get("begun", 1))),
        lease_until_ms=int(float(said.get("lease_until", 0))),
        heartbeat_ms=int(float(said.get("heartbeat", 0))),
        expires_ms=expires_ms,
        unknown_since_ms=int(said.get("unknown_since", 0)),
        usual_ms=_maybe(said, "usual"),
        window_ms=int(said.get("window", 0)),
        started=int(said.get("started", 0)),
        tenant_started=int(said.get("tenant_started", 0)),
        pending=int(said.get("pending", 0)),
        children_open=int(said.get("children_open", 0)),
        children_ended=int(said.get("children_ended", 0)),
        children=tuple(sorted(child.decode() for child in said.get("children", ()))),
        children_more="children_more" in said,
    )


MIRRORED = 2
TURNS = frozenset({"turn", "turns", "lane_turn", "lane_turns", "ahead", "ahead_exact"})
SUSPECT = 2
"""Crashes that make a job one that is leased alone, as include/pick.lua has it."""


def _record(job_id: str, said: Mapping[str, Any]) -> tuple[JobRecord, int]:
    """The job, and when it expires. ValueError or KeyError for what is none of ours."""
    text, run, error = said.get("row"), said.get("run", []), said.get("error")
    record = job_record(
        job_id,
        text,
        dict(zip(run[::2], run[1::2], strict=True)),
        result=None,
        errors=[error] if error is not None else [],
        data={},
        due_ms=int(float(said.get("due", 0))),
        task_names={said["number"]: said["task"].decode(errors="replace")} if "task" in said else {},
    )
    if record is None:
        raise ValueError("neither row nor hash")
    return replace(record, payload=None), parse_row(text).expires_ms if text else 0


def _scope(said: Mapping[str, Any], name: str, tenant: str) -> ScopeFacts:
    if name not in said:
        return ScopeFacts()
    paused, limit, used, holders = said[name]
    return ScopeFacts(
        paused=bool(paused),
        limit=int(limit) if limit != b"" else None,
        used=int(used),
        holders=tuple(Holder(id=each.decode(), tenant=tenant) for each in holders),
    )


def _key(entry: Sequence[Any]) -> KeyFacts:
    digest, text, limit, used, holders = entry
    return KeyFacts(
        digest=digest.decode(),
        text=text.decode(errors="replace"),
        limit=int(limit) if limit != b"" else None,
        used=int(used),
        holders=tuple(
            Holder(id=job_id.decode(), tenant=tenant.decode())
            for job_id, tenant in zip(holders[::2], holders[1::2], strict=True)
        ),
    )


def _maybe(said: Mapping[str, Any], name: str) -> int | None:
    return int(said[name]) if name in said else None
