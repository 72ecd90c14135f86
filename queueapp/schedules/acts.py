"""What people do to schedules: fire one now, turn some on or off. One function for each, whatever the skin."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta

from django.db import Error as DatabaseError
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from queueapp.conf import settings
from queueapp.errors import DuctorError, InvalidOption, StoreError
from queueapp.models import OutboxEntry, Schedule
from queueapp.moments import now_ms
from queueapp.producer import client, entries, outbox, rows
from queueapp.producer.preparation import Prepared, prepare
from queueapp.producer.results import DuctorResult
from queueapp.producer.sending import send_each
from queueapp.schedules import jobs
from queueapp.schedules.standing import Standing, cancelled, standings
from queueapp.schedules.words import unreadable, why
from queueapp.store import shards
from queueapp.store.ids import new_id

logger = logging.getLogger(__name__)

CLAIM_S = 10.0
"""How long the outbox entry of a firing by hand is its maker's own to send; the relay sends what is left then."""


class Overlaps(DuctorError):
    """The schedule's last job is not over, and its rule of overlap says that no other one may be beside it."""

    code = "overlaps"


def fire(schedule: Schedule, *, by: str = "") -> DuctorResult:
    """One more firing, now, whether the schedule is on or off; its next one stays where it is.

    Written down before it is sent, under a condition, with an outbox entry that keeps the job: of two people who fire
    at the same moment one does. The rule of overlap holds: raises Overlaps. Else raises what an enqueue does, at once
    and never after a commit. When the store goes away in between, the outbox sends the job.
    """
    _require_free(schedule)
    shards.pools()  # whether the store is there: raises when it is not
    moment_ms = now_ms()
    prepared = _prepared(schedule, moment_ms)
    public_id = shards.keys(prepared.pool).public_id(prepared.job.id)
    _keep(schedule, prepared, public_id, moment_ms)
    [answer] = send_each([(prepared.pool, prepared.job)])
    if isinstance(answer, StoreError):
        # Whether it took the job is not known. Sent twice it is one job, so that the entry is right to stay.
        logger.warning("A schedule was fired by hand; the outbox sends its job", extra={"job_id": public_id, "by": by})
        return prepared.deferred()
    try:
        accepted = client.check(prepared, answer)
    except DuctorError:
        _undo(schedule, public_id)
        raise
    _entry(public_id).delete()
    if accepted.outcome in client.STAND_INS:
        [result] = client.standing_in([client.Replay(prepared, accepted)])
        Schedule.objects.filter(pk=schedule.pk, last_job=public_id).update(last_job=result.id)
    else:
        result = prepared.result(accepted)
        client.announce(prepared, result)
    logger.info("A schedule was fired by hand", extra={"schedule": schedule.name, "job_id": result.id, "by": by})
    return result


def switch(schedules: Iterable[Schedule], *, on: bool, by: str = "") -> list[Schedule]:
    """Turn schedules on or off; those that were not so before. What passed while one was off is not missed.

    One that code declares no longer stays off: it would be turned off again by the next scheduler that starts. Raises
    InvalidOption, when the others are turned, for one of which nobody can say when it would fire.
    """
    turned = []
    fault: InvalidOption | None = None
    for schedule in schedules:
        if schedule.enabled == on or (on and schedule.source == Schedule.Source.GONE):
            continue
        schedule.enabled = on
        try:
            schedule.save(update_fields=["enabled"])
        except (ValueError, OSError, LookupError, OverflowError) as error:  # as SQL wrote it
            schedule.enabled = not on
            fault = fault or InvalidOption(f"“{schedule.name}” was not turned on: {unreadable(schedule, error)}.")
        else:
            turned.append(schedule)
    if turned:
        names = [schedule.name for schedule in turned]
        logger.info("Schedules were turned %s", "on" if on else "off", extra={"schedules": names, "by": by})
    if fault is not None:
        raise fault
    return turned


# -- parts of a firing by hand -------------------------------------------------------------------------------------


def _require_free(schedule: Schedule) -> None:
    """Raises Overlaps while the last job is in the way; under `replace` it is cancelled, or told to stop."""
    if schedule.overlap == Schedule.Overlap.ALLOW or not schedule.last_job:
        return
    if standings([schedule.last_job])[schedule.last_job] is Standing.OVER:
        return
    if schedule.overlap == Schedule.Overlap.SKIP or not cancelled(schedule.last_job, schedule):
        raise _overlaps(schedule, f"its last job {schedule.last_job} is not over")


def _prepared(schedule: Schedule, moment_ms: int) -> Prepared:
    try:
        task = jobs.marked(jobs.task_of(schedule), schedule, moment_ms)
        prepared = prepare(task, schedule.args, schedule.kwargs)
        rows.require_pool(prepared.pool)
        rows.require_tenant(prepared.job.tenant)
    except (DuctorError, DatabaseError):
        raise
    except Exception as error:  # whatever its values, or code of the host that is asked about them, may raise
        raise InvalidOption(f"“{schedule.name}” was not fired: {why(error)}.") from error
    return prepared


def _keep(schedule: Schedule, prepared: Prepared, public_id: str, moment_ms: int) -> None:
    """Write the firing down and its job into the outbox, or raise Overlaps: somebody else fired meanwhile."""
    alias = settings.database
    standing = Schedule.objects.filter(pk=schedule.pk)
    if schedule.overlap != Schedule.Overlap.ALLOW:
        standing = standing.filter(last_job=schedule.last_job)
    until = timezone.now() + timedelta(seconds=CLAIM_S)
    changes = {"fired_ms": moment_ms, "last_job": public_id, "outcome": Schedule.Outcome.FIRED, "note": "fired by hand"}
    with transaction.atomic(using=alias):
        if not standing.update(**changes):
            raise _overlaps(schedule, "it has been fired since, or was deleted")
        outbox.rows(alias).bulk_create([entries.entry_of(prepared, due=until, claim=new_id(), tries=1)])


def _undo(schedule: Schedule, public_id: str) -> None:
    """The store refused the job: the row stands as it did."""
    before = {name: getattr(schedule, name) for name in ("fired_ms", "last_job", "outcome", "note")}
    with transaction.atomic(using=settings.database):
        _entry(public_id).delete()
        Schedule.objects.filter(pk=schedule.pk, last_job=public_id).update(**before)


def _entry(public_id: str) -> QuerySet[OutboxEntry]:
    return outbox.rows(settings.database).filter(job_id=public_id)


def _overlaps(schedule: Schedule, reason: str) -> Overlaps:
    return Overlaps(f"“{schedule.name}” was not fired: {reason}, and its rule of overlap is “{schedule.overlap}”.")
