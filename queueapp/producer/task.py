"""`@task` and the task it makes: django.tasks' own `Task` with the options that Ductor adds.

A task is immutable and made at import; `.using()` makes a changed copy for one or more jobs. Every option is checked
when it is given, whatever backend is configured: other backends ignore what they do not know. What `enqueue` does is
the backend's (`queueapp/backend.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from queueapp.compat import GenericTask, Task
from queueapp.conf import default_alias
from queueapp.producer import backoff as backoffs
from queueapp.producer import options
from queueapp.producer.concurrency import Key
from queueapp.producer.discovery import find, registry
from queueapp.producer.once import Debounce, OnThrottle, Singleton
from queueapp.setting_readers import Backoff

if TYPE_CHECKING:
    import typing_extensions

    from queueapp.producer.results import DuctorResult

    # With defaults, so that a bare `DuctorTask` is one of any function.
    P = typing_extensions.ParamSpec("P", default=...)
    R = typing_extensions.TypeVar("R", default=Any)
else:
    P, R = ParamSpec("P"), TypeVar("R")

__all__ = ["BoundTask", "DuctorTask", "adopt", "find", "registry", "task", "unchecked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DuctorTask(GenericTask[P, R]):
    """A function that can be enqueued. The second group of fields is Ductor's; None leaves it to the settings.

    `P` are the parameters that `enqueue` takes (those of the function, but for the context), `R` is what it returns.
    """

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
    delay: float | None = None
    """Seconds from the call until it may run, by the server's clock; `run_after` is the same as a moment."""
    deadline: datetime | float | None = None
    """When the job should have ended: a moment, or seconds from when it may first run."""
    concurrency: tuple[Key, ...] = ()
    """Keys of which only so many jobs hold one at once."""
    debounce: Debounce | None = None
    """Calls with one key in a short time make one run."""
    singleton: Singleton | None = None
    """At most one job with its key at a time."""
    on_throttle: OnThrottle = "reject"
    """What becomes of a job above a rate: refused, or parked until it conforms."""
    idempotency_key: str | None = None
    """Enqueued twice with one key and the same arguments, a job exists once."""
    max_attempts: int | None = None
    """Attempts before a job that raises is dead; None: `MAX_ATTEMPTS`."""
    max_crashes: int | None = None
    """Lost workers before a job is dead; None: `MAX_CRASHES`."""
    backoff: Backoff | None = None
    """Delay before another attempt; None: `BACKOFF`."""
    timeout: float | None = None
    """Seconds after which a run is given up and counts as failed; None: `TIMEOUT`."""
    soft_timeout: float | None = None
    """Seconds after which a run is warned, by an exception raised in it."""
    on_commit: bool | None = None
    """Inside a transaction, send after commit; None: `ENQUEUE_ON_COMMIT`."""
    database: str | None = None
    """Only a transaction on this alias is waited for; None: every open one."""
    metadata: Mapping[str, Any] | None = field(default=None, hash=False)
    """Travels with the job: `context.metadata`, `result.metadata`."""
    typed: bool = False
    """Arguments and result keep tuple, bytes, UUID, Decimal and the types of datetime."""
    sensitive: tuple[str, ...] | bool = ()
    """Parameters, or paths into them, whose values are never shown; True: nor the result, nor what errors say."""
    api: bool = False
    """May be enqueued over REST."""
    aliases: tuple[str, ...] = ()
    """Former names, so that jobs enqueued under them still run."""

    def __post_init__(self) -> None:
        for name in options.READERS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, options.read(name, value))
        options.require_one_start(self.run_after, self.delay)
        options.require_warning(self.soft_timeout, self.timeout)
        options.require_parameters(self.func, self.sensitive)
        options.require_fields(
            self.func, self.concurrency, self.debounce, self.singleton, takes_context=self.takes_context
        )
        # Not zero-argument super(): in a dataclass with slots that refers to the class before the slots were made.
        Task.__post_init__(self)

    def using(self, **given: Unpack[options.Using]) -> DuctorTask[P, R]:
        """A copy with other options; None leaves an option as it is. Raises InvalidOption (also an InvalidTask)."""
        options.refuse(given, options.USING, "using")
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        backoff = changes.get("backoff")
        if callable(backoff) and backoffs.to_options(backoff) is None:
            raise options.InvalidTaskOption(
                "using(backoff=...) takes seconds, queueapp.backoff.fixed(...) or exponential(...): it travels with "
                "the job as JSON. Give a function of your own to @task(backoff=...)."
            )
        return replace(self, **changes)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> BoundTask:
        """This task with arguments, for `queueapp.enqueue_many`."""
        return BoundTask(task=self, args=args, kwargs=kwargs)

    if TYPE_CHECKING:
        # What Ductor's backend gives. At run time these stay django.tasks' own methods, which monitors patch.
        # override: a result of any parameters, so that `DuctorResult[int]` need not name them.
        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> DuctorResult[R]: ...  # type: ignore[override]
        async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> DuctorResult[R]: ...  # type: ignore[override]
        def get_result(self, result_id: str) -> DuctorResult[R]: ...  # type: ignore[override]
        async def aget_result(self, result_id: str) -> DuctorResult[R]: ...  # type: ignore[override]
    else:

        def __class_getitem__(cls, parameters: object) -> type[DuctorTask]:
            return cls  # for annotations that are looked at

    def retry_delay(self, exception: BaseException, errors: int) -> float | None:
        """Seconds before another attempt after `errors` failed ones; None when the backoff asks for none."""
        return backoffs.delay_s(self.backoff, exception, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTask:
    """A task with the arguments of one job."""

    task: DuctorTask
    args: Sequence[object]
    kwargs: dict[str, object]


class Decorator(Protocol):
    """What `@task(...)` gives."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DuctorTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> DuctorTask[P, R]: ...


class ContextDecorator(Protocol):
    """What `@task(takes_context=True)` gives: callers of `enqueue` leave out the context."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> DuctorTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> DuctorTask[P, R]: ...
    @overload  # a function with **keywords, of which type checkers say that they could name the context, too
    def __call__(self, function: Callable[..., Any], /) -> DuctorTask: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> DuctorTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> DuctorTask[P, R]: ...
@overload
def task(*, takes_context: Literal[True], **given: Unpack[options.Declared]) -> ContextDecorator: ...
@overload
def task(*, takes_context: Literal[False] | None = None, **given: Unpack[options.Declared]) -> Decorator: ...
def task(
    function: Callable[..., Any] | None = None, /, *, backend: str | None = None, **given: Any
) -> DuctorTask | Callable[[Callable[..., Any]], DuctorTask]:
    """Make a module-level function a task: `@task` or `@task(queue_name="emails", max_attempts=5)`.

    Without `backend` the task belongs to the alias of TASKS whose backend is Ductor's (`DEFAULT_ALIAS` if several).
    Raises InvalidOption (NotYet for an option of a later release) at import, naming the option.
    """
    options.refuse(given, options.TASK, "@task")
    options.require_duration(given.get("deadline"))
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
