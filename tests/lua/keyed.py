"""Words for the tests of concurrency keys: jobs with keys, who waits for which key, a crowd of workers."""

from __future__ import annotations

from typing import Any

from queueapp.codec import digest
from queueapp.store.configuration import KeyLimits
from queueapp.store.records import KeyUse, LeasedJob, NewJob
from tests.lua.harness import Shard, completed

OF_KEYS = ("keysets", "keynames", "keyusers", "parked", "sublanes", "waitkeys", "blocked:", "turns:", "slots:k:")


def left(shard: Shard) -> list[str]:
    """Keys of the shard that only jobs with concurrency keys need."""
    names = [name for name in shard.snapshot() if name.startswith(OF_KEYS) or "|@" in name]
    return names + ["conf keyed"] * bool(shard.client.hexists(shard.keys["conf"], "keyed"))


def use(name: str, limit: int = 1, pattern: str = "") -> KeyUse:
    return KeyUse(digest=digest(name), text=name, limit=limit, pattern=digest(pattern or name))


def keyed(shard: Shard, *names: str, limit: int = 1, tenant: str = "acme", **options: Any) -> NewJob:
    """A job with these keys, each of which is its own pattern."""
    return shard.job(tenant, keys=tuple(use(name, limit) for name in names), **options)


def configure_key(shard: Shard, version: int, name: str, limit: int | None, *, clear: bool = False) -> None:
    change = KeyLimits(pattern=digest(name), text=name, max_in_flight=limit, clear=clear)
    shard.store.configure(version, keys=[change])


def used(shard: Shard, name: str) -> int:
    return int(shard.client.zcard(shard.keys[f"slots:k:{digest(name)}"]))


def waiters(shard: Shard, name: str) -> list[str]:
    """Tenants that wait for a key, the first to be offered a slot first."""
    return [member.partition("|")[0].partition(":")[2] for member in waiting_sets(shard, name)]


def waiting_sets(shard: Shard, name: str) -> list[str]:
    """Sub-lanes that wait for a key, in the order of their turns as they stand now."""

    def members(key: str) -> list[tuple[str, float]]:
        found: Any = shard.client.zrange(shard.keys[key], 0, -1, withscores=True)
        return [(member.decode(), score) for member, score in found]

    outer = f"blocked:{digest(name)}"
    listed = [
        (turn, group, rank, member)
        for limit, _ in members(outer)
        for group, turn in members(f"{outer}|{limit}")
        for member, rank in members(f"{outer}|{limit}|{group}")
    ]
    return [member[member.index("q") :] for *_, member in sorted(listed)]


class Crew:
    """`slots` workers of one job each: `turn` gives every free one a job, then the job that runs longest ends."""

    def __init__(self, shard: Shard, slots: int) -> None:
        self.shard, self.slots = shard, slots
        self.running: list[LeasedJob] = []
        self.order: list[str] = []

    def fill(self) -> None:
        while (free := self.slots - len(self.running)) > 0:
            found = self.shard.lease(free)
            self.running += found
            self.order += [job.id for job in found]
            if not found:
                return

    def end(self) -> None:
        self.shard.store.complete([completed(self.running.pop(0))])

    def work(self) -> list[str]:
        """Until nothing is left; ids in the order of their leases."""
        self.fill()
        while self.running:
            self.end()
            self.fill()
        return self.order
