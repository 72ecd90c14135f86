"""What each tenant had of a pool, as the store counted it, and where it stands in line now: the figures behind the
fairness certificate. Changes nothing and takes no lock; called by `inspection.fairness`.

At most nine round trips; what is compared with each other is read in an order that lets no lease between them look like
a fault (`_stand`). Of each minute at most `FIELDS_READ` / minutes tenants are read: where more were served, or
wait, those with most waiting jobs are, and a share of the others that moves on with the clock, so that a few readings
come to everybody. What was served to those that are left out is known from the totals of the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from queueapp.store.configuration import Rate
from queueapp.store.configured import default_weight, unpack_limits
from queueapp.store.connection import translate_errors
from queueapp.store.keys import ShardKeys
from queueapp.store.reads import HEADER_BYTES
from queueapp.store.rows import child_of, has_ties, parse_row
from queueapp.store.served import Minute, Part
from queueapp.store.waits import NONE

MINUTE_MS = 60_000
WINDOW_MAX_S = 3_600
"""The store keeps two hours."""
FIELDS_READ = 30_000
"""Of all minutes together."""
TENANTS_READ = 1_000
"""Of those with waiting jobs: half are the ones with most, half others in turn."""
WAITS_READ = 500
"""Of how many tenants the first job is looked at: those in line that had least for their weight."""
SHARE_S = 10
"""How long a reading keeps to its share of a large pool."""


@dataclass(slots=True, kw_only=True)
class TenantService:
    """One tenant. Filled in while reading."""

    tenant: str
    parts: dict[int, Part] = field(default_factory=dict)
    """By the minute's position in the window."""
    waiting: int = 0
    """Jobs that wait, also for their time."""
    parked: bool = False
    """Some of them came above a rate, and their moment has not come."""
    weight: float = 1.0
    ceiling: int | None = None
    min_share: int = 0
    dispatch_rate: Rate | None = None
    """At which its jobs may start."""
    token_ms: float | None = None
    """When this lets its next job start; None = it holds nothing back."""
    paused: bool = False
    active: int | None = None
    """Its leased jobs, where a ceiling or a guaranteed minimum counts them."""
    pointer: float | None = None
    """Its score in the walk; None = none of its jobs may run now."""
    turn: int | None = None
    """How many stand before it in the walk; read under `ring` only."""
    moved_on: bool = False
    """It is in the walk, and had its turn while it was read, so that its score is not known."""
    since_ms: int | None = None
    """Since when the first job in line could have been leased, as far as it goes; None = not looked at."""
    passed_over: bool = False
    """This job twice crashed its worker: workers that hold others pass it over."""

    @property
    def in_line(self) -> bool:
        """Some job of it may run now."""
        return self.pointer is not None or self.moved_on

    @property
    def had(self) -> Part:
        """All of the window together."""
        parts = self.parts.values()
        return Part(
            units=sum(part.units for part in parts),
            jobs=sum(part.jobs for part in parts),
            largest=max((part.largest for part in parts), default=0.0),
            corrections=sum(part.corrections for part in parts),
            minimum_jobs=sum(part.minimum_jobs for part in parts),
            minimum_largest=max((part.minimum_largest for part in parts), default=0.0),
            entered_ms=max((part.entered_ms for part in parts), default=0),
            waits=sum((part.waits for part in parts), NONE),
        )

    @property
    def minutes(self) -> set[int]:
        """Positions of the minutes in which it had service."""
        return {position for position, part in self.parts.items() if part.jobs > 0 or part.units > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A pool's service in a window of whole minutes, the last of which still runs."""

    now_ms: int
    start_ms: int
    policy: str
    unit: str
    default_cost: float
    paused: bool
    clock: float
    """V of the root; 0 where the policy has none."""
    clock_moved_ms: int
    """When it last moved; kept under `wfq` only, else 0."""
    in_line: int
    """Tenants in the walk."""
    waiting_tenants: int
    """Tenants with waiting jobs, read or not."""
    minutes: Sequence[Minute]
    tenants: Mapping[str, TenantService]
    whole: bool
    """Nobody is left out who was served in the window or has waiting jobs."""


@dataclass(slots=True)
class _Reader:
    """One reading. `send` takes commands on a pipeline and answers their replies: one round trip."""

    client: redis.Redis
    keys: ShardKeys
    found: dict[str, TenantService] = field(default_factory=dict)
    generation: int = 0

    def in_line(self, name: str) -> str:
        return self.keys.in_line(name, self.generation)

    def send(self, queue: Callable[[Any], object]) -> list[Any]:
        pipeline = self.client.pipeline(transaction=False)
        queue(pipeline)
        replies: list[Any] = pipeline.execute() if len(pipeline) else []
        return replies

    def of(self, tenant: str) -> TenantService:
        return self.found.setdefault(tenant, TenantService(tenant=tenant))

    def waiting(self, reply: Iterable[tuple[bytes, float]]) -> None:
        for tenant, number in reply:
            if number > 0:
                self.of(tenant.decode()).waiting = int(number)


def read_service(
    client: redis.Redis, keys: ShardKeys, *, window_s: float, tenants: Sequence[str] = (), now_ms: int | None = None
) -> Service:
    """The service of the last `window_s` seconds (rounded up to whole minutes). `tenants` are read in any case.

    `now_ms`: instead of the store's clock, for tests.
    """
    with translate_errors():
        return _read(_Reader(client, keys), window_s, tenants, now_ms)


def _read(reader: _Reader, window_s: float, tenants: Sequence[str], moment_ms: int | None) -> Service:
    keys = reader.keys
    half = TENANTS_READ // 2

    def basics(pipeline: Any) -> None:
        pipeline.time()
        pipeline.hmget(keys["conf"], "policy", "paused", "unit", "cost", "weight", "gen")
        for generation in (0, 1):
            pipeline.hmget(keys.in_line("policy", generation), "V", "Vt")
            pipeline.zcard(keys.in_line("walk", generation))
        pipeline.zcount(keys["tenants"], "(0", "+inf")
        pipeline.zrevrangebyscore(keys["tenants"], "+inf", "(0", 0, half, withscores=True)

    clock, conf, *places, waiting_tenants, most = reader.send(basics)
    policy, paused, unit, cost, weight, generation = conf
    reader.generation = int(generation or 0)
    (v, moved), in_line = places[reader.generation % 2 * 2 :][:2]
    now_ms = moment_ms or clock[0] * 1000 + clock[1] // 1000
    first = (now_ms - round(min(max(window_s, 1), WINDOW_MAX_S) * 1000)) // MINUTE_MS
    numbers = range(first, now_ms // MINUTE_MS + 1)
    for tenant in tenants:
        reader.of(tenant)
    reader.waiting(most)
    shares = max(1, -(-(waiting_tenants - half) // half))
    others = half + half * (now_ms // 1000 // SHARE_S % shares)
    minutes, complete = _served(reader, numbers, others, half)
    read_ms = _stand(reader, minutes, tied=has_ties(policy), ring=policy == b"ring", weight=weight)
    now_ms = moment_ms or read_ms
    _look_at_waits(reader, policy, float(v or 0) if policy == b"wfq" else None)
    return Service(
        now_ms=now_ms,
        start_ms=first * MINUTE_MS,
        policy=policy.decode() if policy else "tiered",
        unit=unit.decode() if unit else "ms",
        default_cost=float(cost or 50),
        paused=paused == b"1",
        clock=float(v or 0),
        clock_moved_ms=int(float(moved or 0)),
        in_line=in_line,
        waiting_tenants=waiting_tenants,
        minutes=minutes,
        tenants=reader.found,
        whole=complete and sum(one.waiting > 0 for one in reader.found.values()) >= waiting_tenants,
    )


def _served(reader: _Reader, numbers: range, others: int, half: int) -> tuple[list[Minute], bool]:
    """The totals of each minute and what each tenant had, in two round trips; and whether nobody was left out."""
    keys, most = reader.keys, FIELDS_READ // len(numbers)

    def totals(pipeline: Any) -> None:
        pipeline.zrevrange(keys["tenants"], others, others + half - 1, withscores=True)
        for number in numbers:
            pipeline.hlen(keys[f"served:{number}"])
            pipeline.hget(keys[f"served:{number}"], "|")

    page, *replies = reader.send(totals)
    reader.waiting(page)
    names = list(reader.found)[:most]
    whole = [size <= most for size in replies[::2]]

    def parts(pipeline: Any) -> None:
        for number, all_of_it in zip(numbers, whole, strict=True):
            if all_of_it:
                pipeline.hgetall(keys[f"served:{number}"])
            elif names:
                pipeline.hmget(keys[f"served:{number}"], names)
            else:
                pipeline.hmget(keys[f"served:{number}"], "|")

    minutes = []
    for position, (number, reply) in enumerate(zip(numbers, reader.send(parts), strict=True)):
        minutes.append(_minute(number, replies[2 * position + 1]))
        fields = reply.items() if whole[position] else zip((name.encode() for name in names), reply, strict=False)
        for tenant, packed in fields:
            if packed is not None and tenant != b"|":
                reader.of(tenant.decode()).parts[position] = Part.unpacked(packed, number * MINUTE_MS)
    return minutes, all(whole)


def _minute(number: int, packed: bytes | None) -> Minute:
    units, jobs, in_flight = (packed or b"0|0|0").split(b"|")
    return Minute(start_ms=number * MINUTE_MS, units=float(units), jobs=int(jobs), most_in_flight=int(in_flight))


def _stand(reader: _Reader, minutes: list[Minute], *, tied: bool, ring: bool, weight: bytes | None) -> int:
    """Waiting jobs, limits and place in line of all that were found, in two round trips; answers the moment.

    Places are read before what was served in this minute is read again: what has moved a place is counted then, so that
    a lease between the two only widens a bound.
    """
    keys, names, number = reader.keys, list(reader.found), minutes[-1].start_ms // MINUTE_MS

    def limits(pipeline: Any) -> None:
        pipeline.zmscore(keys["tenants"], names)
        pipeline.hmget(keys["limits"], [f"t:{name}" for name in names])
        pipeline.zmscore(keys["blturns"], names)
        pipeline.zmscore(keys["blcturns"], names)
        pipeline.zmscore(keys["timers"], [f"t:{name}" for name in names])
        if tied:
            pipeline.hmget(reader.in_line("heads"), names)

    waiting, packed, fresh, continued, tokens, *heads = reader.send(limits) if names else ((), (), (), (), (), ())
    for name, jobs, text, token, *parked in zip(names, waiting, packed, tokens, fresh, continued, strict=True):
        entry = reader.of(name)
        entry.waiting, entry.parked = int(jobs or 0), any(due is not None for due in parked)
        entry.weight = default_weight(name, weight)
        if text is not None:
            stored = unpack_limits(text)
            entry.weight, entry.ceiling, entry.paused = stored.weight, stored.ceiling, stored.paused
            entry.min_share, entry.dispatch_rate = stored.min_share, stored.dispatch_rate
            entry.token_ms = token if stored.dispatch_rate is not None else None
    counted = [name for name in names if reader.of(name).ceiling is not None or reader.of(name).min_share]
    members = [(head or b"").decode() + name for name, head in zip(names, heads[0], strict=True)] if tied else names

    def places(pipeline: Any) -> None:
        if names:
            pipeline.zmscore(reader.in_line("walk"), members)
        for name in counted:
            pipeline.zcard(keys[f"slots:t:{name}"])
        for name in names if ring else ():
            pipeline.zrank(reader.in_line("walk"), name)
        pipeline.time()
        for each in (number, number + 1):  # a minute may have begun meanwhile
            pipeline.hmget(keys[f"served:{each}"], ["|", *names])

    *rest, clock, this, following = reader.send(places)
    pointers = rest.pop(0) if names else []
    for name, member, pointer in zip(names, members, pointers, strict=True):
        entry = reader.of(name)
        entry.pointer, entry.moved_on = pointer, pointer is None and tied and member != name
    for name, active in zip(counted, rest, strict=False):
        reader.of(name).active = active
    for name, turn in zip(names, rest[len(counted) :], strict=False):
        reader.of(name).turn = turn
    last = len(minutes) - 1
    for position, reply in ((last, this), (last + 1, following)):
        if reply[0] is not None:
            minutes[position:] = [_minute(number + position - last, reply[0])]
            for name, packed in zip(names, reply[1:], strict=True):
                if packed is not None:
                    reader.of(name).parts[position] = Part.unpacked(packed, minutes[position].start_ms)
    return int(clock[0]) * 1000 + int(clock[1]) // 1000


def _look_at_waits(reader: _Reader, policy: bytes | None, clock: float | None) -> None:
    """Since when the first job waits of the tenants in line that had least for their weight, in three round trips; in
    four where it stands in a sub-lane. Under `wfq` those that `clock` has passed come before all others.

    The first of the lane whose turn it is: some other job of the tenant may wait for longer.
    """
    keys = reader.keys
    in_line = [entry for entry in reader.found.values() if entry.in_line]
    in_line.sort(
        key=lambda one: (clock is None or one.pointer is None or one.pointer >= clock, one.had.units / one.weight)
    )
    del in_line[WAITS_READ:]

    def lanes(pipeline: Any) -> None:
        for entry in in_line:
            pipeline.zrange(reader.in_line(f"lanes:{entry.tenant}"), 0, 0)

    firsts = reader.send(lanes)
    queues = [
        (entry, f"{tier}:{entry.tenant}|{child_of(first[0], policy)}")
        for entry, first in zip(in_line, firsts, strict=True)
        if first
        for tier in ("q", "qc")
    ]

    def heads(wanted: Sequence[tuple[TenantService, str]]) -> list[tuple[TenantService, str, str]]:
        def queue(pipeline: Any) -> None:
            for _, name in wanted:
                pipeline.zrange(reader.in_line(name), 0, 0)

        replies = reader.send(queue)
        return [
            (entry, name, child_of(members[0], policy))
            for (entry, name), members in zip(wanted, replies, strict=True)
            if members
        ]

    found = heads(queues)
    # A member with @ stands for jobs that share their keys, at the place of the first of them.
    within = heads([(entry, f"{queue}|{job}") for entry, queue, job in found if job.startswith("@")])
    jobs = [(entry, job) for entry, _, job in (*found, *within) if not job.startswith("@")]

    def rows(pipeline: Any) -> None:
        for _, job in jobs:
            pipeline.getrange(keys.job(job), 0, HEADER_BYTES - 1)
            pipeline.hmget(keys.run(job), "rd", "sp")

    replies = reader.send(rows)
    for position, (entry, _) in enumerate(jobs):
        text, (back, passed) = replies[2 * position : 2 * position + 2]
        try:
            since = int(back or parse_row(text).due_ms)
        except ValueError:
            continue  # it has just been leased and ended, or its row is none of ours
        entry.since_ms = min(since, entry.since_ms or since)
        entry.passed_over = entry.passed_over or passed is not None
