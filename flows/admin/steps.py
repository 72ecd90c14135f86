"""The steps of a run as lines of a table: what has become of each, in words. Texts of errors only for who may see them.

Rows are read without what the steps returned, which may be megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpRequest
from django.utils.translation import gettext, ngettext

from flows import models
from flows.contents import error_class
from flows.definition import UNDO, Definition, StepDefinition
from flows.facts import job_id
from queueapp.admin.showing import job_url, moment_ms, short_id, span

ERROR_SHOWN = 300
"""Characters of an error's last line in the table."""
ITEMS_SHOWN = 20
"""Failed items of maps that a page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A step of a run as the pages show it."""

    step: str
    kind: str
    undoes: str
    """The step that this one takes back; else empty."""
    state: str
    shown_state: str
    attempt: int
    started: str
    took: str
    said: Sequence[str]
    """What else there is to say: counts of a map, what it waits for, why it was skipped."""
    error: str
    """The last line of its error; the class alone for those who may not see contents."""
    traceback: str
    """The whole of it where that is more; empty for those who may not see contents."""
    job: str
    job_url: str
    sub_run: str
    total: int
    completed: int
    failed: int
    """Items of a map."""
    may_retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLine:
    """An item of a map that failed."""

    step: str
    index: int
    attempt: int
    error: str
    job: str
    job_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Looker:
    """Who looks, and what they may see."""

    request: HttpRequest
    contents: bool
    jobs: bool
    retries: bool


def step_rows(run: models.Run) -> dict[str, models.StepRun]:
    """Step → its row, in the order in which they began."""
    rows = models.StepRun.objects.filter(run_id=run.id).defer("output", "report_error").order_by("id")
    return {row.step: row for row in rows}


def step_lines(
    run: models.Run,
    definition: Definition | None,
    rows: Mapping[str, models.StepRun],
    looker: Looker,
    now_ms: int,
) -> Iterator[StepLine]:
    """In an order in which they can run; then those that undo, in the order in which they began.

    Without a definition, what has rows.
    """
    subs = models.Run.objects.filter(parent_run=run.id, parent_index=-1).order_by("parent_attempt")
    sub_runs = dict(subs.values_list("parent_step", "id"))
    order = () if definition is None else definition.order
    for name in dict.fromkeys((*order, *rows)):
        step = None if definition is None else definition.step(name)
        row = rows.get(name) or models.StepRun(run_id=run.id, step=name)
        job = (job_id(run, row, step) if step is not None else None) or ""
        error, traceback = _error(row.error, contents=looker.contents)
        yield StepLine(
            step=name,
            kind="" if step is None else step.kind,
            undoes=name.removeprefix(UNDO) if name.startswith(UNDO) else "",
            state=row.state,
            shown_state=str(models.StepRun.State(row.state).label),
            attempt=row.attempt,
            started=moment_ms(row.started_ms or 0),
            took=_took(row, now_ms),
            said=[*_said(row, step)],
            error=error,
            traceback=traceback,
            job=short_id(job) if job else "",
            job_url=job_url(looker.request, job) if job and looker.jobs else "",
            sub_run=sub_runs.get(name, ""),
            total=row.total or row.listed,
            completed=row.completed,
            failed=row.failed,
            may_retry=looker.retries and _may_be_retried(run, row),
        )


def failed_items(
    run: models.Run, definition: Definition | None, rows: Mapping[str, models.StepRun], looker: Looker
) -> list[ItemLine]:
    """The first items that failed, of all maps; one more than `ITEMS_SHOWN` when there are others."""
    maps = {row.pk: row for row in rows.values() if row.failed}
    if not maps:
        return []
    items = models.ItemRun.objects.filter(step_run_id__in=maps, ending="failed").defer("output")
    found = []
    for item in items.order_by("step_run_id", "index")[: ITEMS_SHOWN + 1]:
        row = maps[item.step_run_id]
        job = (job_id(run, row, definition.step(row.step), item) if definition is not None else None) or ""
        found.append(
            ItemLine(
                step=row.step,
                index=item.index,
                attempt=item.attempt,
                error=_error(item.error, contents=looker.contents)[0],
                job=short_id(job) if job else "",
                job_url=job_url(looker.request, job) if job and looker.jobs else "",
            )
        )
    return found


def _may_be_retried(run: models.Run, row: models.StepRun) -> bool:
    """As far as both states tell; `operations.retry_step` has the last word."""
    undone = row.step.startswith(UNDO) or run.state in ("compensating", "compensated", "cancelled")
    return row.state in ("failed", "cancelled") and not undone


def _took(row: models.StepRun, now_ms: int) -> str:
    """How long its current try took, or has been taking."""
    if row.started_ms is None:
        return ""
    ended_ms = row.ended_ms if row.ended_ms is not None else now_ms
    return span(timedelta(milliseconds=max(0, ended_ms - row.started_ms)))


def _error(text: str, *, contents: bool) -> tuple[str, str]:
    """(one line, all of it where there is more to see)"""
    if not contents:
        return error_class(text), ""
    lines = text.strip().splitlines()
    last = lines[-1][:ERROR_SHOWN] if lines else ""
    return last, text if text.strip() != last else ""


def _said(row: models.StepRun, step: StepDefinition | None) -> Iterator[str]:
    if step is not None and step.kind == "map" and row.attempt and not row.skipped:
        yield _counts(row)
    if row.state == "running" and step is not None and step.kind == "sleep":
        yield gettext("sleeps until %(moment)s") % {"moment": moment_ms(row.due_ms or 0)}
    if row.state == "running" and step is not None and step.kind == "event":
        yield gettext("waits for the event “%(name)s”") % {"name": step.target}
        if row.due_ms:
            yield gettext("until %(moment)s") % {"moment": moment_ms(row.due_ms)}
    if row.state == "running" and row.withdrawn:
        yield gettext("what has not begun was taken back")
    if row.losses:
        yield ngettext("its job was lost %(count)d time", "its job was lost %(count)d times", row.losses) % {
            "count": row.losses
        }
    if row.skipped:
        yield _skipped(row.skipped)


def _counts(row: models.StepRun) -> str:
    """Of a map. While its list is being read, nobody knows how long it is."""
    of = str(row.total) if row.total is not None else gettext("%(count)d or more") % {"count": row.listed}
    parts = [gettext("%(done)d of %(of)s items completed") % {"done": row.completed, "of": of}]
    if row.failed:
        parts.append(gettext("%(count)d failed") % {"count": row.failed})
    if row.state == "running" and (under_way := row.issued - row.completed - row.failed) > 0:
        parts.append(gettext("%(count)d with the queue") % {"count": under_way})
    return ", ".join(parts)


def _skipped(why: str) -> str:
    words = {
        "condition": gettext("its condition was not true"),
        "no_value": gettext("a step whose value it takes left none"),
        "upstream": gettext("a step before it failed"),
    }
    return words.get(why, why)
