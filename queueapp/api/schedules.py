"""Schedules: those whose jobs belong to tenants for whom the user may speak, of tasks of the API. Read only.

Arguments are not told: whoever may see contents looks at them in the admin, masked.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import faults, shapes
from queueapp.api.requests import PageQuery
from queueapp.api.schema import operation
from queueapp.api.view import DuctorView, is_told
from queueapp.conf import settings
from queueapp.models import Schedule
from queueapp.producer.discovery import registry

FIRINGS = 5
BATCH = 200


class SchedulesOf(DuctorView):
    """What both views share: whose a schedule is."""

    def may_see_schedule(self, schedule: Schedule) -> bool:
        """As of a job: of one's own tenant, and not of a task that is not for the API."""
        return tenant_of(schedule) in self.tenants and is_told(schedule.task)

    def brief(self, schedule: Schedule) -> dict[str, Any]:
        """A schedule in a list."""
        return {
            "id": str(schedule.pk),
            "url": self.url("schedule", schedule_id=str(schedule.pk)),
            "name": schedule.name,
            "task": schedule.task,
            "tenant": tenant_of(schedule),
            "enabled": schedule.enabled,
            "cron": schedule.cron or None,
            "every_seconds": schedule.every_seconds,
            "zone": schedule.zone_name if schedule.cron else None,
            "next_at": schedule.next_at,
        }


class SchedulesView(SchedulesOf):
    """`GET schedules/`: in the order in which they were made."""

    @operation(
        "ductor_schedules_list", _("List schedules"), query=PageQuery, answers={200: shapes.Schedules}, faults=(400,)
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        query = self.asked(PageQuery)
        size, after = query["page_size"], _number(query.get("cursor", "0"))
        if after is None:
            raise faults.wrong_cursor()
        seen: list[Schedule] = []
        while len(seen) <= size:
            rows = list(Schedule.objects.filter(pk__gt=after).order_by("pk")[:BATCH])
            seen += [row for row in rows if self.may_see_schedule(row)]
            if len(rows) < BATCH:
                break
            after = rows[-1].pk
        following = str(seen[size - 1].pk) if len(seen) > size else None
        return Response({"next": self.next_url(following), "results": [self.brief(row) for row in seen[:size]]})


class ScheduleView(SchedulesOf):
    """`GET schedules/{id}/`: when it fires next, and what became of the last firing."""

    @operation(
        "ductor_schedules_look",
        _("Look at a schedule"),
        path={"schedule_id": _("Id of the schedule.")},
        answers={200: shapes.Schedule},
        faults=(404,),
    )
    def get(self, request: Request, schedule_id: str, **kwargs: Any) -> Response:
        number = _number(schedule_id)
        found = Schedule.objects.filter(pk=number).first() if number is not None else None
        if found is None or not self.may_see_schedule(found):
            raise faults.not_found()
        return Response(
            {
                **self.brief(found),
                "pool": found.pool or None,
                "catch_up": found.catch_up,
                "overlap": found.overlap,
                "start": found.start,
                "end": found.end,
                "last_at": found.last_at,
                "fired_at": found.fired_at,
                "last_job": found.last_job or None,
                "outcome": found.outcome or None,
                "note": found.note or None,
                "firings": _firings(found),
            }
        )


def tenant_of(schedule: Schedule) -> str:
    """Whose its jobs are."""
    task = registry.get(schedule.task)
    own = task.tenant if task is not None else None
    return schedule.tenant or own or settings.tenant_default


def _firings(schedule: Schedule) -> list[Any]:
    if not schedule.enabled:
        return []
    try:
        return list(schedule.upcoming(FIRINGS))
    except (ValueError, OSError, LookupError):  # as SQL wrote it: `note` says so
        return []


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
