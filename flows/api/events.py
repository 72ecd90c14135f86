"""Events of a run: list them, and send one."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from flows import models
from flows.api import answers, shapes
from flows.api.actions import Acting
from flows.api.requests import RunEventRequest
from flows.api.view import RUN_ID
from flows.permissions import SEND_EVENT, full
from queueapp.api import cursors, faults
from queueapp.api.requests import PageQuery
from queueapp.api.schema import operation
from queueapp.permissions import VIEW_PAYLOAD
from queueapp.producer.handover import new_id


class EventsView(Acting):
    """`GET runs/{id}/events/` lists what was sent to a run, `POST` sends something that a step waits for, or will."""

    @operation(
        "ductor_runs_events",
        _("List the events of a run"),
        path=RUN_ID,
        query=PageQuery,
        answers={200: shapes.RunEvents},
        faults=(404,),
    )
    def get(self, request: Request, run_id: str, **kwargs: Any) -> Response:
        run = self.run(run_id)
        query = self.asked(PageQuery)
        rows = models.Event.objects.filter(run_id=run.id).order_by("id")
        if "cursor" in query:
            rows = rows.filter(id__gt=_place(cursors.opened(query["cursor"])))
        size, contents = query["page_size"], self.allowed(VIEW_PAYLOAD)
        found = list(rows[: size + 1])
        cursor = cursors.sealed(str(found[size - 1].pk)) if len(found) > size else None
        results = [answers.event(row, contents=contents) for row in found[:size]]
        return Response({"next": self.next_url(cursor), "results": results})

    @operation(
        "ductor_runs_send_event",
        _("Send an event to a run"),
        path=RUN_ID,
        request=RunEventRequest,
        answers={202: shapes.EventSent, 200: shapes.EventSent},
        faults=(404, 409),
        conflict=shapes.RunConflict,
        description=_("202: it is kept until a step takes it. 200: one of this id was sent before."),
        operator_needs=full(SEND_EVENT),
    )
    def post(self, request: Request, run_id: str, **kwargs: Any) -> Response:
        run = self.run(run_id)
        asked = RunEventRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
        event_id = values.get("id") or new_id()
        changed = self.act(run, lambda handle: handle.send_event(values["name"], values["payload"], event_id=event_id))
        return Response(
            {"id": event_id, "changed": changed}, status.HTTP_202_ACCEPTED if changed else status.HTTP_200_OK
        )


def _place(text: str) -> int:
    """400 for the place of another list."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise faults.wrong_cursor()
    return int(text)
