"""The one place that knows which `django.tasks` there is: Django 6's own, or the `django-tasks` package on 5.2.

Everything of the tasks framework that Ductor uses is imported from here. The choice is made once, by what is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

__all__ = [
    "NATIVE",
    "TASKS_LOGGER",
    "BaseTaskBackend",
    "GenericResult",
    "GenericTask",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "is_task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

NATIVE: bool = find_spec("django.tasks") is not None
"""True where Django itself has the tasks framework (6.0 and later)."""

if TYPE_CHECKING:
    from django.tasks import base
    from django.tasks.base import Task as GenericTask
    from django.tasks.base import TaskResult as GenericResult

    # Generic for type checkers, not at run time.
    Task: TypeAlias = base.Task[Any, Any]
    TaskContext: TypeAlias = base.TaskContext[Any, Any]
    TaskResult: TypeAlias = base.TaskResult[Any, Any]
elif NATIVE:
    from django.tasks.base import Task, TaskContext, TaskResult

if TYPE_CHECKING or NATIVE:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    try:
        from django_tasks import task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Ductor needs django.tasks: it is part of Django 6; on Django 5.2 install the extra `tasks52` "
            "(django-tasks >= 0.12) and put `django_tasks` into INSTALLED_APPS."
        ) from error

if not TYPE_CHECKING:

    class _Generic:
        """`Generic[P, R]` is the class itself: Django's are generic for type checkers alone."""

        def __init__(self, cls: type) -> None:
            self._cls = cls

        def __getitem__(self, parameters: object) -> type:
            return self._cls

    GenericTask, GenericResult = _Generic(Task), _Generic(TaskResult)

TASKS_LOGGER = "django.tasks" if NATIVE else "django_tasks"
"""Name of the logger to which the framework writes what happens to tasks."""


def is_task(value: object) -> TypeGuard[Task]:
    """Whether `value` is a task of the framework in use, or of the other one where both are installed."""
    # By path: the two classes are unrelated, and on Django 6 a host may still decorate with the package's.
    paths = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(value).__mro__}
    return not paths.isdisjoint({"django.tasks.base.Task", "django_tasks.base.Task"})
