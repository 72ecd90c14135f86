"""Runs: start one, list them, look at one and at its steps.

A run is taken once its rows are in the database, and answered for then: what it hands over to a store that is away is
handed over when that is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from flows import models
from flows.api import answers, shapes
from flows.api.requests import RunRequest, RunsQuery, bound
from flows.api.view import RUN_ID, FlowsView, declared, definition_of, hidden
from flows.values import Json
from queueapp.api import cursors, faults
from queueapp.api.faults import Refused
from queueapp.api.jobs import REPLAYED
from queueapp.api.schema import operation
from queueapp.api.throttles import ENQUEUE
from queueapp.errors import IdempotencyConflict
from queueapp.permissions import VIEW_PAYLOAD
from queueapp.producer.rows import require_tenant
from queueapp.producer.tenancy import resolve_tenant

LOOKS = 4_000
"""Runs that one page looks through for those that meet its conditions."""


class StartView(FlowsView):
    """`POST flows/{name}/runs/` starts a run."""

    scope_of_post = ENQUEUE

    @operation(
        "ductor_runs_start",
        _("Start a run"),
        path={"flow_name": _("Name of a flow that is declared with api=True.")},
        request=RunRequest,
        headers={"Idempotency-Key": _("Sent twice with one key and the same input, a request makes one run.")},
        answers={202: shapes.RunAccepted, 200: shapes.RunAccepted},
        located={
            202: {"Location": _("Where to look at the run.")},
            200: {"Location": _("Where to look at the run."), REPLAYED: _("“true”: made by an earlier request.")},
        },
        faults=(404, 409),
        conflict=shapes.RunConflict,
        description=_("202: there is a new run. 200: an earlier request with the same Idempotency-Key made it."),
    )
    def post(self, request: Request, flow_name: str, **kwargs: Any) -> Response:
        flow = declared(flow_name)
        if flow is None or not flow.api:
            raise faults.not_found()
        asked = RunRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
        given = bound(flow, values["args"], values["kwargs"])
        key = self.idempotency_key()
        tenant = resolve_tenant(self.one_tenant(values.get("tenant")), f"flow {flow.name}")
        # Each of its jobs would be refused.
        require_tenant(tenant)
        run = flow.using(tenant=tenant, key=key).start(*values["args"], **values["kwargs"])
        if run.existed and _differs(run.row.input, given):
            raise Refused(
                status.HTTP_409_CONFLICT,
                IdempotencyConflict.code,
                str(_("The Idempotency-Key stands for a run with another input. Use a new key.")),
                more={"state": run.state},
            )
        body = {"id": run.id, "url": self.run_url(run.id), "state": run.state}
        headers = {"Location": body["url"], **({REPLAYED: "true"} if run.existed else {})}
        return Response(body, status.HTTP_200_OK if run.existed else status.HTTP_202_ACCEPTED, headers=headers)


class RunsView(FlowsView):
    """`GET runs/`: the newest first."""

    @operation("ductor_runs_list", _("List runs"), query=RunsQuery, answers={200: shapes.Runs}, faults=(404,))
    def get(self, request: Request, **kwargs: Any) -> Response:
        query = self.asked(RunsQuery)
        tenant, flow = self.one_tenant(query.get("tenant")), query.get("flow")
        rows = models.Run.objects.defer("input", "output")
        # The window is cut along one index; what else is asked for is looked for within it.
        window = rows.filter(tenant=tenant) if tenant is not None else rows.filter(flow=flow) if flow else rows
        if "cursor" in query:
            window = _beyond(window, _place(cursors.opened(query["cursor"])))
        last = window.values_list("started_ms", "id")[LOOKS - 1 : LOOKS].first()
        wanted = window.filter(**{name: query[name] for name in ("flow", "state") if name in query})
        wanted = wanted.exclude(flow__in=hidden())
        if last is not None:
            # The first condition alone is one that ends the walk along the index.
            wanted = wanted.filter(started_ms__gte=last[0]).exclude(_older(last))
        size = query["page_size"]
        found = list(wanted[: size + 1])
        results = found[:size]
        place = (results[-1].started_ms, results[-1].id) if len(found) > size else last
        cursor = None if place is None else cursors.sealed(f"{place[0]} {place[1]}")
        return Response(
            {"next": self.next_url(cursor), "results": [answers.brief(run, self.run_url) for run in results]}
        )


class RunView(FlowsView):
    """`GET runs/{id}/`: where a run and its steps stand and, when it has completed, what it returned."""

    @operation("ductor_runs_look", _("Look at a run"), path=RUN_ID, answers={200: shapes.Run}, faults=(404,))
    def get(self, request: Request, run_id: str, **kwargs: Any) -> Response:
        run = self.run(run_id)
        parent = models.Run.objects.filter(pk=run.parent_run).first() if run.parent_run else None
        return Response(
            answers.whole(
                run,
                self.run_url,
                definition=definition_of(run),
                known=declared(run.flow) is not None,
                parent=parent if parent is not None and self.may_see_run(parent) else None,
                contents=self.allowed(VIEW_PAYLOAD),
            )
        )


class StepsView(FlowsView):
    """`GET runs/{id}/steps/`: the steps alone, for who looks often."""

    @operation("ductor_runs_steps", _("The steps of a run"), path=RUN_ID, answers={200: shapes.RunSteps}, faults=(404,))
    def get(self, request: Request, run_id: str, **kwargs: Any) -> Response:
        run = self.run(run_id)
        return Response({"results": [*answers.steps(run, definition_of(run), contents=self.allowed(VIEW_PAYLOAD))]})


def _differs(before: Mapping[str, Json], given: Mapping[str, Json]) -> bool:
    """A parameter that the flow did not have then, or does not have any more, makes no other request."""
    return any(before[name] != value for name, value in given.items() if name in before)


def _older(place: tuple[int, str]) -> Q:
    started_ms, run_id = place
    return Q(started_ms__lt=started_ms) | Q(started_ms=started_ms, id__lt=run_id)


def _beyond(rows: QuerySet[models.Run], place: tuple[int, str]) -> QuerySet[models.Run]:
    """Those older than this place; the first condition alone is one that an index is good for."""
    return rows.filter(started_ms__lte=place[0]).filter(_older(place))


def _place(text: str) -> tuple[int, str]:
    """400 for the place of another list."""
    started_ms, _, run_id = text.partition(" ")
    if not (started_ms.isascii() and started_ms.isdigit() and len(started_ms) <= 15 and run_id.isascii()):
        raise faults.wrong_cursor()
    return int(started_ms), run_id
