"""Runs as the pages write them: a line of a list, the facts of one, its sub-runs and its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext

from flows import models
from flows.contents import shown_payload
from flows.definition import Definition
from flows.errors import InvalidValue, UnknownFlow
from flows.versions import definition_of
from queueapp.admin.choosing import address
from queueapp.admin.showing import moment, moment_ms, pretty, short_id, site_name, span

EVENTS_SHOWN = 50
SUB_RUNS_SHOWN = 20
COMMANDS_COUNTED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run as a line of a table."""

    id: str
    short: str
    url: str
    flow: str
    state: str
    tenant: str
    started: str
    took: str
    cause: str
    round: int
    place: str
    """Of a sub-flow: the step that it is of its parent, with the number of the item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """Something that was sent to a run; `payload` is empty for those who may not see contents."""

    name: str
    id: str
    sent: str
    taken_by: str
    payload: str


def stored_definition(run: models.Run) -> tuple[Definition | None, str]:
    """(the definition that the run began with, why there is none that can be read)"""
    try:
        return definition_of(run.flow, run.definition), ""
    except (UnknownFlow, InvalidValue) as error:
        return None, str(error)


def run_line(request: HttpRequest, run: models.Run, now_ms: int) -> RunLine:
    """A line about `run`, with the address of its page."""
    item = f"[{run.parent_index}]" if run.parent_index >= 0 else ""
    return RunLine(
        id=run.id,
        short=short_id(run.id),
        url=run_url(request, run.id),
        flow=run.flow,
        state=state_in_words(run),
        tenant=run.tenant,
        started=moment(run.started),
        took=took(run, now_ms),
        cause=run.cause,
        round=run.round,
        place=f"{run.parent_step}{item}",
    )


def run_url(request: HttpRequest, run_id: str) -> str:
    """The page of a run."""
    return reverse("admin:ductor_flows_run_change", args=[quote(run_id)], current_app=site_name(request))


def list_url(request: HttpRequest, **parameters: str) -> str:
    """The list of runs with these filters."""
    return address(reverse("admin:ductor_flows_run_changelist", current_app=site_name(request)), parameters)


def version_url(request: HttpRequest, flow: str, version: str) -> str:
    """The page of a stored definition; empty where it is not stored any more."""
    pk = models.FlowVersion.objects.filter(flow=flow, version=version).values_list("pk", flat=True).first()
    if pk is None:
        return ""
    return reverse("admin:ductor_flows_flowversion_change", args=[pk], current_app=site_name(request))


def state_in_words(run: models.Run) -> str:
    return str(models.Run.State(run.state).label)


def took(run: models.Run, now_ms: int) -> str:
    """From its first start to its end, or until now."""
    ended_ms = run.ended_ms if run.ended_ms is not None else now_ms
    return span(timedelta(milliseconds=max(0, ended_ms - run.started_ms)))


def facts(run: models.Run, now_ms: int) -> list[tuple[str, str]]:
    """What is known of a run besides its contents and what is linked; nothing that is not known."""
    left = models.FlowCommand.objects.filter(run_id=run.id)[:COMMANDS_COUNTED].count()
    known = [
        (gettext("State"), state_in_words(run)),
        (gettext("Note"), run.note),
        (gettext("Tenant"), run.tenant),
        (gettext("Key"), run.key or ""),
        (gettext("Started"), moment(run.started)),
        (gettext("Ended"), moment(run.ended)),
        (gettext("Took"), took(run, now_ms)),
        (gettext("Round"), str(run.round) if run.round > 1 else ""),
        (gettext("Pool of its wake-ups"), run.pool),
        (gettext("Commands that wait to be carried out"), str(left) if left else ""),
    ]
    return [(name, value) for name, value in known if value]


def sub_runs(request: HttpRequest, run: models.Run, now_ms: int) -> tuple[list[RunLine], bool]:
    """The first runs that are steps or items of this one, and whether there are more."""
    found = models.Run.objects.filter(parent_run=run.id).defer("input", "output")
    rows = list(found.order_by("parent_step", "parent_index", "parent_attempt")[: SUB_RUNS_SHOWN + 1])
    return [run_line(request, row, now_ms) for row in rows[:SUB_RUNS_SHOWN]], len(rows) > SUB_RUNS_SHOWN


def events(run: models.Run, *, contents: bool) -> tuple[list[EventLine], bool]:
    """The newest events, and whether there are older ones."""
    rows = list(models.Event.objects.filter(run_id=run.id).order_by("-id")[: EVENTS_SHOWN + 1])
    return [*_event_lines(rows[:EVENTS_SHOWN], contents=contents)], len(rows) > EVENTS_SHOWN


def _event_lines(rows: Iterable[models.Event], *, contents: bool) -> Iterator[EventLine]:
    for row in rows:
        yield EventLine(
            name=row.name,
            id=row.event_id,
            sent=moment_ms(row.sent_ms),
            taken_by=row.taken_by,
            payload=pretty(shown_payload(row)) if contents and row.payload is not None else "",
        )
