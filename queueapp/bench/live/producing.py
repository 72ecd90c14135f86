"""Jobs of a workload for a pool of the project at hand: which task they run, what it is given, what became of them."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from typing import Any

from queueapp import enqueue_many
from queueapp.bench.live.pacing import Answer
from queueapp.bench.workloads import Job, Workload
from queueapp.conf import BACKEND, known_pools, our_aliases
from queueapp.errors import InvalidOption
from queueapp.inspection.pools import declared_pools, require
from queueapp.producer.discovery import find
from queueapp.producer.options import COST_MAX
from queueapp.producer.task import BoundTask, DuctorTask
from queueapp.store import scripts, shards

OWN = "queueapp.bench.live.work.work"
"""The task that any host's workers find."""
GIVEN: Mapping[str, Callable[[Job, str], object]] = {
    "number": lambda job, execution: job.number,
    "tenant": lambda job, execution: job.tenant,
    "service_us": lambda job, execution: job.service_us,
    "execution": lambda job, execution: execution,
}
"""What a task is called with, of these what its function has."""


def require_pool(pool: str | None) -> str:
    """The pool, if there is one of this name. Raises InvalidOption without a name, UnknownPool with the known ones."""
    if pool is None:
        raise InvalidOption(f"--pool is missing: name the pool; known: {', '.join(declared_pools())}.")
    if pool not in known_pools():
        require([pool], declared_pools())
    return pool


class Batches:
    """Sends jobs to one pool, many with a call, and keeps count of the answers."""

    def __init__(self, pool: str, path: str, execution: str, **more: Any) -> None:
        """`path`: the task's; `more`: options of all jobs, as of `.using()`. Raises UnknownTask, and InvalidOption for
        a task that cannot be given what a workload has."""
        self.words: Counter[str] = Counter()
        """What became of the jobs (`queueapp.Outcome.word`)."""
        self.said: dict[str, str] = {}
        """Word → what the first error of it said."""
        self._task = _ours(path).using(queue_name=pool, **more)
        self._names = _names(self._task)
        self._execution = execution

    def bound(self, job: Job, begin_s: float) -> BoundTask:
        """Its deadline is a moment, and counts from `begin_s` as its planned arrival does: no late sender moves it."""
        deadline_s = begin_s + job.deadline_us / 1_000_000
        return self._task.using(
            tenant=job.tenant,
            lane=job.lane,
            priority=job.priority,
            cost=min(max(1.0, job.cost), COST_MAX) if job.cost else None,
            deadline=datetime.fromtimestamp(deadline_s, UTC) if job.deadline_us else None,
        ).bind(**{name: GIVEN[name](job, self._execution) for name in self._names})

    def get_ready(self) -> None:
        """Does beforehand what the first call would do besides, so that its jobs are not late."""
        shards.store(self._task.queue_name)
        scripts.script("enqueue")

    def send(self, jobs: Sequence[Job], begin_s: float) -> Sequence[Answer]:
        outcomes = enqueue_many([self.bound(job, begin_s) for job in jobs])
        for outcome in outcomes:
            self.words[outcome.word] += 1
            if outcome.error is not None:
                self.said.setdefault(outcome.word, " ".join(str(outcome.error).split()))
        return outcomes


def renamed(workload: Workload, names: Sequence[str]) -> Workload:
    """The workload with other tenants: the first of its own is the first of `names`, and so on, from the beginning
    again where there are more of them."""
    own = list(dict.fromkeys([*workload.tenants, *(job.tenant for job in workload.jobs)]))
    called = dict(zip(own, cycle(names), strict=False))
    return replace(
        workload,
        jobs=[replace(job, tenant=called[job.tenant]) for job in workload.jobs],
        tenants=tuple(dict.fromkeys(called[tenant] for tenant in workload.tenants)),
        big=called[workload.big] if workload.big else None,
    )


def _ours(path: str) -> DuctorTask:
    task = find(path)
    if task.backend not in our_aliases():
        raise InvalidOption(
            f"The task {path} goes to the backend {task.backend!r}, which is not Ductor's: name a task of an alias of "
            f"TASKS whose BACKEND is {BACKEND}."
        )
    return task


def _names(task: DuctorTask) -> Sequence[str]:
    """Which of the values the task's function takes. Raises InvalidOption for one that needs others."""
    parameters: Mapping[str, Any] = inspect.signature(task.func).parameters
    own = list(parameters.values())[1 if task.takes_context else 0 :]
    for one in own:
        needed = one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if needed and (one.name not in GIVEN or one.kind is one.POSITIONAL_ONLY):
            raise InvalidOption(
                f"The task {task.module_path} needs {one.name!r}: a workload gives {', '.join(GIVEN)}, by name, and of "
                "these what the function has. Name a task that needs no more, such as one around it."
            )
    if any(one.kind is one.VAR_KEYWORD for one in own):
        return list(GIVEN)
    return [one.name for one in own if one.name in GIVEN and one.kind is not one.POSITIONAL_ONLY]
