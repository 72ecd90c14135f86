"""`path("api/ductor/", include("queueapp.api.urls"))`, under any prefix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from django.urls import path

from queueapp.api.views import JobsView, JobView

app_name = "ductor"


def _never_atomic(view: Callable[..., Any]) -> Callable[..., Any]:
    """Out of every ATOMIC_REQUESTS: a job that was answered for must not wait for a commit that may not come."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


urlpatterns = [
    path("jobs/", _never_atomic(JobsView.as_view()), name="jobs"),
    path("jobs/<str:job_id>/", _never_atomic(JobView.as_view()), name="job"),
]
