"""The last step of an enqueue: jobs go to the stores of their pools, one call a pool, and each gets its answer.

Nothing here raises for a job: what the store refuses is an answer, too. A large call is several scripts and may have
been done in part when it fails; its jobs are then sent again in slices, which is harmless because their ids are the
same, and tells what was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.errors import StoreError, StoreUnavailable
from queueapp.store import shards
from queueapp.store.records import Enqueued, NewJob

SLICE_JOBS = 250

Answer = Enqueued | StoreError
Job = tuple[str, NewJob]
"""A pool's name and a job for it."""


def send_each(jobs: Sequence[Job]) -> list[Answer]:
    """An answer for every job, in order."""
    answers: dict[str, Answer] = {}
    for pool, batch in _by_pool(jobs).items():
        answers.update(_send(pool, batch))
        if _done_in_part(batch, answers):
            for part in _slices(batch):
                answers.update(_send(pool, part))
                if _away(part, answers):
                    break
    return [answers[job.id] for _, job in jobs]


async def asend_each(jobs: Sequence[Job]) -> list[Answer]:
    """See `send_each`."""
    answers: dict[str, Answer] = {}
    for pool, batch in _by_pool(jobs).items():
        answers.update(await _asend(pool, batch))
        if _done_in_part(batch, answers):
            for part in _slices(batch):
                answers.update(await _asend(pool, part))
                if _away(part, answers):
                    break
    return [answers[job.id] for _, job in jobs]


def _send(pool: str, jobs: Sequence[NewJob]) -> dict[str, Answer]:
    try:
        found = shards.store(pool).enqueue(jobs)
    except StoreError as error:
        return {job.id: error for job in jobs}
    return {job.id: answer for job, answer in zip(jobs, found, strict=True)}


async def _asend(pool: str, jobs: Sequence[NewJob]) -> dict[str, Answer]:
    try:
        await shards.arecord(pool)
        found = await shards.async_store(pool).enqueue(jobs)
    except StoreError as error:
        return {job.id: error for job in jobs}
    return {job.id: answer for job, answer in zip(jobs, found, strict=True)}


def _by_pool(jobs: Sequence[Job]) -> dict[str, list[NewJob]]:
    pools: dict[str, list[NewJob]] = {}
    for pool, job in jobs:
        pools.setdefault(pool, []).append(job)
    return pools


def _slices(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    return [jobs[first : first + SLICE_JOBS] for first in range(0, len(jobs), SLICE_JOBS)]


def _done_in_part(batch: Sequence[NewJob], answers: dict[str, Answer]) -> bool:
    """Whether some of a failed call may have been accepted, and asking is worth it: the store is there."""
    error = answers[batch[0].id]
    return len(batch) > 1 and isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)


def _away(part: Sequence[NewJob], answers: dict[str, Answer]) -> bool:
    return isinstance(answers[part[0].id], StoreUnavailable)
