"""Small words for the tests of jobs that move from the pool `default` to `other`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from django.core.management import call_command

from queueapp.inspection.jobs import find_jobs
from queueapp.inspection.selection import WAITING, Selection
from queueapp.store import shards, transit
from queueapp.store.following import read_job
from queueapp.store.records import Completed
from tests.lua.harness import Shard
from tests.unit.inspection.conftest import Scene


def mine(**conditions: Any) -> Selection:
    return Selection(pool="default", states=WAITING, **conditions)


def states(ids: Sequence[str]) -> list[str]:
    found = {job.id: job.state for job in find_jobs(ids)}
    return [found[job_id] for job_id in ids]


def there(public_id: str) -> str:
    """The pool in which the job is now."""
    found = read_job(public_id)
    assert found is not None
    return found[0]


def run(pool: str, value: bytes = b"7") -> int:
    """Whatever waits in the pool runs now."""
    jobs = shards.store(pool).check_and_lease("w.9", 1, want=100, begin=100, lease_ms=30_000).jobs
    shards.store(pool).complete([Completed(id=job.id, attempts=job.attempts, run_ms=1, result=value) for job in jobs])
    return len(jobs)


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def long_ago(ids: Sequence[str]) -> None:
    """They were asked back so long ago that nothing of them can arrive any more."""
    store = shards.store("default")
    for public_id in ids:
        assert store.client.hset(store.keys.run(public_id[-22:]), "bk", 1) == 0


def stuck(scene: Scene, number: int = 1, to: str = "nobody.0", **values: Any) -> list[str]:
    """Jobs that left for a pool that nobody knows."""
    ids = scene.add(number, **values)
    assert set(shards.store("default").depart(scene.inner(ids), to)) == {"moving"}
    return ids


def leaving(scene: Scene, number: int = 1, *, arrived: bool = False) -> list[str]:
    """Jobs whose mover died, before or after the other pool had them."""
    there = shards.store("other")
    ids = stuck(scene, number, to=f"{there.keys.code}.0")
    if arrived:
        there.arrive([(one.id, one.packed or b"") for one in shards.store("default").departed().jobs])
    return ids


def later(shard: Shard) -> None:
    """All stubs were last looked at an hour ago."""
    members: Any = shard.client.zrange(shard.keys["stubs"], 0, -1)
    for member in members:
        shard.client.zincrby(shard.keys["stubs"], -transit.STUBS_EVERY_MS - 1, member)
