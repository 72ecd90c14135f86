"""Schedules: those whose jobs belong to tenants for whom the user may speak, of tasks of the API. Read only.

Arguments are not told: whoever may see contents looks at them in the admin, masked.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import faults, schedule_shapes
from queueapp.api.grants import ALL
from queueapp.api.requests import PageQuery
from queueapp.api.schema import operation
from queueapp.api.view import DuctorView, declared
from queueapp.conf import settings
from queueapp.models import Schedule
from queueapp.permissions import VIEW_PAYLOAD
from queueapp.producer.discovery import load_tasks, registry

FIRINGS = 5


class SchedulesOf(DuctorView):
    """What both views share: whose a schedule is."""

    def visible(self) -> QuerySet[Schedule]:
        """As of jobs: those of one's own tenants, and not of a task that is not for the API.

        One without a tenant of its own belongs to that of its task. Where the task is not known here, neither is whose
        its jobs would be, so that only who may speak for all sees it.
        """
        load_tasks()
        tasks = dict(registry)
        hidden = [name for name, task in tasks.items() if not task.api]
        rows = Schedule.objects.exclude(task__in=hidden)
        if self.tenants is ALL:
            return rows
        default = settings.tenant_default
        own = [name for name, task in tasks.items() if (task.tenant or default) in self.tenants]
        return rows.filter(Q(tenant__in=self.tenants) | Q(tenant="", task__in=own))

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
        "ductor_schedules_list",
        _("List schedules"),
        query=PageQuery,
        answers={200: schedule_shapes.Schedules},
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        query = self.asked(PageQuery)
        size, after = query["page_size"], _number(query.get("cursor", "0"))
        if after is None:
            raise faults.wrong_cursor()
        seen = list(self.visible().filter(pk__gt=after).order_by("pk")[: size + 1])
        following = str(seen[size - 1].pk) if len(seen) > size else None
        return Response({"next": self.next_url(following), "results": [self.brief(row) for row in seen[:size]]})


class ScheduleView(SchedulesOf):
    """`GET schedules/{id}/`: when it fires next, and what became of the last firing."""

    @operation(
        "ductor_schedules_look",
        _("Look at a schedule"),
        path={"schedule_id": _("Id of the schedule.")},
        answers={200: schedule_shapes.Schedule},
        faults=(404,),
    )
    def get(self, request: Request, schedule_id: str, **kwargs: Any) -> Response:
        number = _number(schedule_id)
        found = self.visible().filter(pk=number).first() if number is not None else None
        if found is None:
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
                "note": (found.note or None) if self.allowed(VIEW_PAYLOAD) else None,
                "firings": _firings(found),
            }
        )


def tenant_of(schedule: Schedule) -> str | None:
    """Whose its jobs are; None: its task is not known here, so nobody can say."""
    if schedule.tenant:
        return schedule.tenant
    task = declared(schedule.task)
    return None if task is None else task.tenant or settings.tenant_default


def _firings(schedule: Schedule) -> list[Any]:
    if not schedule.enabled:
        return []
    try:
        return list(schedule.upcoming(FIRINGS))
    except (ValueError, OSError, LookupError, OverflowError):  # as SQL wrote it: `note` says so
        return []


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
