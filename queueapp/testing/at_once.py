"""What `immediate()` does with each job that is accepted: it runs it, and its parent once the last child has ended."""

from __future__ import annotations

from queueapp.states import State
from queueapp.store.ids import LENGTH
from queueapp.testing.draining import relay
from queueapp.testing.memory import Memory
from queueapp.testing.recorder import EnqueuedJob
from queueapp.testing.running import run_at_once


class AtOnce:
    """Called with each job. `failures` gets what their last attempts raised."""

    def __init__(self, memory: Memory, failures: list[BaseException]) -> None:
        self._memory = memory
        self._failures = failures
        self._jobs: dict[str, EnqueuedJob] = {}
        self._on_stack: list[str] = []
        """Jobs whose bodies have begun: one of them that added children goes on by itself when its body is left."""

    def __call__(self, job: EnqueuedJob) -> None:
        self._jobs[job.result.id[-LENGTH:]] = job
        self._run(job)
        while released := self._memory.take_released():
            for parent in released:
                if parent not in self._on_stack:
                    self._run(self._jobs[parent])
        relay(list(self._memory.pools()))

    def _run(self, job: EnqueuedJob) -> None:
        shard, job_id = self._memory.shard(job.queue_name), job.result.id[-LENGTH:]
        record = shard.job(job_id)
        if record is None or record.state is not State.PENDING:
            return  # due later, or when its children have ended; or withdrawn
        self._on_stack.append(job_id)
        try:
            job.error = run_at_once(shard, job_id)
        finally:
            self._on_stack.remove(job_id)
        job.result.refresh()
        if job.error is not None:
            self._failures.append(job.error)
