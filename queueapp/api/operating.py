"""Pause, resume, drain and obliterate: pools, for who may speak for every tenant; tenants, for who may speak for them.

All of it needs the permission `queueapp.operate_pool`. For whoever may speak for some tenants only, a pool is nothing
that could be paused: 404, as for what does not exist. The work is that of the terminal and the admin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from rest_framework import status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp import sync
from queueapp.api import faults, operator_shapes
from queueapp.api.actions import user_name
from queueapp.api.grants import ALL
from queueapp.api.requests import Obliterate, PauseTenant
from queueapp.api.schema import Text, operation
from queueapp.api.view import DuctorView
from queueapp.errors import Reopened, StillRunning, UnknownPool
from queueapp.inspection.draining import left, pause_at_once
from queueapp.inspection.obliteration import MOST_OF_REQUEST_S, obliterate
from queueapp.names import TENANT_FORM
from queueapp.permissions import OPERATE_POOL
from queueapp.store import shards

POOL = {"pool_name": _("Name of the pool.")}
TENANT = {"tenant_key": _("The tenant's id.")}


class OperatingView(DuctorView):
    """What the views have in common: what an operator names."""

    def whole_pool(self, name: str) -> str:
        """A pool that is known here, for who may speak for every tenant. 404 for everybody and everything else."""
        if self.tenants is not ALL:
            raise faults.not_found()
        try:
            return self.pool(name)
        except UnknownPool:
            raise faults.not_found() from None

    def pausing(self, act: Callable[..., sync.Paused], pool: str, tenant: str = "", lane: str = "") -> Response:
        """Pauses or resumes, and says how it stands then."""
        found = act(pool, tenant=tenant, lane=lane, by=user_name(self.request))
        return Response(
            {
                "pool": pool,
                "tenant": tenant or None,
                "lane": lane or None,
                "paused": found.paused,
                "changed": found.changed,
                "in_force": found.in_force,
            }
        )

    def tenant_of_pool(self, tenant_key: str) -> tuple[str, str]:
        """(pool, lane) that the request names, once the tenant is one's own."""
        if tenant_key not in self.tenants or not TENANT_FORM.fullmatch(tenant_key):
            raise faults.not_found()
        asked = PauseTenant(data=self.request.data)
        asked.is_valid(raise_exception=True)
        return self.pool(asked.validated_data["pool"]), asked.validated_data.get("lane", "")


def pausing_pool(name: str, summary: Text, act: Callable[..., sync.Paused]) -> Callable[..., Response]:
    """The `post` of pause and of resume."""

    @operation(name, summary, path=POOL, answers={200: operator_shapes.Paused}, faults=(404,), needs=OPERATE_POOL)
    def post(view: OperatingView, request: Request, pool_name: str, **kwargs: Any) -> Response:
        return view.pausing(act, view.whole_pool(pool_name))

    return post


def pausing_tenant(name: str, summary: Text, act: Callable[..., sync.Paused]) -> Callable[..., Response]:
    """The same for a tenant, or a lane of it, in a pool."""

    @operation(
        name,
        summary,
        path=TENANT,
        request=PauseTenant,
        answers={200: operator_shapes.Paused},
        faults=(404,),
        needs=OPERATE_POOL,
    )
    def post(view: OperatingView, request: Request, tenant_key: str, **kwargs: Any) -> Response:
        pool, lane = view.tenant_of_pool(tenant_key)
        return view.pausing(act, pool, tenant_key, lane)

    return post


class PausePoolView(OperatingView):
    """`POST pools/{name}/pause/`."""

    post = pausing_pool("ductor_pools_pause", _("Pause a pool"), sync.pause)


class ResumePoolView(OperatingView):
    """`POST pools/{name}/resume/`."""

    post = pausing_pool("ductor_pools_resume", _("Resume a pool"), sync.resume)


class PauseTenantView(OperatingView):
    """`POST tenants/{key}/pause/`."""

    post = pausing_tenant("ductor_tenants_pause", _("Pause a tenant, or a lane of it, in a pool"), sync.pause)


class ResumeTenantView(OperatingView):
    """`POST tenants/{key}/resume/`."""

    post = pausing_tenant("ductor_tenants_resume", _("Resume a tenant, or a lane of it, in a pool"), sync.resume)


class DrainPoolView(OperatingView):
    """`POST pools/{name}/drain/`: 202 while something runs, 200 when nothing does any more."""

    @operation(
        "ductor_pools_drain",
        _("Drain a pool"),
        path=POOL,
        answers={200: operator_shapes.Draining, 202: operator_shapes.Draining},
        faults=(404,),
        needs=OPERATE_POOL,
        description=_("Pauses it and says what still runs, without waiting: ask again until nothing does."),
    )
    def post(self, request: Request, pool_name: str, **kwargs: Any) -> Response:
        pool = self.whole_pool(pool_name)
        pause_at_once(pool, by=user_name(request))
        found = left(pool)
        return Response(
            {
                "pool": pool,
                "paused": shards.reads(pool).is_paused(),
                "running": found.running,
                "waiting": found.waiting,
            },
            status=status.HTTP_202_ACCEPTED if found.running else status.HTTP_200_OK,
        )


class ObliteratePoolView(OperatingView):
    """`POST pools/{name}/obliterate/`: 202 while something is left."""

    @operation(
        "ductor_pools_obliterate",
        _("Remove every job of a pool"),
        path=POOL,
        request=Obliterate,
        answers={200: operator_shapes.Obliterated, 202: operator_shapes.Obliterated},
        faults=(404, 409),
        needs=OPERATE_POOL,
        description=_("For good, in whatever state; what is configured stays. While jobs run it must be forced."),
    )
    def post(self, request: Request, pool_name: str, **kwargs: Any) -> Response:
        pool = self.whole_pool(pool_name)
        asked = Obliterate(data=request.data)
        asked.is_valid(raise_exception=True)
        if (name := asked.validated_data["name"]) != pool:
            raise ValidationError(
                {
                    "name": [
                        _("“%(name)s” is not “%(pool)s”, the pool of this address. Nothing was changed.")
                        % {"name": name, "pool": pool}
                    ]
                }
            )
        try:
            force = asked.validated_data["force"]
            done = obliterate(pool, force=force, most_s=MOST_OF_REQUEST_S, by=user_name(request))
        except StillRunning as error:
            raise faults.Refused(
                status.HTTP_409_CONFLICT,
                error.code,
                gettext("Jobs of the pool run. Drain it first, or force it. Nothing was changed."),
            ) from None
        except Reopened as error:
            raise faults.Refused(
                status.HTTP_409_CONFLICT,
                error.code,
                gettext(
                    "The pool was opened again before this request was through: by another one that emptied it, or "
                    "because the store lost what it knew. Jobs may be in it. Look at them before you ask again."
                ),
            ) from None
        return Response(
            {"pool": pool, "jobs": done.jobs, "done": done.done},
            status=status.HTTP_200_OK if done.done else status.HTTP_202_ACCEPTED,
        )
