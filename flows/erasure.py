"""The runs of a tenant, to be erased with all else of it (`manage.py ductor erase`)."""

from __future__ import annotations

from flows import models

SHARE = 50
"""Runs that are deleted at a time, with their steps, items and events."""


class RunsOf:
    """See `queueapp.extensions.Owned`. Jobs and wake-ups that are under way find that their run is gone, and end."""

    def __init__(self, tenant: str) -> None:
        self._runs = models.Run.objects.filter(tenant=tenant)

    def count(self) -> int:
        return self._runs.count()

    def delete(self) -> tuple[int, None]:
        """How many runs went. A parent may outlive its sub-run: then that step has lost it."""
        gone = 0
        while ids := list(self._runs.values_list("id", flat=True)[:SHARE]):
            models.Run.objects.filter(pk__in=ids).delete()
            gone += len(ids)
        return gone, None
