"""Log records of a task's body carry its job: `job_id`, `task`, `tenant` and `attempt`, whoever emits them.

A worker gives `JobFields` to every handler that it finds when it starts. A host that makes handlers later names the
class in its LOGGING: `"filters": {"job": {"()": "queueapp.log_fields.JobFields"}}`.
The worker sets `running` in the context of each body; what a body hands to threads of its own does not know its job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Protocol


class Job(Protocol):
    """The fields of a leased job that are shown."""

    @property
    def task(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def errors(self) -> int: ...
    @property
    def crashes(self) -> int: ...


class Run(Protocol):
    """A job that is being run."""

    @property
    def job(self) -> Job: ...
    @property
    def public_id(self) -> str: ...


running: ContextVar[Run | None] = ContextVar("ductor_running", default=None)


class JobFields(logging.Filter):
    """Lets every record pass. A field that a record brings itself stays as it is."""

    def filter(self, record: logging.LogRecord) -> bool:
        run = running.get()
        if run is not None:
            fields = vars(record)
            job = run.job
            fields.setdefault("job_id", run.public_id)
            fields.setdefault("task", job.task)
            fields.setdefault("tenant", job.tenant)
            fields.setdefault("attempt", job.errors + job.crashes + 1)
        return True


def equip(handlers: Iterable[logging.Handler]) -> None:
    """Gives each of them the filter, once."""
    for handler in handlers:
        if not any(isinstance(each, JobFields) for each in handler.filters):
            handler.addFilter(JobFields())


def all_handlers() -> set[logging.Handler]:
    """Those of every logger that there is now."""
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    return {handler for each in loggers if isinstance(each, logging.Logger) for handler in each.handlers}
