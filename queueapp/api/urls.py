"""`path("api/ductor/", include("queueapp.api.urls"))`, under any prefix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from django.urls import path

from queueapp.api.actions import CancelView, DiscardLetterView, RetryLettersView, RetryLetterView, RetryView
from queueapp.api.bulk import BulkView
from queueapp.api.deadletters import DeadLettersView, DeadLetterView
from queueapp.api.editing import EditLetterView
from queueapp.api.jobs import JobsView, JobView, ResultView, WhyView
from queueapp.api.matching import CancelMatchingView, DiscardMatchingView, RetryMatchingView
from queueapp.api.operating import (
    DrainPoolView,
    ObliteratePoolView,
    PausePoolView,
    PauseTenantView,
    ResumePoolView,
    ResumeTenantView,
)
from queueapp.api.pools import PoolsView, PoolView
from queueapp.api.schedules import SchedulesView, ScheduleView
from queueapp.api.tenants import TenantsView, TenantView
from queueapp.api.view import DuctorView

app_name = "ductor"


def never_atomic(view: type[DuctorView]) -> Callable[..., Any]:
    """Out of every ATOMIC_REQUESTS: a job that was answered for must not wait for a commit that may not come."""
    made: Callable[..., Any] = view.as_view()
    for alias in connections:
        made = transaction.non_atomic_requests(using=alias)(made)
    return made


ROUTES: dict[str, tuple[str, type[DuctorView]]] = {
    "jobs": ("jobs/", JobsView),
    # Before the next but one: “bulk” is no job's id.
    "jobs-bulk": ("jobs/bulk/", BulkView),
    "jobs-cancel-matching": ("jobs/cancel-matching/", CancelMatchingView),
    "job": ("jobs/<str:job_id>/", JobView),
    "job-result": ("jobs/<str:job_id>/result/", ResultView),
    "job-why": ("jobs/<str:job_id>/why/", WhyView),
    "job-cancel": ("jobs/<str:job_id>/cancel/", CancelView),
    "job-retry": ("jobs/<str:job_id>/retry/", RetryView),
    "dead-letters": ("dead-letters/", DeadLettersView),
    "dead-letters-retry": ("dead-letters/retry/", RetryLettersView),
    "dead-letters-retry-matching": ("dead-letters/retry-matching/", RetryMatchingView),
    "dead-letters-discard-matching": ("dead-letters/discard-matching/", DiscardMatchingView),
    "dead-letter": ("dead-letters/<str:job_id>/", DeadLetterView),
    "dead-letter-edit": ("dead-letters/<str:job_id>/edit/", EditLetterView),
    "dead-letter-retry": ("dead-letters/<str:job_id>/retry/", RetryLetterView),
    "dead-letter-discard": ("dead-letters/<str:job_id>/discard/", DiscardLetterView),
    "pools": ("pools/", PoolsView),
    "pool": ("pools/<str:pool_name>/", PoolView),
    "pool-pause": ("pools/<str:pool_name>/pause/", PausePoolView),
    "pool-resume": ("pools/<str:pool_name>/resume/", ResumePoolView),
    "pool-drain": ("pools/<str:pool_name>/drain/", DrainPoolView),
    "pool-obliterate": ("pools/<str:pool_name>/obliterate/", ObliteratePoolView),
    "schedules": ("schedules/", SchedulesView),
    "schedule": ("schedules/<str:schedule_id>/", ScheduleView),
    "tenants": ("tenants/", TenantsView),
    "tenant": ("tenants/<str:tenant_key>/", TenantView),
    "tenant-pause": ("tenants/<str:tenant_key>/pause/", PauseTenantView),
    "tenant-resume": ("tenants/<str:tenant_key>/resume/", ResumeTenantView),
}
"""Name → path and view."""

urlpatterns = [path(route, never_atomic(view), name=name) for name, (route, view) in ROUTES.items()]
