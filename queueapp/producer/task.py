"""`@task` and the task it makes: django.tasks' own `Task` with the options that Ductor adds.

A task is immutable and made at import; `.using()` makes a changed copy for one or more jobs. Every option is checked
when it is given, whatever backend is configured: other backends ignore what they do not know. What `enqueue` does is
the backend's (`queueapp/backend.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, overload

from queueapp.compat import Task
from queueapp.conf import default_alias
from queueapp.producer import backoff as backoffs
from queueapp.producer import options
from queueapp.producer.discovery import find, registry
from queueapp.setting_readers import Backoff

if TYPE_CHECKING:
    from queueapp.producer.results import DuctorResult

__all__ = ["BoundTask", "DuctorTask", "adopt", "find", "registry", "task", "unchecked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DuctorTask(Task):
    """A function that can be enqueued. The second group of fields is Ductor's; None leaves it to the settings."""

    priority: int = 0
    backend: str = "default"
    queue_name: str = "default"
    run_after: datetime | None = None
    takes_context: bool = False

    tenant: str | None = None
    """Whose work it is; None: the current tenant."""
    lane: str = "main"
    """The partition within the tenant."""
    cost: float | None = None
    """Units that the job costs its tenant; None: learnt from observed run times."""
    expires_after: float | None = None
    """Seconds after which a job that has not started is dropped."""
    idempotency_key: str | None = None
    """Enqueued twice with one key and the same arguments, a job exists once."""
    max_attempts: int | None = None
    """Attempts before a job that raises is dead; None: `MAX_ATTEMPTS`."""
    max_crashes: int | None = None
    """Lost workers before a job is dead; None: `MAX_CRASHES`."""
    backoff: Backoff | None = None
    """Delay before another attempt; None: `BACKOFF`."""
    on_commit: bool | None = None
    """Inside a transaction, send after commit; None: `ENQUEUE_ON_COMMIT`."""
    api: bool = False
    """May be enqueued over REST."""
    aliases: tuple[str, ...] = ()
    """Former names, so that jobs enqueued under them still run."""

    def __post_init__(self) -> None:
        for name in options.READERS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, options.read(name, value))
        # Not zero-argument super(): in a dataclass with slots that refers to the class before the slots were made.
        Task.__post_init__(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        tenant: object = None,
        lane: str | None = None,
        cost: float | None = None,
        expires_after: float | timedelta | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
        max_crashes: int | None = None,
        backoff: Backoff | timedelta | None = None,
        on_commit: bool | None = None,
        **unknown: object,
    ) -> DuctorTask:
        """A copy with other options; None leaves an option as it is. Raises InvalidOption (also an InvalidTask)."""
        options.refuse(unknown, options.USING, "using")
        given = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "tenant": tenant,
            "lane": lane,
            "cost": cost,
            "expires_after": expires_after,
            "idempotency_key": idempotency_key,
            "max_attempts": max_attempts,
            "max_crashes": max_crashes,
            "backoff": backoff,
            "on_commit": on_commit,
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if backoff is not None and callable(backoff) and backoffs.to_options(backoff) is None:
            raise options.InvalidTaskOption(
                "using(backoff=...) takes seconds, queueapp.backoff.fixed(...) or exponential(...): it travels with "
                "the job as JSON. Give a function of your own to @task(backoff=...)."
            )
        return replace(self, **changes) if changes else self

    def bind(self, /, *args: object, **kwargs: object) -> BoundTask:
        """This task with arguments, for `queueapp.enqueue_many`."""
        return BoundTask(task=self, args=args, kwargs=kwargs)

    if TYPE_CHECKING:
        # What Ductor's backend gives. At run time these stay django.tasks' own methods, which monitors patch.
        def enqueue(self, *args: Any, **kwargs: Any) -> DuctorResult: ...
        async def aenqueue(self, *args: Any, **kwargs: Any) -> DuctorResult: ...
        def get_result(self, result_id: str) -> DuctorResult: ...
        async def aget_result(self, result_id: str) -> DuctorResult: ...

    def retry_delay(self, exception: BaseException, errors: int) -> float | None:
        """Seconds before another attempt after `errors` failed ones; None when the backoff asks for none."""
        return backoffs.delay_s(self.backoff, exception, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTask:
    """A task with the arguments of one job."""

    task: DuctorTask
    args: Sequence[object]
    kwargs: dict[str, object]


@overload
def task(function: Callable[..., Any], /) -> DuctorTask: ...
@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str | None = None,
    takes_context: bool = False,
    tenant: object = None,
    lane: str = "main",
    cost: float | None = None,
    expires_after: float | timedelta | None = None,
    idempotency_key: str | None = None,
    max_attempts: int | None = None,
    max_crashes: int | None = None,
    backoff: Backoff | timedelta | None = None,
    on_commit: bool | None = None,
    api: bool = False,
    aliases: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], DuctorTask]: ...
def task(
    function: Callable[..., Any] | None = None, /, *, backend: str | None = None, **given: Any
) -> DuctorTask | Callable[[Callable[..., Any]], DuctorTask]:
    """Make a module-level function a task: `@task` or `@task(queue_name="emails", max_attempts=5)`.

    Without `backend` the task belongs to the alias of TASKS whose backend is Ductor's (`DEFAULT_ALIAS` if several).
    Raises InvalidOption (NotYet for an option of a later release) at import, naming the option.
    """
    options.refuse(given, options.TASK, "@task")
    chosen = {name: value for name, value in given.items() if value is not None}

    def decorate(decorated: Callable[..., Any]) -> DuctorTask:
        made = DuctorTask(func=decorated, backend=backend or default_alias() or "default", **chosen)
        for name in (made.module_path, *made.aliases):
            registry[name] = made
        return made

    return decorate if function is None else decorate(function)


def adopt(foreign: Task) -> DuctorTask:
    """The task itself, or, for a plain task of django.tasks, one of ours with the same function and options."""
    if isinstance(foreign, DuctorTask):
        return foreign
    return unchecked(
        func=foreign.func,
        priority=foreign.priority,
        backend=foreign.backend,
        queue_name=foreign.queue_name,
        run_after=foreign.run_after,
        takes_context=foreign.takes_context,
    )


def unchecked(origin: DuctorTask | None = None, **changes: object) -> DuctorTask:
    """A task that no backend validates: for reading and running what was accepted before.

    A queue that has left the settings since must not make old results unreadable.
    """
    made: DuctorTask = object.__new__(DuctorTask)
    for known in fields(DuctorTask):
        value = changes.get(known.name, getattr(origin, known.name) if origin is not None else known.default)
        object.__setattr__(made, known.name, value)
    return made
