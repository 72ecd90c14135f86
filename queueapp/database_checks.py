"""The system checks that read tables: `migrate` runs them, and `manage.py check --database default`. Never the store.

`apps.ready()` imports this module, which registers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db.models import F, Sum
from django.db.utils import DatabaseError

from queueapp.checks import settings_are_valid
from queueapp.models import Pool, Schedule
from queueapp.models.limits import minima_at_most


@register(Tags.database)
def check_minima(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """W040: guaranteed minima that leave less than a tenth of a pool's ceiling for the turns of its policy."""
    loaded, faults = settings_are_valid()
    if faults or loaded.database not in (databases or ()):
        return []
    try:
        pools = list(
            Pool.objects.filter(max_in_flight__gt=0)
            .annotate(minima=Sum("limits__min_share"))
            .filter(minima__gt=F("max_in_flight") * 9 / 10)
            .order_by("name")
            .values_list("name", "max_in_flight", "minima")
        )
    except DatabaseError:
        return []  # there are no tables yet: it is `migrate` that asks
    return [
        Warning(
            f"The guaranteed minima in the pool {name!r} add up to {minima}, more than 90% of its ceiling, {ceiling}.",
            hint=f"Raise the ceiling, or lower minima to {minima_at_most(ceiling or 0)} together: what they take, the "
            "turns of the others cannot have.",
            id="queueapp.W040",
        )
        for name, ceiling, minima in pools
    ]


@register(Tags.database)
def check_schedules(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """W041: a schedule that is on and whose job would be refused, or that nobody can read. Each fault names its field.

    W042: one that code declared and declares no longer, so that it is off.
    """
    loaded, faults = settings_are_valid()
    if faults or loaded.database not in (databases or ()):
        return []
    try:
        rows = list(Schedule.objects.order_by("name")[:SCHEDULES_MOST])
    except DatabaseError:
        return []
    messages: list[CheckMessage] = []
    for row in rows:
        if row.source == Schedule.Source.GONE:
            messages.append(
                Warning(
                    f"The schedule {row.name!r} is no longer declared in code: it is off.",
                    hint="Delete it in the admin, or declare it again.",
                    id="queueapp.W042",
                )
            )
        elif row.enabled:
            messages += [
                Warning(
                    f"The schedule {row.name!r} cannot fire: {text}",
                    hint=f"Correct {'it' if field == NON_FIELD_ERRORS else f'its {field}'} "
                    f"{'in code' if row.source == Schedule.Source.CODE else 'in the admin'}, or turn it off.",
                    id="queueapp.W041",
                )
                for field, text in _faults(row)
            ]
    return messages


SCHEDULES_MOST = 2_000


def _faults(row: Schedule) -> list[tuple[str, str]]:
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        return [(field, text) for field, texts in error.message_dict.items() for text in texts]
    except DatabaseError:
        raise
    except Exception as error:  # as SQL wrote it: the other rows are looked at all the same
        return [(NON_FIELD_ERRORS, f"{type(error).__name__} was raised while it was looked at")]
    return []
