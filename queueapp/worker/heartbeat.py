"""Heartbeats: when the leases of a pool are extended, and what happens to those that are lost or told to stop.

Leases are extended in bulk, every third of a lease, and ride in the same call as everything else (`Line.exchange`).
Called by the I/O thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from queueapp.worker.slots import Held

logger = logging.getLogger(__name__)


class Heartbeat:
    """The clock of one pool's lease extensions. Moments are on the worker's monotonic clock, in seconds."""

    def __init__(self, lease_ms: int) -> None:
        self.interval_s = lease_ms / 3000
        self.next_at = float("inf")
        """Infinity while nothing is held."""

    def leased(self, now: float) -> None:
        """Leases were granted; the clock starts unless it runs already."""
        self.next_at = min(self.next_at, now + self.interval_s)

    def at_once(self, now: float) -> None:
        """A reply came late: what it granted may have aged for as long as the store was away."""
        self.next_at = now

    def beat(self, held: Mapping[str, Held], now: float) -> list[tuple[str, int]]:
        """The leases to extend with the call that is being made, `[]` while it is not time."""
        if now < self.next_at:
            return []
        self.next_at = now + self.interval_s if held else float("inf")
        return [(job_id, job.job.attempts) for job_id, job in held.items() if not job.lost]


def lose(lost: Iterable[str], held: Mapping[str, Held]) -> None:
    """The store says that these leases are gone: the bodies are told, what has not begun never begins."""
    for job_id in lost:
        job = held.get(job_id)
        if job is not None and not job.lost:
            job.lost = True
            logger.warning(
                "Lease lost; the job runs elsewhere or was ended, this run's outcome will be refused",
                extra={
                    "job_id": job.public_id,
                    "attempt": job.job.attempts,
                    "task": job.job.task,
                    "tenant": job.job.tenant,
                },
            )


def stop(cancelled: Iterable[str], held: Mapping[str, Held]) -> None:
    """The store says that these jobs were told to stop, and goes on saying it: the bodies are told once."""
    for job_id in cancelled:
        job = held.get(job_id)
        if job is not None and not job.cancelled:
            job.cancel()
            logger.info(
                "Told to stop: the job was cancelled",
                extra={
                    "job_id": job.public_id,
                    "attempt": job.job.attempts,
                    "task": job.job.task,
                    "tenant": job.job.tenant,
                },
            )
