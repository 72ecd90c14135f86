"""Words for the tests of `explain`: what a test sets in the pool, who works, who dies."""

from __future__ import annotations

from itertools import count
from typing import Any

from queueapp.inspection.explain import Why
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import Completed
from tests.unit.inspection.conftest import Scene

versions = count(1)


def configure(scene: Scene, *scopes: ScopeLimits, **pool: Any) -> None:
    scene.store.configure(next(versions), pool=PoolConf(**pool), scopes=scopes)


def free(scene: Scene) -> None:
    """No pauses and no ceilings."""
    configure(scene, ScopeLimits(tenant="acme", clear=True), ScopeLimits(tenant="acme", lane="main", clear=True))


def work(scene: Scene, number: int = 1, *, lease_ms: int = 30_000, worker: str = "w.1") -> list[str]:
    """Leases so many; their public ids."""
    leases = scene.store.check_and_lease(worker, next(scene.seqs), want=number, begin=number, lease_ms=lease_ms)
    return [scene.keys.public_id(job.id) for job in leases.jobs]


def end(scene: Scene, *ids: str) -> None:
    """These running jobs complete."""
    done = [Completed(id=job_id, attempts=attempts_of(scene, job_id), run_ms=1) for job_id in scene.inner(ids)]
    assert set(scene.store.complete(done)) == {"done"}


def attempts_of(scene: Scene, job_id: str) -> int:
    return int(scene.store.client.hget(scene.keys.run(job_id), "a"))  # type: ignore[arg-type]  # redis-py has one type for sync and async


def lose_twice(scene: Scene, job_id: str) -> None:
    """Its worker dies twice while it runs."""
    for worker in ("dying.1", "dying.2"):
        assert work(scene, lease_ms=1, worker=worker) == [job_id]
        while not scene.store.partition_recover().pending:
            pass


def kinds(why: Why) -> list[str]:
    return [reason.kind.value for reason in why.reasons]
