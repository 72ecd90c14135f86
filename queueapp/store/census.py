"""The sizes of many pools in one round trip, for tables of pools. Changes nothing; what it says may be a moment old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queueapp.store import connection, shards
from queueapp.store.configuration import described
from queueapp.store.reads import MAX_WORKERS

PARTS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One pool."""

    waiting: int
    active: int
    scheduled: int
    dead: int
    ended: int
    quarantined: int
    workers: int
    """Heard of within the time that was asked for."""
    paused: bool
    rule: str
    """The policy with the parameter that it takes, for people; "" where nothing was ever configured."""
    leader: str
    """Owner of a lease of leadership that is in force; "" = nobody leads."""


def census(pools: Sequence[str], *, live_ms: int) -> Mapping[str, Sizes]:
    """The sizes of each pool; a worker silent for longer than `live_ms` is not counted."""
    with connection.translate_errors():
        pipeline = connection.reads().pipeline(transaction=False)
        for pool in pools:
            keys = shards.keys(pool)
            for name in ("active", "scheduled", "dead", "ended"):
                pipeline.zcard(keys[name])
            pipeline.hget(keys["counts"], "w")
            pipeline.scard(keys["quarantine"])
            pipeline.zrevrange(keys["workers"], 0, MAX_WORKERS - 1, withscores=True)
            pipeline.hmget(keys["conf"], "paused", "policy", "by", "step")
            pipeline.hmget(keys["leader"], "owner", "until")
        pipeline.time()
        *replies, clock = pipeline.execute()
    now_ms = clock[0] * 1000 + clock[1] // 1000
    return {
        pool: _sizes(replies[position * PARTS : (position + 1) * PARTS], now_ms, live_ms)
        for position, pool in enumerate(pools)
    }


def _sizes(replies: Sequence[Any], now_ms: int, live_ms: int) -> Sizes:
    active, scheduled, dead, ended, waiting, quarantined, workers, conf, leader = replies
    paused, policy, by, step = conf
    owner, until = leader
    return Sizes(
        waiting=int(waiting or 0),
        active=active,
        scheduled=scheduled,
        dead=dead,
        ended=ended,
        quarantined=quarantined,
        workers=sum(now_ms - int(last) < live_ms for _, last in workers),
        paused=paused == b"1",
        rule=described(policy.decode(), by.decode() if by else "", int(step or 0)) if policy else "",
        leader=owner.decode() if owner and int(until or 0) > now_ms else "",
    )
