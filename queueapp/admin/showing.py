"""How jobs, moments and durations are written on the pages. Contents appear only where the caller says they may."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings as django_settings
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, ngettext

from queueapp import moments
from queueapp.inspection.jobs import JobView

MESSAGE_SHOWN = 200
SHORT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as a line of a table."""

    id: str
    short: str
    """Enough of the id to tell rows apart; the whole of it stands on the job's page."""
    url: str
    state: str
    stopping: bool
    """It runs, and was told to stop."""
    tenant: str
    lane: str
    task: str
    reason: str
    group: str
    error: str
    """Class of the last error."""
    message: str
    """Its message; empty without the right to see contents."""
    failures: str
    worker: str
    submitted: str
    due: str
    leased: str
    ended: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """A failed or lost attempt. `message` and `traceback` are empty without the right to see contents."""

    number: int
    worker: str
    started: str
    at: str
    what: str
    message: str
    traceback: str


def job_row(request: HttpRequest, job: JobView, *, contents: bool) -> JobRow:
    """A line about `job`, with the address of its page."""
    record, detail = job.record, job.last_error.detail if job.last_error is not None else {}
    return JobRow(
        id=job.id,
        short=short_id(job.id),
        url=job_url(request, job.id),
        state=job.state,
        stopping=job.cancelling,
        tenant=record.tenant,
        lane=record.lane,
        task=breakable(record.task),
        reason=record.reason,
        group=job.group,
        error=breakable(str(detail.get("class", ""))),
        message=str(detail.get("message", ""))[:MESSAGE_SHOWN] if contents else "",
        failures=failures(job),
        worker=record.worker,
        submitted=moment(job.submitted_at),
        due=moment(job.due_at),
        leased=moment(job.leased_at),
        ended=moment(job.ended_at),
    )


def job_url(request: HttpRequest, job_id: str) -> str:
    """The page of a job."""
    return reverse("admin:queueapp_jobs_change", args=[quote(job_id)], current_app=site_name(request))


def short_id(job_id: str) -> str:
    """The end of an id, where ids differ most."""
    return f"…{job_id[-SHORT:]}"


def breakable(dotted: str) -> SafeString:
    """A dotted name that a narrow column may break behind its dots."""
    return format_html_join(mark_safe("<wbr>"), "{}", ((part,) for part in re.split(r"(?<=[.])", dotted)))


def site_name(request: HttpRequest) -> str:
    """The admin site that the request came to; a project may have several."""
    return str(getattr(request, "current_app", "admin"))


def failures(job: JobView) -> str:
    """Errors, of how many allowed where that is known, and crashes."""
    record = job.record
    text = f"{record.error_count}/{record.max_attempts}" if record.max_attempts else str(record.error_count)
    if not record.crashes:
        return text
    return gettext("%(errors)s, %(crashes)d lost") % {"errors": text, "crashes": record.crashes}


def attempts(job: JobView, *, contents: bool) -> list[AttemptRow]:
    """What went wrong, the newest first."""
    return [
        AttemptRow(
            number=error.attempt,
            worker=error.worker,
            started=moment_ms(error.started_ms),
            at=moment_ms(error.at_ms),
            what=str(error.detail.get("class") or _kind(error.kind)),
            message=str(error.detail.get("message") or "") if contents else "",
            traceback=str(error.detail.get("traceback") or "") if contents else "",
        )
        for error in reversed(job.record.errors)
    ]


def _kind(kind: str) -> str:
    return gettext("lost with its worker") if kind == "lost" else kind


def facts(job: JobView) -> Sequence[tuple[str, object]]:
    """What is known of a job besides its contents, in the order of its life; nothing that is not known."""
    record = job.record
    known = [
        (gettext("State"), job.state),
        (gettext("Told to stop"), moment_ms(record.cancelling_ms)),
        (gettext("Moved to"), job.moved_to),
        (gettext("Died of"), record.reason),
        (gettext("Pool"), job.pool),
        (gettext("Tenant"), record.tenant),
        (gettext("Lane"), record.lane),
        (gettext("Priority"), str(record.priority)),
        (gettext("Leases"), str(record.attempts)),
        (gettext("Charged"), f"{job.charged:g}" if job.charged else ""),
        (gettext("Errors"), failures(job)),
        (gettext("Worker"), record.worker),
        (gettext("Submitted"), moment(job.submitted_at)),
        (gettext("Due"), moment(job.due_at)),
        (gettext("Deadline"), moment(job.deadline_at)),
        (gettext("First leased"), moment(job.first_leased_at)),
        (gettext("Last leased"), moment(job.leased_at)),
        (gettext("Ended"), moment(job.ended_at)),
        (gettext("Edited"), edited(job)),
        (gettext("Waited"), span(job.wait)),
        (gettext("Waited for"), waited_for(job)),
        (gettext("Ran"), span(job.duration)),
    ]
    return [(name, value) for name, value in known if value]


def edited(job: JobView) -> str:
    """How often its arguments were edited while it was dead, and when last; empty for never."""
    count, at = job.record.edits, moment_ms(job.record.edited_ms)
    if not count:
        return ""
    return ngettext("%(count)d time, at %(at)s", "%(count)d times, last at %(at)s", count) % {"count": count, "at": at}


def waited_for(job: JobView) -> str:
    """What it waited for until its newest lease, over all attempts; empty while it was never leased."""
    if job.waits is None:
        return ""
    parts = (
        (gettext("its time"), job.waits.schedule_ms),
        (gettext("backoff"), job.waits.backoff_ms),
        (gettext("its own limits"), job.waits.limits_ms),
        (gettext("in line"), job.waits.line_ms),
    )
    return " · ".join(f"{name} {span(timedelta(milliseconds=ms))}" for name, ms in parts if ms)


def pretty(value: Any) -> str:
    """JSON to read."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def moment(value: datetime | None) -> str:
    """To the second, in the site's time zone; empty for no moment."""
    if value is None:
        return ""
    zone = timezone.get_current_timezone() if django_settings.USE_TZ else timezone.get_default_timezone()
    return value.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def moment_ms(value_ms: int) -> str:
    """The same for milliseconds since the epoch; 0 is no moment."""
    return moment(moments.moment(value_ms))


def span(duration: timedelta | None) -> str:
    """A duration in the two largest units that matter; empty for none."""
    if duration is None:
        return ""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, large, unit, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // unit
            return f"{whole // size} {large} {rest} {small}" if rest else f"{whole // size} {large}"
    raise AssertionError
