"""Declared schedules become rows: called by each scheduler that starts, before it fires anything.

What code says is written over what the row says; whether a schedule is on is the admin's business. What is no longer
declared is turned off, and comes back as it was when it is declared again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ValidationError
from django.db import Error as DatabaseError
from django.db import IntegrityError, transaction
from django.utils import timezone

from queueapp.conf import settings
from queueapp.errors import StoreError
from queueapp.models import Schedule
from queueapp.producer.discovery import load_tasks
from queueapp.schedules.declared import Declaration, registry
from queueapp.schedules.words import why

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What `bring_into_rows` did, by name."""

    made: Sequence[str]
    changed: Sequence[str]
    gone: Sequence[str]
    returned: Sequence[str]
    refused: Mapping[str, str]
    """Name → why what is declared is not in force."""


def bring_into_rows() -> Brought:
    """Make and change rows as the code says, and turn those off that it no longer declares.

    Any number of processes may do so at once. Where releases differ, the scheduler that started last decides.
    """
    broken = load_tasks()
    made: list[str] = []
    changed: list[str] = []
    gone: list[str] = []
    returned: list[str] = []
    refused: dict[str, str] = {}
    for name, declaration in sorted(registry.items()):
        row = Schedule.objects.filter(name=name).first()
        try:
            if row is None:
                _new(declaration)
                made.append(name)
            elif row.source == Schedule.Source.ADMIN:
                raise ValidationError("a schedule of this name was made in the admin: rename one of the two.")
            else:
                (returned if row.source == Schedule.Source.GONE else changed).extend(_write(row, declaration))
        except (StoreError, DatabaseError):
            raise
        except Exception as error:  # whatever the values of one may raise: the others are in force all the same
            refused[name] = " ".join(error.messages) if isinstance(error, ValidationError) else why(error)
            logger.error("A schedule that code declares is not in force: %s", refused[name], extra={"schedule": name})
    if broken:
        modules = ", ".join(each.module for each in broken)
        logger.error("Schedules that are no longer declared stay on: %s cannot be imported", modules)
    else:
        gone = _turn_off()
    done = Brought(made=made, changed=changed, gone=gone, returned=returned, refused=refused)
    for what in ("made", "changed", "gone", "returned"):
        if names := getattr(done, what):
            logger.info("Schedules of the code: %s", what, extra={"schedules": names})
    return done


def _new(declaration: Declaration) -> None:
    row = Schedule(**_stored(declaration), source=Schedule.Source.CODE)
    row.full_clean()
    try:
        with transaction.atomic(using=settings.database):
            row.save()
    except IntegrityError:
        logger.debug("Another scheduler made it first", extra={"schedule": declaration.name})


def _write(row: Schedule, declaration: Declaration) -> list[str]:
    """The name when there was something to write."""
    wanted = _stored(declaration)
    if row.source == Schedule.Source.GONE:
        wanted |= {"source": Schedule.Source.CODE, "enabled": row.enabled or row.resume, "resume": False}
    changes = {name: value for name, value in wanted.items() if getattr(row, name) != value}
    if not changes:
        return []
    for name, value in changes.items():
        setattr(row, name, value)
    row.full_clean()
    row.save(update_fields=set(changes))
    return [row.name]


def _turn_off() -> list[str]:
    rows = Schedule.objects.filter(source=Schedule.Source.CODE).exclude(name__in=[*registry])
    gone = []
    for row in rows:
        row.source, row.resume, row.enabled = Schedule.Source.GONE, row.enabled, False
        row.save(update_fields={"source", "resume", "enabled"})
        gone.append(row.name)
    if gone:
        logger.warning("Schedules that are no longer declared in code are off", extra={"schedules": gone})
    return gone


def _stored(declaration: Declaration) -> dict[str, Any]:
    """As a row has it: without USE_TZ moments are naive."""
    found = declaration.values()
    for name in ("start", "end"):
        if found[name] is not None and not django_settings.USE_TZ:
            found[name] = timezone.make_naive(found[name], timezone.get_default_timezone())
    return found
