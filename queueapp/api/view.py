"""What every view of the API has in common: for whom it speaks, how it answers, what becomes of errors."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from queueapp.api import faults
from queueapp.api.grants import ALL, Tenants, signed_in, tenants_of
from queueapp.api.parser import StrictJSONParser, require_length
from queueapp.api.requests import Query, Strict, idempotency_key
from queueapp.api.schema import handled, inspector, needed
from queueapp.api.throttles import ACT, READ, TenantRate
from queueapp.errors import UnknownPool
from queueapp.inspection.jobs import JobView, find_job
from queueapp.inspection.pools import all_pools
from queueapp.permissions import full
from queueapp.producer.discovery import load_tasks, registry
from queueapp.producer.rows import require_pool
from queueapp.producer.task import DuctorTask

logger = logging.getLogger(__name__)


class AlwaysJSON(BaseContentNegotiation):
    """JSON, whatever is asked for."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return next(iter(renderers)), "application/json"


class DuctorView(APIView):
    """JSON in, JSON out, for the tenants that the host grants. Authentication is the host's own."""

    http_method_names = ["get", "head", "post"]  # noqa: RUF012  (as in the class above it)
    parser_classes: tuple[type[BaseParser], ...] = (StrictJSONParser,)
    renderer_classes: tuple[type[BaseRenderer], ...] = (JSONRenderer,)
    content_negotiation_class = AlwaysJSON
    schema = inspector()
    tenants: Tenants
    rate: TenantRate

    scope_of_post = ACT
    """The throttle's scope of POST; that of GET is `ductor-read`."""
    own_parts: frozenset[str] = frozenset()
    """Parts of the path that addresses of other views do not have."""

    # -- for whom ------------------------------------------------------------------------------------------------------

    def check_permissions(self, request: Request) -> None:
        """In place of permission classes: they could say yes or no, this says for whom. Then the permission that the
        operation needs, before anything is looked up, so that the refusal tells nothing about it.
        """
        self.tenants = tenants_of(request)
        permission = needed(type(self), request.method or "", operator=self.tenants is ALL)
        if permission and not self.allowed(permission):
            raise PermissionDenied(
                _("This needs the permission %(permission)s.") % {"permission": full(permission)}, code="permission"
            )

    def get_throttles(self) -> list[BaseThrottle]:
        """The host's own, and the rate of our scope if the host sets one."""
        self.rate = TenantRate(self.scope_of_post if self.request.method == "POST" else READ)
        return [*super().get_throttles(), self.rate]

    def one_tenant(self, named: str | None) -> str | None:
        """For whom a request is; None for all whom the user may speak for. Whoever may for one need not name it."""
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

    def allowed(self, permission: str) -> bool:
        """Whether the user has this permission of ours."""
        user: Any = signed_in(self.request)
        return user is not None and bool(user.has_perm(full(permission)))

    # -- what is asked for -----------------------------------------------------------------------------------------

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Once it is known who asks. What an operation does not know it must not do without: refused here, for all."""
        super().initial(request, *args, **kwargs)
        said = handled(type(self), request.method or "")
        if said is None:
            return
        (said.query or Query)().refuse_unknown(request.GET)
        require_length(request)
        (said.request or Strict)().refuse_unknown(request.data)

    def job(self, job_id: str) -> JobView:
        """The job of this id. 404 for every other: unknown, another tenant's, or of a task that is not for the API."""
        found = find_job(job_id)
        if found is None or not self.may_see(found):
            raise faults.not_found()
        return found

    def may_see(self, job: JobView) -> bool:
        """Whether a job may be told: of one's own tenant, and not of a task that is not for the API."""
        return job.record.tenant in self.tenants and is_told(job.record.task)

    def asked(self, query: type[Query]) -> dict[str, Any]:
        """The parameters of the request, checked."""
        found = query(given=self.request.GET)
        found.is_valid(raise_exception=True)
        values: dict[str, Any] = found.validated_data
        return values

    def idempotency_key(self) -> str | None:
        """What the header says; None for none."""
        try:
            return idempotency_key(self.request.headers.get("Idempotency-Key"))
        except ValidationError as error:
            raise ValidationError({"Idempotency-Key": error.detail}) from None

    def pool(self, name: str) -> str:
        """The name of a pool that is known here. 400 for every other."""
        try:
            require_pool(name)
        except UnknownPool:
            # One that left the settings may still have jobs.
            if self.tenants is not ALL or name not in all_pools():
                raise
        return name

    # -- answers -------------------------------------------------------------------------------------------------------

    def url(self, name: str, **parts: str) -> str:
        """The address of one of our views, under the prefix, namespace and arguments of the path that was asked."""
        here = self.request.resolver_match
        assert here is not None
        outer = {part: value for part, value in here.kwargs.items() if part not in self.own_parts}
        path = reverse(":".join([*here.namespaces, name]), kwargs={**outer, **parts})
        return self.request.build_absolute_uri(path)

    def job_url(self, job_id: str) -> str:
        return self.url("job", job_id=job_id)

    def next_url(self, cursor: str | None) -> str | None:
        """The address of the page that begins at `cursor`: this one's, with that cursor."""
        if cursor is None:
            return None
        query = self.request.GET.copy()
        query["cursor"] = cursor
        return self.request.build_absolute_uri(f"{self.request.path}?{query.urlencode()}")

    def handle_exception(self, exc: Exception) -> Response:
        if fault := faults.store_fault(exc):
            logger.warning("the API could not use the store", extra={"code": fault.code, "reason": str(fault)})
        return super().handle_exception(faults.translate(exc))

    def get_exception_handler(self) -> Any:
        # The answers are part of the API's contract, Retry-After included; a host's own handler is for its own views.
        return faults.answer

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


def is_told(name: str) -> bool:
    """Whether jobs of this task are told: those of the API, and of a task that is gone, which may have been one."""
    task = declared(name)
    return task is None or task.api


def declared(name: str) -> DuctorTask | None:
    """The task of this name that the project declares. Imports nothing but the apps' `tasks` modules."""
    load_tasks()
    return registry.get(name)
