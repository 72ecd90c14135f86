"""Log lines of worker and scheduler: one per event, text or JSON, on stderr when the host has configured none.

A traceback follows once a minute for each place that raises: a thousand jobs that fail alike are a thousand lines, not
a thousand tracebacks. Each job's own is kept with the job.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from queueapp.cli.table import printable
from queueapp.compat import TASKS_LOGGER
from queueapp.log_fields import all_handlers, equip
from queueapp.repeats import Repeats

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, object]:
    """What was given as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


class Line(logging.Formatter):
    """What both forms share."""

    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def traceback(self, record: logging.LogRecord) -> str:
        """The record's traceback; "" when it has none, or one like it was told within the minute."""
        if not record.exc_info or record.exc_info[0] is None:
            return ""
        kind, _, trace = record.exc_info
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace is not None else None
        return self.formatException(record.exc_info) if self._repeats.due((record.name, kind, place)) else ""


class TextLine(Line):
    """`12:30:01 INFO worker: Leading pool=default epoch=17`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        name = record.name.removeprefix("queueapp.").partition(".")[0]
        extra = "".join(f" {name}={printable(value)}" for name, value in fields(record).items())
        line = f"{at} {record.levelname} {name}: {printable(record.getMessage())}{extra}"
        traceback = self.traceback(record)
        return f"{line}\n{traceback}" if traceback else line


class JsonLine(Line):
    """One JSON object a line: `time level logger message`, the fields, and `traceback` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields(record),
        }
        if traceback := self.traceback(record):
            line["traceback"] = traceback
        return json.dumps(line, ensure_ascii=False, default=str)


def set_up(form: str | None, verbosity: int, worker: str | None = None) -> None:
    """Gives our loggers a handler, unless the host's LOGGING did or no form was asked for.

    django.tasks logs two lines a job; unless the host has set its level, a worker shows them from verbosity 2 on.
    Every handler that there is then is told which job a record belongs to; ours also name the `worker`, where one of
    several processes writes. What bodies log follows a form that was asked for, unless the host has handlers for it.
    """
    ours, tasks, root = logging.getLogger("queueapp"), logging.getLogger(TASKS_LOGGER), logging.getLogger()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if form == "json" else TextLine())
    if worker is not None:
        handler.addFilter(_Named(worker))
    if form is not None or not ours.hasHandlers():
        ours.addHandler(handler)
        ours.propagate = False
        if ours.level == logging.NOTSET:
            ours.setLevel(logging.DEBUG if verbosity > 2 else logging.INFO if verbosity > 0 else logging.WARNING)
    if form is not None:
        # Its errors are events of this process, too: Django's own handler would write them in a form of its own.
        tasks.addHandler(handler)
        tasks.propagate = False
        if not root.handlers:
            root.addHandler(_others(handler))
    if tasks.level == logging.NOTSET and verbosity < 2:
        tasks.setLevel(logging.ERROR)
    elif not tasks.hasHandlers():
        # That of the package django-tasks; Django 6's own has Django's handler.
        tasks.addHandler(handler)
        if tasks.level == logging.NOTSET:
            tasks.setLevel(logging.INFO)
    equip({handler, *all_handlers()})


class _Named(logging.Filter):
    """Adds the process's name to each record that names none."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        vars(record).setdefault("worker", self._worker)
        return True


def _others(handler: logging.Handler) -> logging.Handler:
    """A handler like this one for what is neither ours nor Django's, which has handlers of its own."""
    other = logging.StreamHandler(sys.stderr)
    other.setFormatter(handler.formatter)
    for each in handler.filters:
        other.addFilter(each)
    other.addFilter(lambda record: record.name.partition(".")[0] != "django")
    return other
