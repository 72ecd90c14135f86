"""Moving jobs to another pool: they leave the one, arrive in the other, and only then their old rows let them go.

The two pools are two places of the store, and no script reaches both. So a job that has left waits in state `moving`
until the other pool has it: whoever dies in between leaves it there, and `deliver`, called by the next move and by
every scheduler, goes on. Each step may be repeated, by several at once, and does nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from queueapp.errors import InvalidOption, StoreError
from queueapp.inspection.actions import Act
from queueapp.repeats import Repeats
from queueapp.states import Outcome
from queueapp.store import shards
from queueapp.store.records import Departed
from queueapp.store.views import JobRecord

logger = logging.getLogger(__name__)

CHUNK = 250
_told = Repeats()


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
        records = dict(zip(left, shards.reads(pool).letters(left) if left else [], strict=True))
        return [_word(word, records.get(job_id)) for job_id, word in zip(ids, words, strict=True)]

    return act


class MovesStore(Protocol):
    """The methods of `store.Store` that the pool which jobs leave is asked for."""

    def departed(self, most: int = 250, skip: int = 0) -> list[Departed]: ...

    def arrived(self, jobs: Sequence[tuple[str, int]]) -> list[str]: ...


def deliver(pool: str, store: MovesStore) -> int:
    """Brings those that have left this pool to where they go; how many arrived.

    What cannot be brought stays and holds up no other. Raises the first StoreError of another pool once all were tried.
    """
    number, stuck = 0, 0
    fault: StoreError | None = None
    while page := store.departed(CHUNK, stuck):
        brought = 0
        for to, jobs in _by_target(page).items():
            try:
                brought += _bring(pool, store, to, jobs)
            except StoreError as error:
                fault = fault or error
        number += brought
        stuck += len(page) - brought
    if fault is not None:
        raise fault
    return number


def _bring(pool: str, store: MovesStore, to: str, jobs: Sequence[Departed]) -> int:
    """Only what the other pool says that it has lets go here."""
    code = to.partition(".")[0]
    target = shards.pools_of([code]).get(code)
    if target is None or shards.keys(target).code != code:
        _tell(pool, to, "nobody knows that pool")
        return 0
    readable = [(job.id, job.packed) for job in jobs if job.packed is not None]
    words = dict(zip([job_id for job_id, _ in readable], shards.store(target).arrive(readable), strict=True))
    if len(readable) < len(jobs) or "broken" in words.values():
        _tell(pool, to, "their rows cannot be read")
    there = [(job.id, job.hop) for job in jobs if words.get(job.id) in ("arrived", "exists")]
    return store.arrived(there).count("moved")


def _tell(pool: str, to: str, why: str) -> None:
    if _told.due((pool, to, why)):
        logger.error("Jobs stay on their way to another pool: %s", why, extra={"pool": pool, "to": to})


def _by_target(page: Sequence[Departed]) -> dict[str, list[Departed]]:
    found: dict[str, list[Departed]] = {}
    for job in page:
        found.setdefault(job.to, []).append(job)
    return found


def _word(left: str, record: JobRecord | None) -> str:
    return "moved" if left == "moving" and record is not None and record.outcome is Outcome.MOVED else left
