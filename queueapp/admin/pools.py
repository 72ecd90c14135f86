"""Pools in the admin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from queueapp import sync
from queueapp.admin.widgets import NARROW_NUMBERS
from queueapp.errors import DuctorError
from queueapp.models import Pool

if TYPE_CHECKING:
    PoolBase = admin.ModelAdmin[Pool]
else:
    PoolBase = admin.ModelAdmin


@admin.register(Pool)
class PoolAdmin(PoolBase):
    """A pool's name stays after creation; a pool that holds jobs cannot be deleted."""

    list_display = ("name", "policy", "max_in_flight", "paused", "code", "updated")
    list_editable = ("max_in_flight", "paused")
    list_filter = ("policy", "paused")
    search_fields = ("name", "code")
    formfield_overrides: ClassVar = NARROW_NUMBERS
    readonly_fields = ("code", "created", "updated")
    fieldsets = (
        (None, {"fields": ("name", "policy", "max_in_flight", "paused")}),
        (
            _("Weights and costs"),
            {
                "fields": ("default_weight", "cost_unit", "default_cost"),
                "description": _("What holds for tenants and tasks of which nothing else is known."),
            },
        ),
        (_("Record"), {"fields": ("code", "created", "updated")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Pool | None = None) -> tuple[str, ...]:
        return self.readonly_fields if obj is None else ("name", *self.readonly_fields)

    def get_fieldsets(self, request: HttpRequest, obj: Pool | None = None) -> Any:
        # A pool to be has no record yet.
        return self.fieldsets[:-1] if obj is None else self.fieldsets

    def get_deleted_objects(
        self, objs: QuerySet[Pool] | Iterable[Pool], request: HttpRequest
    ) -> tuple[list[Any], dict[Any, Any], set[Any], list[Any]]:
        """Both ways to delete come through here. What is protected is listed on the page and is not deleted."""
        pools = list(objs)
        found, counts, lacking, protected = super().get_deleted_objects(pools, request)
        for kept in _kept(pools):
            messages.error(request, kept.remedy)
            protected.append(kept.jobs)
        return found, counts, lacking, protected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Why a pool must not be deleted: the jobs that would go with it, and what to do about them."""

    jobs: str
    remedy: str


def _kept(pools: Iterable[Pool]) -> Iterator[_Kept]:
    for pool in pools:
        try:
            known = sync.overview(pool.name)
        except DuctorError as error:
            yield _Kept(
                jobs=gettext("Jobs of the pool “%(pool)s”, if there are any") % {"pool": pool.name},
                remedy=gettext(
                    "A pool is not deleted while nobody can say whether it has jobs. %(reason)s Try again later."
                )
                % {"reason": str(error)},
            )
            # With the store away every further question would take its second as well.
            return
        # Waiting includes what is scheduled; what has ended is kept for its result only and needs no pool.
        jobs = known.waiting + known.active + known.dead
        if jobs:
            counts = {"jobs": jobs, "waiting": known.waiting, "active": known.active, "dead": known.dead}
            yield _Kept(
                jobs=ngettext(
                    "%(jobs)d job (%(waiting)d waiting, %(active)d running, %(dead)d dead) of the pool “%(pool)s”",
                    "%(jobs)d jobs (%(waiting)d waiting, %(active)d running, %(dead)d dead) of the pool “%(pool)s”",
                    jobs,
                )
                % {"pool": pool.name, **counts},
                remedy=ngettext(
                    "The pool “%(pool)s” still has %(jobs)d job: let it end, cancel or discard it first.",
                    "The pool “%(pool)s” still has %(jobs)d jobs: let them end, cancel or discard them first.",
                    jobs,
                )
                % {"pool": pool.name, "jobs": jobs},
            )
