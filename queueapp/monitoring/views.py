"""The site's own page of metrics, and its probes.

The metrics name pools and tenants: they are for users with `view_operations`. Let Prometheus scrape scheduler and
worker instead, whose ports only the inside reaches. The probes are open and say nothing that helps an outsider.
"""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from queueapp.inspection.collector import STORE
from queueapp.monitoring.health import outside
from queueapp.monitoring.page import directory, page
from queueapp.permissions import VIEW_OPERATIONS, full

TEXT = "text/plain; charset=utf-8"
PERMISSION = full(VIEW_OPERATIONS)


@never_cache
@require_safe
@transaction.non_atomic_requests
def metrics(request: HttpRequest) -> HttpResponse:
    """What this site's processes have counted, and how the pools stand."""
    user = getattr(request, "user", None)
    if user is None or not user.has_perm(PERMISSION):
        return HttpResponse(f"the permission {PERMISSION} is needed\n", status=403, content_type=TEXT)
    text, content_type = page(request.headers.get("Accept", ""), [STORE], directory())
    return HttpResponse(text, content_type=content_type)


@never_cache
@require_safe
@transaction.non_atomic_requests
def healthz(request: HttpRequest) -> HttpResponse:
    """This process answers requests."""
    return HttpResponse("ok\n", content_type=TEXT)


@never_cache
@require_safe
@transaction.non_atomic_requests
def readyz(request: HttpRequest) -> HttpResponse:
    """The site can enqueue: store and database answer."""
    wrong = outside()
    return HttpResponse(f"{wrong or 'ok'}\n", status=503 if wrong else 200, content_type=TEXT)
