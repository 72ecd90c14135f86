"""Dead letters: listed newest first, and looked at. What can be done to them stands in `actions`."""

from __future__ import annotations

import re
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import answers, cursors, faults, job_shapes
from queueapp.api.jobs import JOB_ID, is_known
from queueapp.api.requests import DeadLettersQuery
from queueapp.api.schema import operation
from queueapp.api.view import DuctorView, is_told
from queueapp.inspection.deadletters import dead_letters
from queueapp.inspection.selection import Filter
from queueapp.permissions import VIEW_PAYLOAD
from queueapp.states import State

CURSOR_FORM = re.compile(r"([0-9]{1,16})\.([0-9]{1,16})")


class DeadLettersView(DuctorView):
    """`GET dead-letters/`: newest first, as of the moment of the first page."""

    @operation(
        "ductor_dead_letters_list",
        _("List dead letters of one pool"),
        query=DeadLettersQuery,
        answers={200: job_shapes.Jobs},
        faults=(404,),
        description=_("Newest first. What dies after the first page was asked for stands on none of its pages."),
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        query = self.asked(DeadLettersQuery)
        as_of_ms, offset = _position(query.get("cursor"))
        wanted = Filter(
            tenant=self.one_tenant(query.get("tenant")) or "",
            tasks=(query["task"],) if "task" in query else (),
            reason=query.get("reason", ""),
            group=query.get("group", ""),
            as_of_ms=as_of_ms,
        )
        pool = self.pool(query["pool"])
        if not is_told(wanted.task):
            return Response({"next": None, "results": []})
        page = dead_letters(pool, wanted, offset=offset, count=query["page_size"])
        cursor = None if page.next_offset is None else cursors.sealed(f"{page.as_of_ms}.{page.next_offset}")
        results = [answers.brief(job, self.job_url) for job in page.letters if self.may_see(job)]
        return Response({"next": self.next_url(cursor), "results": results})


class DeadLetterView(DuctorView):
    """`GET dead-letters/{id}/`: 404 for a job that is not dead."""

    @operation(
        "ductor_dead_letters_look",
        _("Look at a dead letter"),
        path=JOB_ID,
        answers={200: job_shapes.Job},
        faults=(404,),
    )
    def get(self, request: Request, job_id: str, **kwargs: Any) -> Response:
        job = self.job(job_id)
        if job.record.state is not State.DEAD:
            raise faults.not_found()
        return Response(answers.whole(job, self.job_url, known=is_known(job), contents=self.allowed(VIEW_PAYLOAD)))


def _position(cursor: str | None) -> tuple[int, int]:
    """As of which moment, and how many letters stand on the pages before."""
    if cursor is None:
        return 0, 0
    match = CURSOR_FORM.fullmatch(cursors.opened(cursor))
    if match is None:
        raise faults.wrong_cursor()
    return int(match[1]), int(match[2])
