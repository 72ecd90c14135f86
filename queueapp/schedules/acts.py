"""What people do to schedules: fire one now, turn some on or off. One function for each, whatever the skin."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from queueapp.errors import DuctorError
from queueapp.models import Schedule
from queueapp.moments import now_ms
from queueapp.producer.results import DuctorResult
from queueapp.schedules import jobs
from queueapp.schedules.standing import Standing, cancelled, standings

logger = logging.getLogger(__name__)


class Overlaps(DuctorError):
    """The schedule's last job is not over, and its rule of overlap says that no other one may be beside it."""

    code = "overlaps"


def fire(schedule: Schedule, *, by: str = "") -> DuctorResult:
    """One more firing, now, whether the schedule is on or off; its next one stays where it is.

    The rule of overlap holds: raises Overlaps. Else raises what an enqueue does, at once and never after a commit.
    """
    if schedule.overlap != Schedule.Overlap.ALLOW and schedule.last_job:
        standing = standings([schedule.last_job])[schedule.last_job]
        stays = schedule.overlap == Schedule.Overlap.SKIP or not cancelled(schedule.last_job)
        if standing is not Standing.OVER and stays:
            raise Overlaps(
                f"“{schedule.name}” was not fired: its last job {schedule.last_job} is not over, and its rule of "
                f"overlap is “{schedule.overlap}”."
            )
    moment_ms = now_ms()
    task = jobs.marked(jobs.task_of(schedule), schedule, moment_ms).using(on_commit=False)
    result: DuctorResult = task.enqueue(*schedule.args, **schedule.kwargs)
    Schedule.objects.filter(pk=schedule.pk).update(
        fired_ms=moment_ms, last_job=result.id, outcome=Schedule.Outcome.FIRED, note="fired by hand"
    )
    logger.info("A schedule was fired by hand", extra={"schedule": schedule.name, "job_id": result.id, "by": by})
    return result


def switch(schedules: Iterable[Schedule], *, on: bool, by: str = "") -> list[Schedule]:
    """Turn schedules on or off; those that were not so before. What passed while one was off is not missed."""
    turned = []
    for schedule in schedules:
        if schedule.enabled != on:
            schedule.enabled = on
            schedule.save(update_fields=["enabled"])
            turned.append(schedule)
    if turned:
        names = [schedule.name for schedule in turned]
        logger.info("Schedules were turned %s", "on" if on else "off", extra={"schedules": names, "by": by})
    return turned
