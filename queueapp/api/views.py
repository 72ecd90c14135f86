"""The two views of the API. Everything they refuse becomes an answer in `faults`; no rule of the queue stands here."""

from __future__ import annotations

import logging
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler

from queueapp.api import faults
from queueapp.api.parser import StrictJSONParser
from queueapp.api.serializers import JobRequest, describe, idempotency_key
from queueapp.api.tenants import ALL, Tenants, tenants_of
from queueapp.producer.discovery import load_tasks, registry
from queueapp.producer.task import DuctorTask
from queueapp.store import shards

logger = logging.getLogger(__name__)

OPTIONS = ("lane", "priority", "run_after", "expires_after")
"""Fields that are options of `.using()` under the same name."""


class DuctorView(APIView):
    """JSON in, JSON out, for the tenants that the host grants. Authentication and throttling are the host's own."""

    parser_classes: tuple[type[BaseParser], ...] = (StrictJSONParser,)
    renderer_classes: tuple[type[BaseRenderer], ...] = (JSONRenderer,)
    tenants: Tenants

    def check_permissions(self, request: Request) -> None:
        """In place of permission classes: they could say yes or no, this says for whom."""
        self.tenants = tenants_of(request)

    def handle_exception(self, exc: Exception) -> Response:
        if fault := faults.store_fault(exc):
            logger.warning("the API could not use the store", extra={"code": fault.code, "reason": str(fault)})
        return super().handle_exception(faults.translate(exc))

    def get_exception_handler(self) -> Any:
        # The answers are part of the API's contract, Retry-After included; a host's own handler is for its own views.
        return exception_handler

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


class JobsView(DuctorView):
    """`POST jobs/` starts a job: 202 with its id, state and address."""

    def post(self, request: Request, **kwargs: Any) -> Response:
        asked = JobRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
        options = {name: values[name] for name in OPTIONS if name in values}
        task: DuctorTask = values["task"].using(
            tenant=self._tenant(values.get("tenant")),
            queue_name=values.get("pool"),
            idempotency_key=idempotency_key(request.headers),
            # Whatever the settings say: the answer must not promise what a later rollback would undo.
            on_commit=False,
            **options,
        )
        result = task.enqueue(*values["args"], **values["kwargs"])
        url = request.build_absolute_uri(_path_of(request, result.id))
        body = {
            "id": result.id,
            "state": _text(getattr(result, "state", None)),
            "outcome": _text(getattr(result, "outcome", None)),
            "url": url,
        }
        return Response(body, status.HTTP_202_ACCEPTED, headers={"Location": url})

    def _tenant(self, named: str | None) -> str | None:
        """For whom the job is. Whoever may speak for one tenant need not name it."""
        if named is not None:
            if named not in self.tenants:
                raise faults.not_found()
            return named
        if self.tenants is ALL:
            return None
        if len(self.tenants) == 1:
            return next(iter(self.tenants))
        if not self.tenants:
            raise PermissionDenied(_("This user may not speak for any tenant."), code="no_tenant")
        raise ValidationError({"tenant": [_("Say for which tenant: you may speak for several.")]})


class JobView(DuctorView):
    """`GET jobs/{id}/`: where a job stands and, when it has completed, its result."""

    def get(self, request: Request, job_id: str, **kwargs: Any) -> Response:
        place = shards.locate(job_id)
        job = shards.reads(place[0]).job(place[1]) if place is not None else None
        if place is None or job is None or job.tenant not in self.tenants:
            raise faults.not_found()
        load_tasks()
        task = registry.get(job.task)
        if task is not None and not task.api:
            raise faults.not_found()
        # A task that is gone from the code may not have been one of the API's: its state is told, its result not.
        return Response(describe(job, job_id, place[0], with_result=task is not None))


def _path_of(request: Request, job_id: str) -> str:
    """The path of a job, under the prefix, namespace and arguments of the path that was asked."""
    here = request.resolver_match
    assert here is not None
    return reverse(":".join([*here.namespaces, "job"]), kwargs={**here.kwargs, "job_id": job_id})


def _text(value: object) -> str | None:
    return None if value is None else str(value)
