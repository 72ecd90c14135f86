"""The pages of the demonstration: a tenant's uploads, one upload.

A real site takes the tenant from who is logged in; here it stands in the address, so that a script can be five tenants.
"""

from __future__ import annotations

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from ductor_project.demo.flows import receive
from ductor_project.demo.forms import UploadForm
from ductor_project.demo.models import Upload
from ductor_project.demo.tasks import send_summary
from flows.models import Run

SHOWN = 50


def start(request: HttpRequest) -> HttpResponse:
    """The tenants that have uploaded something."""
    tenants = Upload.objects.order_by("tenant").values("tenant").annotate(uploads=Count("pk"))
    return render(request, "demo/start.html", {"tenants": tenants})


@require_http_methods(["GET", "POST"])
def uploads(request: HttpRequest, tenant: str) -> HttpResponse:
    """A tenant's uploads and the form for another one."""
    form = UploadForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        name = form.cleaned_data["file"].name
        if form.cleaned_data["as_flow"]:
            upload = receive(tenant=tenant, name=name, text=form.text)
        else:
            upload = Upload.receive(tenant=tenant, name=name, text=form.text, pool=form.cleaned_data["pool"])
        return redirect("demo:upload", tenant=tenant, pk=upload.pk)
    shown = Upload.objects.filter(tenant=tenant)[:SHOWN]
    status = 400 if form.errors else 200
    return render(request, "demo/uploads.html", {"tenant": tenant, "form": form, "uploads": shown}, status=status)


def upload(request: HttpRequest, tenant: str, pk: int) -> HttpResponse:
    """How far an upload is, and each step of its flow if it has one."""
    found = get_object_or_404(Upload, tenant=tenant, pk=pk)
    run = Run.objects.filter(pk=found.run).first()
    context = {
        "upload": found,
        "run": run,
        "steps": run.steps.exclude(started_ms=None).order_by("started_ms", "pk") if run is not None else (),
        "imported": found.rows.count(),
        "faulty": found.rows.exclude(fault="").order_by("pk")[:SHOWN],
    }
    return render(request, "demo/upload.html", context)


@require_POST
def summary(request: HttpRequest, tenant: str, pk: int) -> HttpResponse:
    """Send the summary of an upload once more: a job enqueued from a view."""
    found = get_object_or_404(Upload, tenant=tenant, pk=pk)
    result = send_summary.using(tenant=tenant, queue_name=found.pool).enqueue(found.pk)
    messages.info(request, f"The summary is on its way: job {result.id}.")
    return redirect("demo:upload", tenant=tenant, pk=pk)
