"""SyncMatch, where jobs come from: a job may begin in a free slot of the very process that enqueues it, before the
store has heard of it. The store is asked to record job and lease in one call; only then has the caller its handle.

`client` offers every job that it is about to send. A worker opens a channel for each of its pools (`worker.match`); in
a process without a worker nothing is offered. Only plain jobs are: what the store would have to decide first (a key, a
delay, an expiry) waits for it. Whoever enqueues waits for the store alone, never for the body.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from queueapp import metrics
from queueapp.errors import StoreError
from queueapp.producer.discovery import registry
from queueapp.producer.preparation import Prepared
from queueapp.producer.sending import Answer
from queueapp.producer.task import DuctorTask
from queueapp.producer.transactions import open_transactions
from queueapp.store import shards
from queueapp.store.records import LeasedJob, NewJob

Miss = Literal["miss_no_channel", "miss_buffer_full", "miss_limited"]


class Begun(Protocol):
    """A body that has begun, or is about to. Of these two one is called, once."""

    worker: str
    lease_ms: int

    def recorded(self, lease: LeasedJob) -> None:
        """The store has the job, leased by this worker."""

    def refused(self) -> None:
        """The store has no such lease, or has not answered: what becomes of the body counts for nothing."""


class Channel(Protocol):
    """Free slots of this process for the jobs of one pool. Called from any thread."""

    def begin(self, task: DuctorTask, job: NewJob, local: Any) -> Begun | Miss: ...


_channels: dict[str, Channel] = {}
"""By pool. Replaced whole by whoever opens or closes, so that readers need no lock."""


def open_channels(channels: Mapping[str, Channel]) -> None:
    """From now on jobs of these pools are offered to them."""
    global _channels
    for pool in channels:
        for outcome in metrics.SYNC_MATCH_OUTCOMES:
            metrics.SYNC_MATCHES.labels(pool, outcome)  # shown from the start, at zero
    _channels = {**_channels, **channels}


def close_channels(channels: Mapping[str, Channel]) -> None:
    """No more of that."""
    global _channels
    _channels = {pool: channel for pool, channel in _channels.items() if channels.get(pool) is not channel}


def is_plain(job: NewJob) -> bool:
    """Whether nothing but limits of its tenant, lane and pool can keep the job from beginning at once.

    One that would be parked may not: unless it is `admitted`, which the store's call for these jobs knows of.
    """
    return not (
        job.due_ms
        or job.delay_ms
        or job.expires_after_ms
        or job.idempotency
        or job.keys
        or job.parks
        or job.debounce
        or job.singleton
    )


def send(prepared: Prepared, local: Any = None) -> Answer | None:
    """The store's answer about a job that has begun here; None: it has not, and is to be sent as any other.

    `local` is for what surrounds its body (`extensions.Wrapper`).
    """
    begun = _begin(prepared, local)
    if begun is None:
        return None
    lease: LeasedJob | None = None
    try:
        found = shards.store(prepared.pool).match(prepared.job, begun.worker, begun.lease_ms)
        lease = found.job
    except StoreError as error:
        return error
    finally:
        _tell(begun, lease)
    return found.answer


async def asend(prepared: Prepared) -> Answer | None:
    """See `send`."""
    begun = _begin(prepared)
    if begun is None:
        return None
    lease: LeasedJob | None = None
    try:
        await shards.arecord(prepared.pool)
        found = await shards.async_store(prepared.pool).match(prepared.job, begun.worker, begun.lease_ms)
        lease = found.job
    except StoreError as error:
        return error
    finally:
        _tell(begun, lease)
    return found.answer


def _begin(prepared: Prepared, local: Any = None) -> Begun | None:
    if not _channels or not is_plain(prepared.job) or open_transactions():
        return None
    pool, task = prepared.pool, registry.get(prepared.job.task)
    channel = _channels.get(pool)
    begun: Begun | Miss = (
        "miss_no_channel" if channel is None or task is None else channel.begin(task, prepared.job, local)
    )
    metrics.sync_match(pool, begun if isinstance(begun, str) else "hit")
    return None if isinstance(begun, str) else begun


def _tell(begun: Begun, lease: LeasedJob | None) -> None:
    if lease is None:
        begun.refused()
    else:
        begun.recorded(lease)


def _forget() -> None:
    """In the child of a fork there are no slots: their threads stayed behind."""
    global _channels
    _channels = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
