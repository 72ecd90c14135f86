"""The system checks that read tables: `migrate` runs them, and `manage.py check --database default`. Never the store.

`apps.ready()` imports this module, which registers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register
from django.db.models import F, Sum
from django.db.utils import DatabaseError

from queueapp.checks import settings_are_valid
from queueapp.models import Pool
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
