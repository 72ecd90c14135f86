"""What was enqueued, in order: the list that `recorded()`, `immediate()` and the fixtures give to a test.

A recorder is the producer's `client.watcher` while it is active; it learns of every accepted job, from `enqueue`,
`aenqueue`, `enqueue_many` and sends after commit. Reading it sends first what the transaction of a TestCase holds back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from asgiref.sync import sync_to_async

from queueapp.compat import Task
from queueapp.names import SYSTEM_TENANT
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import DuctorTask
from queueapp.testing import deferred

if TYPE_CHECKING:
    from queueapp.producer.preparation import Prepared

OWN_FIELDS = frozenset({"tenant", "lane", "queue_name", "priority", "run_after", "idempotency_key"})
"""Options that are fields of `EnqueuedJob`; the others stand in its `options`."""


@dataclass(slots=True, kw_only=True, eq=False)
class EnqueuedJob:
    """A job that the code under test enqueued. Arguments are as the task gets them, after their way through JSON."""

    task: DuctorTask
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    tenant: str
    lane: str
    queue_name: str
    priority: int
    run_after: datetime | None
    idempotency_key: str | None
    options: Mapping[str, Any]
    """The other options: cost, expires_after, max_attempts, backoff, metadata, ..."""
    result: DuctorResult
    """The handle that `enqueue` gave."""
    error: BaseException | None = None
    """What the last run of the body raised, under `immediate()`."""

    @property
    def name(self) -> str:
        """`module.function` of the task."""
        return self.task.module_path

    def __str__(self) -> str:
        from queueapp.testing.assertions import described

        return described(self)


class Recorder(Sequence[EnqueuedJob]):
    """The jobs in the order in which they were accepted. `run` is called with each (`immediate()` runs it).

    Wake-ups of flows are nobody's jobs: they run as any other, and are not in the list.
    """

    def __init__(self, run: Callable[[EnqueuedJob, bool], None] | None = None) -> None:
        """`run` gets each job, and whether a package handed it over (`producer.handover`)."""
        self._jobs: list[EnqueuedJob] = []
        self._run = run
        self._earlier = deferred.present()
        """Sends that were waiting for a commit before this recorder began: not its own."""

    # -- as the producer's watcher ---------------------------------------------------------------------------------

    def accepted(self, prepared: Prepared, result: DuctorResult) -> None:
        job = self._note(prepared, result)
        if self._run is not None:
            self._run(job, prepared.handed_over)

    async def aaccepted(self, prepared: Prepared, result: DuctorResult) -> None:
        job = self._note(prepared, result)
        if self._run is not None:
            # In the thread of the test's synchronous half, whose database connections the body is to use.
            await sync_to_async(self._run)(job, prepared.handed_over)

    def _note(self, prepared: Prepared, result: DuctorResult) -> EnqueuedJob:
        task = prepared.task
        known = {field.name for field in fields(Task)} | OWN_FIELDS
        job = EnqueuedJob(
            task=task,
            args=prepared.args,
            kwargs=prepared.kwargs,
            tenant=prepared.job.tenant,
            lane=prepared.job.lane,
            queue_name=prepared.pool,
            priority=int(task.priority),
            run_after=task.run_after,
            idempotency_key=task.idempotency_key,
            options={field.name: getattr(task, field.name) for field in fields(task) if field.name not in known},
            result=result,
        )
        if job.tenant != SYSTEM_TENANT:
            self._jobs.append(job)
        return job

    # -- as a list -------------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Send what waits for the commit that a TestCase never makes."""
        deferred.send(self._earlier)

    def of(self, task: Task | str) -> list[EnqueuedJob]:
        """The jobs of one task."""
        name = task if isinstance(task, str) else task.module_path
        return [job for job in self if job.name == name]

    @overload
    def __getitem__(self, index: int) -> EnqueuedJob: ...
    @overload
    def __getitem__(self, index: slice) -> list[EnqueuedJob]: ...
    def __getitem__(self, index: int | slice) -> EnqueuedJob | list[EnqueuedJob]:
        self.collect()
        return self._jobs[index]

    def __len__(self) -> int:
        self.collect()
        return len(self._jobs)

    def __iter__(self) -> Iterator[EnqueuedJob]:
        self.collect()
        return iter([*self._jobs])

    def clear(self) -> None:
        """Forget what was recorded so far."""
        self.collect()
        self._jobs.clear()

    def __repr__(self) -> str:
        # Of what is known already: a debugger that shows a recorder must not set anything off.
        return f"<Recorder of {len(self._jobs)} jobs>"
