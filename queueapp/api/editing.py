"""Correct the arguments of a dead letter, and have it retried: `inspection.editing` over HTTP."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import job_shapes
from queueapp.api.actions import user_name
from queueapp.api.jobs import JOB_ID, conflict, is_known
from queueapp.api.requests import EditArguments
from queueapp.api.schema import operation
from queueapp.api.view import DuctorView
from queueapp.errors import NotDead, NothingEdited
from queueapp.inspection import bulk
from queueapp.inspection.editing import Draft, draft, save
from queueapp.inspection.edits import ABSENT, Change
from queueapp.inspection.jobs import JobView
from queueapp.permissions import OPERATE_JOB, VIEW_PAYLOAD


class EditLetterView(DuctorView):
    """`POST dead-letters/{id}/edit/`: other arguments for a dead letter."""

    @operation(
        "ductor_dead_letters_edit",
        _("Edit the arguments of a dead letter"),
        path=JOB_ID,
        request=EditArguments,
        answers={200: job_shapes.Edited},
        faults=(404, 409),
        needs=OPERATE_JOB,
        description=_(
            "All of them, as for a new job; “********” leaves a hidden value as it is. What the job holds by its "
            "arguments (concurrency keys, a singleton, a debounce) must stay, and nobody may have edited it since."
        ),
    )
    def post(self, request: Request, job_id: str, **kwargs: Any) -> Response:
        job = self.job(job_id)
        asked = EditArguments(data=request.data)
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
        if not is_known(job):
            raise conflict(job, "unknown_task", _("The task is not known here, so that nobody can say what it takes."))
        made: Draft | None = None
        try:
            made = draft(job, args=values.get("args"), kwargs=values.get("kwargs"), edits=values["edits"])
            if values["dry_run"]:
                return self._said(job, made, job.record.edits, "fits")
            saved = save(made, by=user_name(request), note=values.get("note", ""), retry=values["retry"])
            edits, retried = saved.edits, saved.retried
        except NotDead as error:
            raise conflict(self.job(job_id), error.code, _("Only a dead letter can be edited.")) from None
        except NothingEdited:
            edits, retried = job.record.edits, None
            if values["retry"] and not values["dry_run"]:
                retried = bulk.retry_many([job.id], by=user_name(request), note=values.get("note", ""))
        word = "edited" if made is not None else "already"
        if retried is not None:
            word = "retried" if retried.done else next(iter(retried.counts), word)
        return self._said(self.job(job_id), made, edits, word)

    def _said(self, job: JobView, made: Draft | None, edits: int, word: str) -> Response:
        changes = made.changes if made is not None else ()
        return Response(
            {
                "id": job.id,
                "state": job.record.state.value,
                "outcome": job.record.outcome.value if job.record.outcome else None,
                "url": self.job_url(job.id),
                "changed": word == "retried" or (made is not None and word != "fits"),
                "word": word,
                "edits": edits,
                "changes": [_told(change) for change in changes] if self.allowed(VIEW_PAYLOAD) else None,
                "begins_anew": made is not None and made.begins_anew,
            }
        )


def _told(change: Change) -> dict[str, Any]:
    sides = {"before": change.before, "after": change.after}
    return {"place": change.place, **{name: value for name, value in sides.items() if value is not ABSENT}}
