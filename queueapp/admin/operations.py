"""The pools as they stand: all of them in one table, and each with its workers, tenants and notes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.translation import gettext as _

from queueapp.admin import operating
from queueapp.admin.choosing import OFFSET_MOST, address, number
from queueapp.admin.operating import OPERATIONS
from queueapp.admin.pages import POST, Pages, allowed, choose_pool, draw
from queueapp.admin.showing import span
from queueapp.conf import settings
from queueapp.inspection.overview import LIVE_MS, WorkerStatus, pool_status
from queueapp.models import Operations
from queueapp.permissions import OPERATE_POOL, VIEW_OPERATIONS
from queueapp.store.census import Sizes, census

POOLS_PER_PAGE = 100
TENANTS_SHOWN = 50
WORKERS_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLine:
    """A pool in the table; `sizes` is None while the store is away."""

    name: str
    url: str
    jobs_url: str
    dead_url: str
    sizes: Sizes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLine:
    """A worker of a pool."""

    id: str
    name: str
    held: int
    slots: str
    silent: str
    live: bool


@admin.register(Operations)
class OperationsAdmin(Pages):
    """What `manage.py ductor status` says, as pages."""

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.overview_page, "changelist"),
            self.route("<str:pool>/", self.pool_page, "pool"),
            self.route(
                "<str:pool>/operate/", self.operate, "operate", needs=(VIEW_OPERATIONS, OPERATE_POOL), methods=POST
            ),
        ]

    def overview_page(self, request: HttpRequest) -> HttpResponse:
        """Every pool that settings, rows or the store know, with its sizes."""
        choice = choose_pool(request)
        offset = number(request.GET, "offset", most=OFFSET_MOST)
        names = choice.names[offset : offset + POOLS_PER_PAGE]
        answer = choice.ask(lambda _: census(names, live_ms=max(LIVE_MS, 2 * settings.lease_ms)))
        following = offset + POOLS_PER_PAGE
        context = {
            "fault": answer.fault,
            "pools": [self._line(name, (answer.value or {}).get(name)) for name in names],
            "previous": address("", {"offset": max(0, offset - POOLS_PER_PAGE)}) if offset else "",
            "first_page": self._url("changelist"),
            "offset": offset,
            "next": address("", {"offset": following}) if following < len(choice.names) else "",
        }
        return draw(self, request, "overview.html", _("Pools at work"), context)

    def pool_page(self, request: HttpRequest, pool: str) -> HttpResponse:
        """One pool: sizes, notes, workers, who waits most, totals."""
        choice = choose_pool(request)
        if pool not in choice.names:
            raise Http404(_("There is no pool of this name."))
        answer = choice.ask(lambda _: pool_status(pool))
        status = answer.value
        context: dict[str, object] = {
            "choice": choice,
            "pool": pool,
            "fault": answer.fault,
            "status": status,
            "line": self._line(pool, None),
            "operations": OPERATIONS.items() if allowed(request, OPERATE_POOL) else (),
            "operate_url": self._url("operate", pool),
        }
        if status is not None:
            context |= {
                "oldest": span(timedelta(milliseconds=status.oldest_wait_ms)) if status.oldest_wait_ms else "",
                "workers": [_worker(worker) for worker in status.workers[:WORKERS_SHOWN]],
                "more_workers": max(0, len(status.workers) - WORKERS_SHOWN),
                "tenants": [
                    (tenant, waiting, address(self._jobs(), {"pool": pool, "state": "pending", "tenant": tenant}))
                    for tenant, waiting in list(status.tenants.items())[:TENANTS_SHOWN]
                ],
                "more_tenants": max(0, len(status.tenants) - TENANTS_SHOWN),
                "stats": status.stats.items(),
            }
        return draw(self, request, "pool.html", _("Pool %(pool)s") % {"pool": pool}, context)

    def operate(self, request: HttpRequest, pool: str) -> HttpResponse:
        return operating.operate(self, request, pool, back=self._url("pool", pool))

    def _line(self, name: str, sizes: Sizes | None) -> PoolLine:
        return PoolLine(
            name=name,
            url=self._url("pool", name),
            jobs_url=address(self._jobs(), {"pool": name}),
            dead_url=address(
                reverse("admin:queueapp_deadletters_changelist", current_app=self.admin_site.name), {"pool": name}
            ),
            sizes=sizes,
        )

    def _jobs(self) -> str:
        return reverse("admin:queueapp_jobs_changelist", current_app=self.admin_site.name)

    def _url(self, name: str, *args: str) -> str:
        return reverse(f"admin:queueapp_operations_{name}", args=args, current_app=self.admin_site.name)


def _worker(worker: WorkerStatus) -> WorkerLine:
    return WorkerLine(
        id=worker.id,
        name=worker.info.get("name", ""),
        held=worker.held,
        slots=worker.info.get("slots", ""),
        silent=span(timedelta(milliseconds=worker.silent_ms)),
        live=worker.live,
    )
