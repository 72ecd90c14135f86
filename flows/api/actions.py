"""What can be done to a run, by the state that it is in.

| action | does its work in | was done already in | refused with 409 in |
|---|---|---|---|
| cancel | running, compensating | cancelled | completed, failed, compensated |
| resume | failed, cancelled | – | running, compensating, completed, compensated |

A step is retried once it has failed or was cut off, if its run has neither been cancelled nor undone anything. It is
decided under the run's lock; a refusal says why in the words of `operations`, and where the run stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from flows import models
from flows.api import shapes
from flows.api.requests import CancelRun
from flows.api.view import RUN_ID, FlowsView, definition_of
from flows.checking import NAME_FORM
from flows.definition import UNDO
from flows.errors import InvalidValue, RunRefused, UnknownFlow
from flows.handle import RunHandle
from flows.permissions import CANCEL_RUN, RESUME_RUN, RETRY_STEP, full
from queueapp.api import faults
from queueapp.api.faults import Refused
from queueapp.api.schema import operation

CANCELLED = models.Run.State.CANCELLED


class Acting(FlowsView):
    """What the ways to act on a run have in common."""

    def act(self, run: models.Run, do: Callable[[RunHandle], bool]) -> bool:
        """What `do` says. 409 where it is refused; so it is where the run's version is not stored any more."""
        try:
            return do(RunHandle(run))
        except (RunRefused, UnknownFlow, InvalidValue) as error:
            raise self.refused(run, error.code, str(error)) from None

    def refused(self, run: models.Run, code: str, why: str) -> Refused:
        """409, with where the run stands by now."""
        return Refused(status.HTTP_409_CONFLICT, code, why, more={"state": self.run(run.id).state})

    def acted(self, run: models.Run, changed: bool) -> Response:
        """How it went, and where the run stands by now."""
        return Response(
            {"id": run.id, "url": self.run_url(run.id), "state": self.run(run.id).state, "changed": changed}
        )


class CancelView(Acting):
    """`POST runs/{id}/cancel/`: nothing of it starts any more, and bodies that run are told to stop."""

    @operation(
        "ductor_runs_cancel",
        _("Cancel a run"),
        path=RUN_ID,
        request=CancelRun,
        answers={200: shapes.RunActed},
        faults=(404, 409),
        conflict=shapes.RunConflict,
        description=_("It has ended as cancelled at once. Bodies that run are told to stop; nothing is undone."),
        operator_needs=full(CANCEL_RUN),
    )
    def post(self, request: Request, run_id: str, **kwargs: Any) -> Response:
        run = self.run(run_id)
        asked = CancelRun(data=request.data)
        asked.is_valid(raise_exception=True)
        changed = self.act(run, lambda handle: handle.cancel(asked.validated_data.get("reason", "")))
        if not changed and self.run(run.id).state != CANCELLED:
            raise self.refused(run, RunRefused.code, str(_("Only a run that has not ended can be cancelled.")))
        return self.acted(run, changed)


class ResumeView(Acting):
    """`POST runs/{id}/resume/`: what failed or was cut off runs; what completed is kept."""

    @operation(
        "ductor_runs_resume",
        _("Resume a run"),
        path=RUN_ID,
        answers={200: shapes.RunActed},
        faults=(404, 409),
        conflict=shapes.RunConflict,
        description=_("What failed, was cut off or was never reached runs; what completed is kept."),
        operator_needs=full(RESUME_RUN),
    )
    def post(self, request: Request, run_id: str, **kwargs: Any) -> Response:
        run = self.run(run_id)
        return self.acted(run, self.act(run, RunHandle.resume))


class RetryStepView(Acting):
    """`POST runs/{id}/steps/{step}/retry/`: one step runs again, and what it had cut off may follow."""

    @operation(
        "ductor_runs_retry_step",
        _("Retry a step of a run"),
        path={**RUN_ID, "step_name": _("Name of the step.")},
        answers={200: shapes.RunActed},
        faults=(404, 409),
        conflict=shapes.RunConflict,
        description=_("Only one that failed or was cut off; what it had cut off may follow."),
        operator_needs=full(RETRY_STEP),
    )
    def post(self, request: Request, run_id: str, step_name: str, **kwargs: Any) -> Response:
        run = self.run(run_id)
        name, definition = step_name.removeprefix(UNDO), definition_of(run)
        if not NAME_FORM.fullmatch(name) or (definition is not None and name not in definition.by_name):
            raise faults.not_found()
        return self.acted(run, self.act(run, lambda handle: handle.retry_step(step_name)))
