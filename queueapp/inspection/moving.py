"""Moving jobs to another pool: they leave the one, arrive in the other, and only then their old rows let them go.

The two pools are two places of the store, and no script reaches both. So a job that has left waits in state `moving`
until the other pool has it: whoever dies in between leaves it there, and `deliver`, called by the next move and by
every scheduler, goes on. Each step may be repeated, by several at once, and does nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from queueapp.errors import InvalidOption
from queueapp.inspection.actions import Act
from queueapp.store import shards
from queueapp.store.records import Departed

logger = logging.getLogger(__name__)

CHUNK = 250


def moving_to(target: str) -> Act:
    """Waiting jobs of a pool to `target`; what runs, has ended or has a singleton stays. One word per id."""
    keys = shards.keys(target)
    to = f"{keys.code}.{keys.shard}"

    def act(pool: str, ids: Sequence[str]) -> Sequence[str]:
        if shards.keys(pool) == keys:
            raise InvalidOption(f"The jobs of {pool!r} cannot be moved to {target!r}: these are one pool.")
        store = shards.store(pool)
        words = store.depart(ids, to)
        deliver(pool, store)
        left = [job_id for job_id, word in zip(ids, words, strict=True) if word == "moving"]
        then = dict(zip(left, store.arrived(left), strict=True)) if left else {}
        return [_word(word, then.get(job_id, "")) for job_id, word in zip(ids, words, strict=True)]

    return act


class MovesStore(Protocol):
    """The methods of `store.Store` that the pool which jobs leave is asked for."""

    def departed(self, most: int = 250) -> list[Departed]: ...

    def arrived(self, ids: Sequence[str]) -> list[str]: ...


def deliver(pool: str, store: MovesStore) -> int:
    """Brings those that have left this pool to where they go; how many arrived. Raises StoreError."""
    number = 0
    while True:
        page = store.departed(CHUNK)
        brought = sum(_bring(pool, store, to, jobs) for to, jobs in _by_target(page).items())
        number += brought
        if not brought:
            return number


def _bring(pool: str, store: MovesStore, to: str, jobs: Sequence[Departed]) -> int:
    code = to.partition(".")[0]
    target = shards.pools_of([code]).get(code)
    readable = [(job.id, job.packed) for job in jobs if job.packed is not None]
    if target is None or len(readable) < len(jobs):
        logger.error(
            "Jobs stay on their way to another pool: %s",
            "nobody knows that pool" if target is None else "their rows cannot be read",
            extra={"pool": pool, "to": to, "jobs": len(jobs)},
        )
    if target is None or not readable:
        return 0
    shards.store(target).arrive(readable)
    store.arrived([job_id for job_id, _ in readable])
    return len(readable)


def _by_target(page: Sequence[Departed]) -> dict[str, list[Departed]]:
    found: dict[str, list[Departed]] = {}
    for job in page:
        found.setdefault(job.to, []).append(job)
    return found


def _word(left: str, then: str) -> str:
    return left if left != "moving" else "moved" if then == "moved" else "moving"
