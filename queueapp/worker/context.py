"""The context that a task with `takes_context=True` receives: Django's, and what a job of Ductor has beyond it.

Made for one run, in the slot's thread, and used there by the body. What it saves goes to the store at once, under the
lease: a run that has lost its lease saves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from queueapp.codec import encode_result
from queueapp.compat import TaskContext
from queueapp.conf import settings
from queueapp.errors import InvalidOption, StoreError
from queueapp.worker.slots import Held

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(TaskContext):  # type: ignore[misc]  # the stubs do not know that TaskContext is frozen
    """Django's `TaskContext` (`task_result`, `attempt`), and the job's own facts and tools."""

    held: Held

    @property
    def attempt(self) -> int:
        """Which run this is, from 1: runs that failed or were lost count, leases that were given back unrun do not."""
        return self.held.job.errors + self.held.job.crashes + 1

    @property
    def fence(self) -> int:
        """Grows with every lease of the job. Hand it to whatever must refuse an older run's writes."""
        return self.held.job.attempts

    @property
    def tenant(self) -> str:
        return self.held.job.tenant

    @property
    def lane(self) -> str:
        return self.held.job.lane

    @property
    def is_cancelled(self) -> bool:
        """True once the lease is lost or the worker stops waiting: the outcome will be refused, so end soon."""
        return self.held.lost

    def set_cost(self, cost: float) -> None:
        """The true cost of this job, in the pool's unit: its tenant is charged this and not the estimate."""
        if not 1 <= cost < float("inf"):
            raise InvalidOption(f"set_cost({cost!r}): a cost is a number from 1 up.")
        self.held.cost = float(cost)

    def set_progress(self, done: float, total: float | None = None, message: str = "") -> bool:
        """Shows how far the job is. False when nothing was saved: the lease is gone, or the store is away."""
        return self._save("progress", {"done": done, "total": total, "message": message})

    def save_metadata(self, metadata: Mapping[str, object]) -> bool:
        """Keeps values with the job, in place of those saved before. False when nothing was saved."""
        return self._save("metadata", dict(metadata))

    def _save(self, name: str, value: object) -> bool:
        encoded = encode_result(value, max_bytes=settings.max_result_bytes) or b"null"
        job = self.held.job
        try:
            return self.held.line.store.save(job.id, job.attempts, {name: encoded}) == "done"
        except StoreError as error:
            # What a job tells of itself must not make it fail.
            logger.warning("Not saved: %s", error, extra={"job_id": self.held.public_id, "field": name})
            return False
