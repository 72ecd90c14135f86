"""A shard in which everything occurs, and every way to damage it by one command. For the tests of `fsck`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from queueapp.policies.registry import DIRECT
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.records import DebounceUse, SingletonUse
from queueapp.store.recount import Recount
from tests.lua.harness import Shard, completed, failed
from tests.lua.keyed import keyed

NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,14}")
FOREIGN = "f" * 22
"""The id of no job."""


def full_scene(shard: Shard, policy: str = "tiered", *, scheduled: bool = False) -> None:
    """Jobs in every state, of tenants with every kind of limit."""
    shard.versions = 500
    begun = policy if policy in DIRECT else "fifo"
    shard.store.configure(500, pool=PoolConf(policy=begun, max_in_flight=12))
    scopes = [
        ScopeLimits(tenant="ceil", max_in_flight=1),
        ScopeLimits(tenant="lane", lane="x", max_in_flight=1),
        ScopeLimits(tenant="mini", min_share=3),
        ScopeLimits(tenant="slow", dispatch_rate=Rate(rate=1, period_ms=60_000)),
        ScopeLimits(tenant="still", paused=True),
        ScopeLimits(tenant="park", rate=Rate(rate=1, period_ms=60_000)),
    ]
    shard.store.configure(501, scopes=scopes)
    shard.versions = 501
    shard.store.register("w1", {"host": "a"}, 60_000)
    shard.add(shard.job("dead"), shard.job("dead"), shard.job("over"))
    doomed = shard.lease(3)
    shard.store.fail([failed(job) for job in doomed if job.tenant == "dead"])
    shard.store.complete([completed(job, result=b"1") for job in doomed if job.tenant == "over"])
    shard.add(*(shard.job(tenant) for tenant in ("acme", "ceil", "slow", "mini")), shard.job("lane", lane="x"))
    shard.add(keyed(shard, "k1", tenant="keys"))
    shard.lease(6)
    shard.store.save(_running(shard)[0], 1, {"checkpoint": b"1"})
    for tenant in ("acme", "acme", "ceil", "slow", "mini", "still"):
        shard.add(shard.job(tenant, cost=5, tier="continue" if tenant == "acme" else "start"))
        shard.add(shard.job(tenant, cost=3, deadline_ms=shard.now_ms + 9_000, expires_after_ms=50_000))
    shard.add(shard.job("lane", lane="x"), shard.job("lane", lane="y"))
    shard.add(keyed(shard, "k1", tenant="keys"), keyed(shard, "k1", "k2", tenant="other"))
    shard.add(keyed(shard, "k3", tenant="keys"))
    shard.add(shard.job("later", delay_ms=60_000, expires_after_ms=90_000))
    shard.add(shard.job("acme", singleton=SingletonUse(digest="nightly")))
    shard.add(shard.job("acme", debounce=DebounceUse(digest="report", period_ms=2_000, most_ms=5_000)))
    shard.add(shard.job("acme", idempotency="once"))
    shard.store.enqueue([shard.job("park", parks=True) for _ in range(3)])
    shard.store.await_result(shard.store.peek(1)[0][2], "waiter")
    shard.store.cancel(_running(shard)[1:2])
    if scheduled:
        term = shard.schedule(policy=policy, max_in_flight=12)
        while shard.store.rerank().more:
            pass
        shard.add(shard.job("fresh"), keyed(shard, "k9", tenant="fresh"))
        shard.dispatch(term, window=9)
        shard.add(shard.job("fresh"), shard.job("fresh"))


def _running(shard: Shard) -> list[str]:
    found: Any = shard.client.zrange(shard.keys["active"], 0, -1)
    return [job_id.decode() for job_id in found]


@dataclass(frozen=True, slots=True)
class Damage:
    """One command on one key of the shard."""

    shard: Shard
    command: str
    key: str
    arguments: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.command} {self.key} {self.arguments}"

    def do(self) -> None:
        self.shard.client.execute_command(self.command, self.shard.keys[self.key], *self.arguments)


def every_damage(shard: Shard) -> Iterator[Damage]:
    """Each key removed, each member removed, moved or joined by one of no job."""
    for name, value in sorted(shard.snapshot().items()):
        for command, *arguments in _commands(shard, name, value):
            yield Damage(shard, command, name, tuple(arguments))
    yield Damage(shard, "SET", "foreign:x", (1,))
    yield Damage(shard, "ZADD", "slots:t:ghost", (1, FOREIGN))
    yield Damage(shard, "SADD", "held:ghost", (FOREIGN,))


def _commands(shard: Shard, name: str, value: Any) -> Iterator[tuple[Any, ...]]:
    yield ("DEL",)
    if int(shard.client.pttl(shard.keys[name])) > 0:
        yield ("PERSIST",)
    kind = shard.client.type(shard.keys[name])
    if kind == b"zset":
        for member, score in value:
            yield "ZREM", member
            yield "ZADD", score + 1, member
        yield "ZADD", 5, FOREIGN
    elif kind == b"set":
        for member in value:
            yield "SREM", member
        yield "SADD", FOREIGN
    elif kind == b"hash":
        for field, held in value.items():
            yield "HDEL", field
            if NUMBER.fullmatch(held):
                yield "HINCRBY", field, 3
        yield "HSET", FOREIGN, "5"
    elif kind == b"stream":
        for entry, _ in value:
            yield "XDEL", entry


class Copy:
    """The whole shard, to be put back."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        names = list(shard.client.scan_iter(f"{shard.keys.prefix}*", count=1000))
        self._dumps = [(name, max(0, shard.client.pttl(name)), shard.client.dump(name)) for name in names]

    def back(self) -> None:
        pipeline = self._shard.client.pipeline(transaction=False)
        for name in self._shard.client.scan_iter(f"{self._shard.keys.prefix}*", count=1000):
            pipeline.unlink(name)
        for name, ttl, dump in self._dumps:
            assert dump is not None
            pipeline.restore(name, ttl, dump)
        pipeline.execute()


def recounted(shard: Shard, *, repair: bool = False) -> Recount:
    """One whole `fsck`."""
    recount = Recount(shard.store, repair=repair, pause=lambda seconds: None)
    for _ in recount.run():
        pass
    return recount
