"""`assert_enqueued` and `assert_not_enqueued`: questions to the recorder that is active, answered with what there is.

`recorder` is set by `recorded()`, `immediate()`, `throwaway_store()` and the fixtures built on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from asgiref.sync import sync_to_async

from queueapp.codec import decode_result, encode_result
from queueapp.compat import Task
from queueapp.conf import our_aliases
from queueapp.errors import UnserialisableArgument
from queueapp.inspection.masking import masked_arguments
from queueapp.producer import options as task_options
from queueapp.producer import transactions
from queueapp.testing.recorder import EnqueuedJob, Recorder

recorder: Recorder | None = None
"""What records now, in the whole process."""

SHOWN_JOBS = 20
ABSENT: Any = object()


def assert_enqueued(
    task: Task | str | None = None,
    *,
    args: Any = ABSENT,
    kwargs: Any = ABSENT,
    tenant: Any = ABSENT,
    count: int | None = None,
    **options: Any,
) -> EnqueuedJob:
    """Fail unless a job like this was enqueued; returns the first one.

    Whatever is not named is not compared. `args` and `kwargs` are compared whole, as the task gets them (a tuple is a
    list). `options` are those of `.using()` and `@task`: queue_name, lane, priority, run_after, idempotency_key, cost,
    ... With `count` exactly so many must be there. `task` is a task or its dotted name.
    """
    __tracebackhide__ = True
    if count is not None and count < 1:
        raise ValueError(f"assert_enqueued(count={count!r}): it must be 1 or more; for none use assert_not_enqueued.")
    jobs = [*_active()]
    wanted = _Wanted(task, args, kwargs, tenant, options)
    found: list[EnqueuedJob] = [job for job in jobs if wanted.fits(job)]
    if (count is None and not found) or (count is not None and len(found) != count):
        number = "No job" if not found else "1 job" if len(found) == 1 else f"{len(found)} jobs"
        expected = "" if count is None else f", not {count}"
        raise AssertionError(f"{number}{expected}: {wanted}.\n{_all(jobs)}")
    return found[0]


def assert_not_enqueued(
    task: Task | str | None = None,
    *,
    args: Any = ABSENT,
    kwargs: Any = ABSENT,
    tenant: Any = ABSENT,
    **options: Any,
) -> None:
    """Fail if a job like this was enqueued; without arguments, if any was."""
    __tracebackhide__ = True
    jobs = [*_active()]
    wanted = _Wanted(task, args, kwargs, tenant, options)
    found = [job for job in jobs if wanted.fits(job)]
    if found:
        number = "1 job" if len(found) == 1 else f"{len(found)} jobs"
        raise AssertionError(f"{number}, not 0: {wanted}.\n{_all(found)}")


async def aassert_enqueued(task: Task | str | None = None, **expected: Any) -> EnqueuedJob:
    """`assert_enqueued` for asynchronous tests whose code opened atomic blocks: it looks where those were opened."""
    __tracebackhide__ = True
    return await sync_to_async(assert_enqueued)(task, **expected)


def described(job: EnqueuedJob) -> str:
    """A job in one line, its secrets masked."""
    args, kwargs = masked_arguments(job.name, job.args, job.kwargs, job.task.sensitive)
    values = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    notes = [f"tenant={job.tenant!r}"]
    notes += [
        f"{name}={value!r}"
        for name, value, usual in (
            ("lane", job.lane, "main"),
            ("queue_name", job.queue_name, "default"),
            ("priority", job.priority, 0),
            ("run_after", job.run_after and job.run_after.isoformat(), None),
            ("idempotency_key", job.idempotency_key, None),
        )
        if value != usual
    ]
    return f"{job.name}({', '.join(values)})  {' '.join(notes)}"


class _Wanted:
    """What a test looks for, in the form in which jobs are recorded."""

    def __init__(
        self, task: Task | str | None, args: Any, kwargs: Any, tenant: Any, options: Mapping[str, Any]
    ) -> None:
        self._name = None if task is None else task if isinstance(task, str) else task.module_path
        self._parts: dict[str, Any] = {}
        if args is not ABSENT:
            if not isinstance(args, Sequence) or isinstance(args, (str, bytes)):
                raise TypeError(f"args is {args!r}: it must be a list or tuple of all positional arguments.")
            self._parts["args"] = _plain(args)
        if kwargs is not ABSENT:
            self._parts["kwargs"] = _plain(kwargs)
        if tenant is not ABSENT:
            options = {"tenant": tenant, **options}
        for name, value in options.items():
            self._parts[name] = _option(name, value)

    def fits(self, job: EnqueuedJob) -> bool:
        if self._name is not None and job.name != self._name and self._name not in job.task.aliases:
            return False
        return all(_part(job, name) == value for name, value in self._parts.items())

    def __str__(self) -> str:
        parts = ", ".join(f"{name}={value!r}" for name, value in self._parts.items())
        return (self._name or "any task") + (f" with {parts}" if parts else "")


def _active() -> Recorder:
    if recorder is None:
        raise RuntimeError(
            "Nothing records what is enqueued: wrap the code in queueapp.testing.recorded() or immediate(), or use the "
            "fixture ductor, ductor_recorded or ductor_immediate."
        )
    return recorder


def _option(name: str, value: Any) -> Any:
    if name not in KNOWN:
        near = get_close_matches(name, KNOWN, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(KNOWN))}."
        raise TypeError(f"assert_enqueued({name}=...): a job has no such option; {hint}")
    if value is None or name not in task_options.READERS:
        return value
    try:
        return task_options.read(name, value)
    except task_options.InvalidTaskOption:
        return value  # unittest.mock.ANY, and what no job can have


KNOWN = frozenset({*task_options.USING, *task_options.TASK, "tenant"})


def _part(job: EnqueuedJob, name: str) -> Any:
    if name in {"args", "kwargs"}:
        return _plain(getattr(job, name))
    return getattr(job, name) if name not in job.options and hasattr(job, name) else getattr(job.task, name)


def _plain(value: Any) -> Any:
    """As JSON makes it, where it can be written so; what cannot (`unittest.mock.ANY`) is compared as it is."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    try:
        return decode_result(encode_result(value))
    except UnserialisableArgument:
        return value


def _all(jobs: Sequence[EnqueuedJob]) -> str:
    lines = [f"  {described(job)}" for job in jobs[:SHOWN_JOBS]]
    if len(jobs) > SHOWN_JOBS:
        lines.append(f"  ... and {len(jobs) - SHOWN_JOBS} more")
    text = "\n".join(["Enqueued:", *lines]) if lines else "Nothing was enqueued."
    if transactions.open_transactions():
        text += "\nAn atomic block is open: what was enqueued inside it is sent after its commit."
    if not our_aliases():
        text += "\nNo alias of TASKS has Ductor's backend, so tasks go elsewhere."
    return text
