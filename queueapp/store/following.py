"""One job by its public id, also when it was moved to another pool meanwhile: its old row says where it went."""

from __future__ import annotations

import asyncio

from queueapp.states import Outcome
from queueapp.store import shards
from queueapp.store.views import JobRecord

HOPS = 8
"""So often a job may have been moved; behind that it counts as gone."""


def next_id(record: JobRecord) -> str:
    """The public id under which a job that was moved goes on; "" of any other."""
    return f"{record.moved_to}.{record.id}" if record.outcome is Outcome.MOVED else ""


def read_job(public_id: str) -> tuple[str, JobRecord] | None:
    """Pool and record of the job where it is now; of one that is on its way, where it was. None: nobody knows it."""
    for _ in range(HOPS):
        place = shards.locate(public_id)
        record = shards.reads(place[0]).job(place[1]) if place else None
        if place is None or record is None:
            return None
        if not (public_id := next_id(record)):
            return place[0], record
    return None


async def aread_job(public_id: str) -> tuple[str, JobRecord] | None:
    """See `read_job`."""
    for _ in range(HOPS):
        # In a thread: the store is asked when the pool is not one of those known here.
        place = await asyncio.to_thread(shards.locate, public_id)
        record = await shards.async_store(place[0]).read_job(place[1]) if place else None
        if place is None or record is None:
            return None
        if not (public_id := next_id(record)):
            return place[0], record
    return None
