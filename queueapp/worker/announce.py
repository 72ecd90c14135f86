"""Announcements: the result object and the signals of `django.tasks` around one run.

`task_started` and `task_finished` carry a TaskResult that receivers may keep. A receiver that raises is logged by
Django's own dispatcher and costs nobody the job. Called in slot threads, from `attempt.run_one`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from weakref import ReferenceType

from django.dispatch import Signal

from queueapp.codec import decode_result
from queueapp.compat import TASKS_LOGGER, TaskError, TaskResultStatus, task_finished, task_started
from queueapp.errors import Concealed, JobCancelled
from queueapp.producer.results import DuctorResult, running_result
from queueapp.producer.task import DuctorTask
from queueapp.worker.outcome import HIDDEN_MESSAGE, class_path
from queueapp.worker.slots import Held

_log = logging.getLogger(TASKS_LOGGER)
_LOGGERS = f"{TASKS_LOGGER}.signals"


def is_heard(signal: Signal) -> bool:
    """Whether anybody listens but django.tasks' own loggers, which neither block nor use the database."""
    for entry in signal.receivers:
        receiver = entry[1]() if isinstance(entry[1], ReferenceType) else entry[1]
        if receiver is not None and getattr(receiver, "__module__", "") != _LOGGERS:
            return True
    return False


class Announcement:
    """One run, as `django.tasks` sees it. Its result is made when somebody wants it: most runs are heard by nobody."""

    def __init__(self, task: DuctorTask, held: Held, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._task = task
        self._held = held
        self._arguments = args, kwargs
        self._result: DuctorResult | None = None

    @property
    def result(self) -> DuctorResult:
        if self._result is None:
            held, (args, kwargs) = self._held, self._arguments
            self._result = running_result(self._task, held.job, held.line.pool, held.line.worker, args, kwargs)
        return self._result

    def started(self) -> None:
        if is_heard(task_started) or _log.isEnabledFor(logging.INFO):
            task_started.send_robust(sender=self._sender, task_result=self.result)

    def succeeded(self, encoded: bytes | None) -> None:
        """`encoded` is the result as it is kept: a receiver gets what a later reader gets."""
        if is_heard(task_finished) or _log.isEnabledFor(logging.INFO):
            self._set("_return_value", decode_result(encoded))
            self._finished(TaskResultStatus.SUCCESSFUL)

    def cancelled(self) -> None:
        """The body returned after its job had been cancelled: that is how it ended, whatever it returned."""
        path = f"{JobCancelled.__module__}.{JobCancelled.__qualname__}"
        self.result.errors.append(TaskError(exception_class_path=path, traceback="The job ended as cancelled."))
        self._finished(TaskResultStatus.FAILED)

    def failed(self, error: BaseException, traceback_text: str, *, final: bool) -> None:
        """To be called inside `except`: Django's own receiver and monitors look at the exception being handled."""
        self.result.errors.append(TaskError(exception_class_path=class_path(error), traceback=traceback_text))
        if not final:
            self._set("status", TaskResultStatus.READY)
        elif self._task.sensitive is True:
            # What receivers find being handled they log, message and frames with locals: it is a stand-in.
            try:
                raise Concealed(f"{class_path(error)} {HIDDEN_MESSAGE}") from None
            except Concealed as stand_in:
                stand_in.__context__ = None
                self._finished(TaskResultStatus.FAILED)
        else:
            self._finished(TaskResultStatus.FAILED)

    @property
    def _sender(self) -> type:
        return type(self._task.get_backend())

    def _finished(self, status: TaskResultStatus) -> None:
        self._set("finished_at", datetime.now(UTC))  # aware, as every moment of a result, also with USE_TZ off
        self._set("status", status)
        task_finished.send_robust(sender=self._sender, task_result=self.result)

    def _set(self, name: str, value: object) -> None:
        # Results are frozen for users; whoever makes one fills it, as Django's own backends do.
        object.__setattr__(self.result, name, value)
