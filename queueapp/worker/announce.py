"""Announcements: the result object and the signals of `django.tasks` around one run.

`task_started` and `task_finished` carry a TaskResult that receivers may keep. A receiver that raises is logged by
Django's own dispatcher and costs nobody the job. Called in slot threads, from `attempt.run_one`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from queueapp.compat import TaskError, TaskResultStatus, task_finished, task_started
from queueapp.errors import Concealed, JobCancelled
from queueapp.producer.results import DuctorResult, running_result
from queueapp.producer.task import DuctorTask
from queueapp.worker.outcome import HIDDEN_MESSAGE, class_path
from queueapp.worker.slots import Held


class Announcement:
    """One run, as `django.tasks` sees it."""

    def __init__(self, task: DuctorTask, held: Held, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        line = held.line
        self.result: DuctorResult = running_result(task, held.job, line.pool, line.worker, args, kwargs)
        self._conceals = task.sensitive is True
        self._sender = type(task.get_backend())

    def started(self) -> None:
        task_started.send_robust(sender=self._sender, task_result=self.result)

    def succeeded(self, value: object) -> None:
        """`value` is the result as JSON makes it, which is what a later reader gets."""
        self._set("_return_value", value)
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
        elif self._conceals:
            # What receivers find being handled they log, message and frames with locals: it is a stand-in.
            try:
                raise Concealed(f"{class_path(error)} {HIDDEN_MESSAGE}") from None
            except Concealed as stand_in:
                stand_in.__context__ = None
                self._finished(TaskResultStatus.FAILED)
        else:
            self._finished(TaskResultStatus.FAILED)

    def _finished(self, status: TaskResultStatus) -> None:
        self._set("finished_at", datetime.now(UTC))  # aware, as every moment of a result, also with USE_TZ off
        self._set("status", status)
        task_finished.send_robust(sender=self._sender, task_result=self.result)

    def _set(self, name: str, value: object) -> None:
        # Results are frozen for users; whoever makes one fills it, as Django's own backends do.
        object.__setattr__(self.result, name, value)
