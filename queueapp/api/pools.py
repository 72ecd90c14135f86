"""Pools: which there are, and how one stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import faults, pool_shapes
from queueapp.api.fairness import own_share, summary
from queueapp.api.grants import ALL
from queueapp.api.requests import PageQuery, TenantQuery
from queueapp.api.schema import operation
from queueapp.api.tenants import counts
from queueapp.api.view import DuctorView
from queueapp.errors import UnknownPool
from queueapp.inspection.fairness import certificate
from queueapp.inspection.overview import pool_status
from queueapp.inspection.pools import declared_pools
from queueapp.inspection.tenants import tenants_in
from queueapp.producer.discovery import load_tasks, registry


class PoolsView(DuctorView):
    """`GET pools/`: by name. Who may speak for some tenants sees those in which the tasks of the API run."""

    @operation("ductor_pools_list", _("List pools"), query=PageQuery, answers={200: pool_shapes.Pools})
    def get(self, request: Request, **kwargs: Any) -> Response:
        query = self.asked(PageQuery)
        names = declared_pools() if self.tenants is ALL else _pools_of_api()
        after = [name for name in names if name > query.get("cursor", "")]
        shown = after[: query["page_size"]]
        results = [{"name": name, "url": self.url("pool", pool_name=name)} for name in shown]
        return Response({"next": self.next_url(shown[-1] if len(after) > len(shown) else None), "results": results})


class PoolView(DuctorView):
    """`GET pools/{name}/`: how a pool stands, for one tenant or as a whole."""

    @operation(
        "ductor_pools_look",
        _("Look at a pool"),
        path={"pool_name": _("Name of the pool.")},
        query=TenantQuery,
        answers={200: pool_shapes.Pool},
        faults=(404,),
    )
    def get(self, request: Request, pool_name: str, **kwargs: Any) -> Response:
        tenant = self.one_tenant(self.asked(TenantQuery).get("tenant"))
        try:
            self.pool(pool_name)
        except UnknownPool:
            raise faults.not_found() from None
        status = pool_status(pool_name)
        if tenant is None:
            return Response(
                {
                    "name": pool_name,
                    "tenant": None,
                    "paused": status.paused,
                    **counts(status),
                    "scheduled": status.scheduled,
                    "ended": status.ended,
                    "parents": status.parents,
                    "workers": sum(worker.live for worker in status.workers),
                    "policy": status.policy,
                    "edf_by": status.edf_by if status.policy == "edf" else None,
                    "aging_step_ms": status.aging_step_ms if status.policy == "aging" else None,
                    "dispatch": status.dispatch,
                    "window": status.window,
                    "ingress": status.ingress,
                    "ready": status.ready,
                    "reranking": asdict(status.reranking) if status.reranking else None,
                    "fairness": summary(certificate(pool_name)),
                    "own_share": None,
                }
            )
        [seen] = tenants_in(pool_name, [tenant])
        return Response(
            {
                "name": pool_name,
                "tenant": tenant,
                "paused": status.paused,
                **counts(seen),
                **dict.fromkeys(OF_POOL),
                "own_share": own_share(certificate(pool_name, tenants=[tenant]), tenant),
            }
        )


OF_POOL = (
    "scheduled",
    "ended",
    "parents",
    "workers",
    "policy",
    "edf_by",
    "aging_step_ms",
    "dispatch",
    "window",
    "ingress",
    "ready",
    "reranking",
    "fairness",
)
"""What is told of the pool as a whole only."""


def _pools_of_api() -> list[str]:
    """The pools that the tasks of the API name: whoever may start them knows these anyway."""
    load_tasks()
    return sorted({task.queue_name for task in registry.values() if task.api})
