"""Makes the firings that are due. Called by every scheduler (`scheduler.duties.schedules`), leader or not.

A firing is made in one transaction: an UPDATE that holds only while the row still stands at this firing moves it to the
next one, and an outbox entry keeps the job. Of two schedulers the UPDATE lets one. Who dies before the commit has done
nothing; who dies after it leaves the entry, which the next relay sends. The job's id follows from schedule and moment,
so that sending it twice is one job.

What needs no transaction stands before it: whether the store answers (while it does not, nothing is fired, and the
catch-up rules hold afterwards), what became of the last job, and the jobs themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.db.models import QuerySet
from django.utils import timezone

from queueapp import metrics
from queueapp.conf import settings
from queueapp.errors import StoreError, UnknownTask
from queueapp.firings import ALL_MOST, LATE_MS, Due, due
from queueapp.models import OutboxEntry, Schedule
from queueapp.models.schedules import OFF
from queueapp.producer import entries, outbox
from queueapp.producer.preparation import Prepared
from queueapp.producer.relaying import send_claimed
from queueapp.producer.task import DuctorTask
from queueapp.schedules import jobs
from queueapp.schedules.standing import Standing, cancelled, standings
from queueapp.schedules.words import unreadable, why
from queueapp.store import shards
from queueapp.store.ids import new_id

logger = logging.getLogger(__name__)

ROWS = 100
FIRINGS = 500
"""One pass takes so many schedules and, beyond the first schedule, so many firings."""
CLAIM_S = 10.0
"""How long an entry is this pass's own to send; the relay sends what is left then."""
Outcome = Schedule.Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What one pass did."""

    fired: int = 0
    late: int = 0
    skipped: int = 0
    missed: int = 0
    refused: int = 0
    more: bool = False
    """There may be further ones that are due."""


@dataclass(slots=True, kw_only=True)
class _Plan:
    """What is to be done about one row, and what has come of it."""

    row: Schedule
    due: Due
    jobs: list[Prepared] = field(default_factory=list)
    skipped: int = 0
    missed: int = 0
    refused: int = 0
    outcome: str = ""
    note: str = ""
    won: bool = False


def fire_due(now_ms: int, *, aside: Iterable[int] = (), rows: int = ROWS) -> tuple[Passed, dict[int, str]]:
    """Make what is due at `now_ms`, at most `rows` schedules of it, but for those set aside.

    The second answer are schedules that this process cannot fire now and another one perhaps can, key → name: it does
    not know their task, which may be that of a newer release, or their time zone. Raises StoreError and DatabaseError,
    and loses nothing.
    """
    found = _due(now_ms, aside, rows)
    if not found:
        return Passed(), {}
    shards.pools()  # whether the store is there: raises when it is not
    plans: list[_Plan] = []
    unknown: dict[int, str] = {}
    firings = 0
    taken = _standings(found)
    for row in found:
        if plans and firings >= FIRINGS:
            break
        planned = _planned(row)
        if planned is None and now_ms - (row.next_ms or 0) < settings.unknown_task_grace_ms:
            unknown[row.pk] = row.name
            continue
        if row.plan != planned:
            _replan(row, now_ms)  # changed by SQL: what it says now counts from now on
            continue
        try:
            plan = _decide(row, now_ms, taken)
        except (StoreError, DatabaseError):
            raise
        except Exception as error:  # one row that SQL made unreadable must not keep the others waiting
            _set_aside(row, error)
            continue
        if plan is None:
            unknown[row.pk] = row.name
            continue
        plans.append(plan)
        firings += len(plan.jobs)
    entries = _claim(plans, now_ms)
    if entries:
        send_claimed(settings.database, entries[0].claim, entries)
    return _tell(plans, now_ms, more=len(plans) + len(unknown) < len(found) or len(found) == rows), unknown


def next_due_ms(aside: Iterable[int] = ()) -> int | None:
    """When the next firing of all is due; None when there is none."""
    planned = Schedule.objects.filter(enabled=True, next_ms__isnull=False).exclude(pk__in=[*aside])
    return planned.order_by("next_ms").values_list("next_ms", flat=True).first()


def repair(now_ms: int, after: int = 0, rows: int = 2_000) -> int:
    """Plan anew what changed without `save`, by `update()` or SQL. In turn: the answer is the next call's `after`."""
    found = list(Schedule.objects.filter(pk__gt=after).order_by("pk")[:rows])
    for row in found:
        planned = _planned(row)
        # One whose zone is not known here belongs to who planned it, until it is overdue (`fire_due`); one that was off
        # until now nobody has planned.
        if row.plan != planned and (planned is not None or row.plan == OFF):
            _replan(row, now_ms)
    return found[-1].pk if len(found) == rows else 0


def overdue(now_ms: int) -> int:
    """How many schedules should have fired more than a minute ago and have not."""
    return Schedule.objects.filter(enabled=True, next_ms__lt=now_ms - LATE_MS).count()


# -- before the transaction ----------------------------------------------------------------------------------------


def _due(now_ms: int, aside: Iterable[int], rows: int) -> list[Schedule]:
    due_rows = Schedule.objects.filter(enabled=True, next_ms__lte=now_ms).exclude(pk__in=[*aside])
    return list(due_rows.order_by("next_ms", "pk")[:rows])


def _standings(found: Sequence[Schedule]) -> dict[str, Standing]:
    """Public id → how the last job of those stands that must not run beside it."""
    return standings([row.last_job for row in found if row.overlap != Schedule.Overlap.ALLOW and row.last_job])


def _decide(row: Schedule, now_ms: int, taken: dict[str, Standing]) -> _Plan | None:
    """None: another process may know the task, which this one does not."""
    assert row.next_ms is not None
    task: DuctorTask | None = None
    fault: Exception | None = None
    try:
        task = jobs.task_of(row)
    except (StoreError, DatabaseError):
        raise
    except UnknownTask as error:
        if now_ms - row.next_ms < settings.unknown_task_grace_ms:
            return None
        fault = error
    except Exception as error:  # whatever its values may raise
        fault = error
    alone = row.overlap != Schedule.Overlap.ALLOW
    found = due(row.rule(), row.next_ms, now_ms, catch_up=row.catch_up, alone=alone)
    plan = _Plan(row=row, due=found, missed=found.missed)
    if isinstance(fault, UnknownTask) and (found.fire or found.missed):
        return _refuse(plan, fault)
    if not found.fire:
        # Without a missed one: newer time zones made another moment of it.
        plan.outcome, plan.note = (Outcome.MISSED, _missed(plan)) if found.missed else (row.outcome, row.note)
        return plan
    standing = taken.get(row.last_job, Standing.OVER)
    if row.overlap == Schedule.Overlap.SKIP and standing is not Standing.OVER:
        return _skip(plan, f"its last job {'waits' if standing is Standing.WAITS else 'runs'}: {row.last_job}")
    if fault is not None:
        return _refuse(plan, fault)
    try:
        plan.jobs = [jobs.prepared(row, moment_ms, now_ms, task) for moment_ms in found.fire]
    except (StoreError, DatabaseError):
        raise
    except Exception as error:  # whatever its values, or code of the host that is asked about them, may raise
        return _refuse(plan, error)
    if row.overlap == Schedule.Overlap.REPLACE and standing is not Standing.OVER and not cancelled(row.last_job, row):
        plan.jobs = []
        return _skip(plan, f"its last job is being sent, or was told to stop and has not ended: {row.last_job}")
    late = now_ms - found.fire[-1] > LATE_MS
    plan.outcome, plan.note = Outcome.LATE if late else Outcome.FIRED, _missed(plan)
    return plan


def _skip(plan: _Plan, why: str) -> _Plan:
    plan.skipped = len(plan.due.fire)
    plan.outcome, plan.note = Outcome.SKIPPED, why
    return plan


def _refuse(plan: _Plan, error: Exception) -> _Plan:
    plan.refused = len(plan.due.fire)
    plan.outcome, plan.note = Outcome.REFUSED, "; ".join(filter(None, [why(error), _missed(plan)]))
    return plan


def _missed(plan: _Plan) -> str:
    told = []
    if plan.missed:
        told.append(f"{plan.missed:,} missed")
    if plan.due.older:
        told.append(f"more than {ALL_MOST:,} were due: older ones are dropped")
    return "; ".join(told)


def _planned(row: Schedule) -> str | None:
    """None: this machine does not know its zone."""
    try:
        return row.planned()
    except (ValueError, OSError, LookupError):
        return None


def _replan(row: Schedule, now_ms: int) -> None:
    """Who reads the same row does the same; the condition keeps a later change from being overwritten."""
    seen = _seen(row)
    try:
        row.plan_anew(now_ms)
    except Exception as error:  # what SQL wrote, or a zone of another machine
        _set_aside(row, error, seen)
        return
    Schedule.objects.filter(**seen).update(plan=row.plan, next_ms=row.next_ms)


def _set_aside(row: Schedule, error: Exception, seen: dict[str, Any] | None = None) -> None:
    """It fires no more until what it says is another thing."""
    note = unreadable(row, error)
    logger.error("A schedule cannot be read: %s", note, extra={"schedule": row.name})
    changes = {"plan": _planned(row) or "", "next_ms": None, "outcome": Outcome.REFUSED, "note": note}
    Schedule.objects.filter(**(seen or _seen(row))).update(**changes)


def _seen(row: Schedule) -> dict[str, Any]:
    return {"pk": row.pk, "plan": row.plan, "next_ms": row.next_ms, "updated": row.updated}


# -- the transaction -----------------------------------------------------------------------------------------------


def _claim(plans: Sequence[_Plan], now_ms: int) -> list[OutboxEntry]:
    """Move each row on, if it still stands where it was read, and keep its jobs: all at once, or nothing."""
    if not plans:
        return []
    alias, claim = settings.database, new_id()
    until = timezone.now() + timedelta(seconds=CLAIM_S)
    with transaction.atomic(using=alias):
        free = _lock([plan.row.pk for plan in plans])
        kept: list[OutboxEntry] = []
        for plan in plans:
            plan.won = plan.row.pk in free and _move(plan, now_ms)
            if plan.won:
                kept += [entries.entry_of(each, due=until, claim=claim, tries=1) for each in plan.jobs]
        # One that is there already is this firing, made before: of a schedule that was deleted and made again.
        outbox.rows(alias).bulk_create(kept, ignore_conflicts=True)
    if not kept:
        return []
    return list(outbox.rows(alias).filter(job_id__in=[entry.job_id for entry in kept], claim=claim).order_by("pk"))


def _lock(keys: list[int]) -> set[int]:
    """Those that no other pass is moving just now. Where the database cannot tell, all: the UPDATE decides anyway."""
    if not connections[settings.database].features.has_select_for_update_skip_locked:
        return {*keys}
    rows: QuerySet[Any] = Schedule.objects.filter(pk__in=keys).order_by("pk").select_for_update(skip_locked=True)
    return {*rows.values_list("pk", flat=True)}


def _move(plan: _Plan, now_ms: int) -> bool:
    row, found = plan.row, plan.due
    changes: dict[str, Any] = {"next_ms": found.next_ms, "outcome": plan.outcome, "note": plan.note}
    if plan.jobs:
        last = plan.jobs[-1]
        public_id = shards.keys(last.pool).public_id(last.job.id)
        changes |= {"last_ms": found.fire[-1], "fired_ms": now_ms, "last_job": public_id}
    # `updated` is the moment of the last save: who edited the row meanwhile is heard first.
    standing = Schedule.objects.filter(
        pk=row.pk, enabled=True, next_ms=row.next_ms, plan=row.plan, updated=row.updated, last_job=row.last_job
    )
    return standing.update(**changes) == 1


# -- after it ------------------------------------------------------------------------------------------------------


def _tell(plans: Sequence[_Plan], now_ms: int, *, more: bool) -> Passed:
    counts = dict.fromkeys(metrics.FIRING_OUTCOMES, 0)
    for plan in plans:
        if not plan.won:
            continue
        late = sum(now_ms - moment_ms > LATE_MS for moment_ms in plan.due.fire) if plan.jobs else 0
        counts["fired"] += len(plan.jobs) - late
        counts["late"] += late
        for name in ("skipped", "missed", "refused"):
            counts[name] += getattr(plan, name)
        _log(plan)
    for name, number in counts.items():
        if number:
            metrics.SCHEDULE_FIRINGS.labels(name).inc(number)
    if counts["fired"] or counts["late"]:
        metrics.SCHEDULE_LAST_FIRING.set(now_ms / 1000)
    return Passed(**counts, more=more)


def _log(plan: _Plan) -> None:
    facts = {"schedule": plan.row.name, "task": plan.row.task, "moment_ms": [*plan.due.fire[-1:]]}
    if plan.outcome == Outcome.REFUSED:
        logger.error("A schedule's job was refused: %s", plan.note, extra=facts)
    elif plan.missed or plan.due.older:
        logger.warning("Firings of a schedule were missed: %s", plan.note, extra=facts)
    elif plan.outcome == Outcome.SKIPPED:
        logger.info("A schedule's firing was skipped: %s", plan.note, extra=facts)
    else:
        logger.debug("A schedule fired", extra=facts)
