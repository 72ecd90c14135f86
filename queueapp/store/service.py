"""What each tenant had of a pool, as the store counted it, and where it stands in line now: the figures behind the
fairness certificate. Changes nothing and takes no lock; called by `inspection.fairness`.

At most eight round trips. Of each minute at most `FIELDS_READ` / minutes tenants are read: where more were served, or
wait, those with most waiting jobs are, and a share of the others that moves on with the clock, so that a few readings
come to everybody. What was served to those that are left out is known from the totals of the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from queueapp.store.connection import translate_errors
from queueapp.store.keys import ShardKeys
from queueapp.store.reads import HEADER_BYTES, unpack_limits
from queueapp.store.rows import TIED, child_of, parse_row

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What the pool served in one minute, to all tenants together."""

    start_ms: int
    units: float
    jobs: int
    most_in_flight: int


@dataclass(slots=True, kw_only=True)
class TenantService:
    """One tenant. Filled in while reading."""

    tenant: str
    units: float = 0.0
    """Charges and their corrections; can be negative when what was charged earlier was corrected here."""
    jobs: int = 0
    largest: float = 0.0
    corrections: int = 0
    minutes: set[int] = field(default_factory=set)
    """Positions of the minutes in which it had service."""
    waiting: int = 0
    """Pending and scheduled jobs."""
    weight: float = 1.0
    ceiling: int | None = None
    min_share: int = 0
    paused: bool = False
    active: int | None = None
    """Its leased jobs, where a ceiling or a guaranteed minimum counts them."""
    pointer: float | None = None
    """Its score in the walk; None = none of its jobs may run now."""
    turn: int | None = None
    """How many stand before it in the walk; read under `ring` only."""
    since_ms: int | None = None
    """Since when the first job in line could have been leased; None = not looked at."""


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
        pipeline.hmget(keys["conf"], "policy", "paused", "unit", "cost", "weight")
        pipeline.hget(keys["policy"], "V")
        pipeline.zcard(keys["walk"])
        pipeline.zcount(keys["tenants"], "(0", "+inf")
        pipeline.zrevrangebyscore(keys["tenants"], "+inf", "(0", 0, half, withscores=True)

    clock, conf, v, in_line, waiting_tenants, most = reader.send(basics)
    policy, paused, unit, cost, weight = conf
    now_ms = moment_ms or clock[0] * 1000 + clock[1] // 1000
    first = (now_ms - round(min(max(window_s, 1), WINDOW_MAX_S) * 1000)) // MINUTE_MS
    numbers = range(first, now_ms // MINUTE_MS + 1)
    for tenant in tenants:
        reader.of(tenant)
    reader.waiting(most)
    shares = max(1, -(-(waiting_tenants - half) // half))
    others = half + half * (now_ms // 1000 // SHARE_S % shares)
    minutes, complete = _served(reader, numbers, others, half)
    _stand(reader, tied=policy is not None and policy.decode() in TIED, ring=policy == b"ring", weight=weight)
    _look_at_waits(reader, policy)
    return Service(
        now_ms=now_ms,
        start_ms=first * MINUTE_MS,
        policy=policy.decode() if policy else "tiered",
        unit=unit.decode() if unit else "ms",
        default_cost=float(cost or 50),
        paused=paused == b"1",
        clock=float(v or 0),
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
        units, jobs, in_flight = (replies[2 * position + 1] or b"0|0|0").split(b"|")
        minutes.append(
            Minute(start_ms=number * MINUTE_MS, units=float(units), jobs=int(jobs), most_in_flight=int(in_flight))
        )
        fields = reply.items() if whole[position] else zip((name.encode() for name in names), reply, strict=False)
        for tenant, packed in fields:
            if packed is not None and tenant != b"|":
                _add(reader.of(tenant.decode()), position, packed)
    return minutes, all(whole)


def _add(entry: TenantService, position: int, packed: bytes) -> None:
    units, jobs, largest, corrections = packed.split(b"|")
    entry.units += float(units)
    entry.jobs += int(jobs)
    entry.largest = max(entry.largest, float(largest))
    entry.corrections += int(corrections)
    if int(jobs) > 0 or float(units) > 0:
        entry.minutes.add(position)


def _stand(reader: _Reader, *, tied: bool, ring: bool, weight: bytes | None) -> None:
    """Waiting jobs, limits and place in line of all that were found, in two round trips."""
    keys, names = reader.keys, list(reader.found)
    if not names:
        return

    def limits(pipeline: Any) -> None:
        pipeline.zmscore(keys["tenants"], names)
        pipeline.hmget(keys["limits"], [f"t:{name}" for name in names])
        if tied:
            pipeline.hmget(keys["heads"], names)

    waiting, packed, *heads = reader.send(limits)
    for name, number, text in zip(names, waiting, packed, strict=True):
        entry = reader.of(name)
        entry.waiting = int(number or 0)
        entry.weight = float(weight or 1)
        if text is not None:
            stored = unpack_limits(text)
            entry.weight, entry.ceiling, entry.paused = stored.weight, stored.ceiling, stored.paused
            entry.min_share = stored.min_share
    counted = [name for name in names if reader.of(name).ceiling is not None or reader.of(name).min_share]
    members = [(head or b"").decode() + name for name, head in zip(names, heads[0], strict=True)] if tied else names

    def places(pipeline: Any) -> None:
        pipeline.zmscore(keys["walk"], members)
        for name in counted:
            pipeline.zcard(keys[f"slots:t:{name}"])
        if ring:
            for name in names:
                pipeline.zrank(keys["walk"], name)

    pointers, *rest = reader.send(places)
    for name, pointer in zip(names, pointers, strict=True):
        reader.of(name).pointer = pointer
    for name, active in zip(counted, rest, strict=False):
        reader.of(name).active = active
    for name, turn in zip(names, rest[len(counted) :], strict=False):
        reader.of(name).turn = turn


def _look_at_waits(reader: _Reader, policy: bytes | None) -> None:
    """Since when the first job waits of the tenants in line that had least for their weight, in three round trips.

    The first of the lane whose turn it is: some other job of the tenant may wait for longer.
    """
    keys = reader.keys
    in_line = [entry for entry in reader.found.values() if entry.pointer is not None]
    in_line.sort(key=lambda entry: entry.units / entry.weight)
    del in_line[WAITS_READ:]

    def lanes(pipeline: Any) -> None:
        for entry in in_line:
            pipeline.zrange(keys[f"lanes:{entry.tenant}"], 0, 0)

    firsts = reader.send(lanes)
    places = [(entry, child_of(first[0], policy)) for entry, first in zip(in_line, firsts, strict=True) if first]

    def heads(pipeline: Any) -> None:
        for entry, lane in places:
            for tier in ("q", "qc"):
                pipeline.zrange(keys[f"{tier}:{entry.tenant}|{lane}"], 0, 3)

    jobs = []
    for position, members in enumerate(reader.send(heads)):
        names = [child_of(member, policy) for member in members]
        # A member with @ stands for jobs that share their keys.
        jobs += [(places[position // 2][0], name) for name in names if not name.startswith("@")][:1]

    def rows(pipeline: Any) -> None:
        for _, job in jobs:
            pipeline.getrange(keys.job(job), 0, HEADER_BYTES - 1)
            pipeline.hget(keys.run(job), "rd")

    replies = reader.send(rows)
    for position, (entry, _) in enumerate(jobs):
        text, back = replies[2 * position : 2 * position + 2]
        try:
            since = int(back or parse_row(text).due_ms)
        except ValueError:
            continue  # it has just been leased and ended, or its row is none of ours
        entry.since_ms = min(since, entry.since_ms or since)
