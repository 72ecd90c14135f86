"""What can be done to a job, by the state that it is in.

| action | does its work in | was done already in | refused with 409 in |
|---|---|---|---|
| cancel | what waits, waiting, active | cancelled | dead, completed, expired, discarded, replaced |
| retry | dead | what waits, waiting, active | completed, cancelled, expired, discarded, replaced |
| discard | dead | discarded | what waits, waiting, active, completed, cancelled, expired, replaced |

What waits: `State.waits`; waiting: for its children.
The store decides in one step; what is read here before and after only says who may ask and how it went. A request that
comes twice is answered the second time with `changed: false`. A job that runs is told to stop, which is answered with
202 and the word `stopping` as long as it runs: it ends as cancelled when its body is through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import job_shapes
from queueapp.api.grants import signed_in
from queueapp.api.jobs import JOB_ID, conflict
from queueapp.api.requests import BULK_MAX, Ids
from queueapp.api.schema import Text, operation
from queueapp.api.view import DuctorView
from queueapp.inspection import bulk
from queueapp.inspection.actions import Done
from queueapp.inspection.jobs import find_jobs
from queueapp.permissions import DISCARD_JOB, OPERATE_JOB
from queueapp.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action: the word of the store for its success, and the states in which it has nothing left to do."""

    act: Callable[..., Done]
    done: str
    already: frozenset[str]
    refusal: str
    """Code of the 409."""
    why: Any
    later: str = ""
    """Word of the store when the job will be so in the end, and nothing more is to be done about it."""


CANCEL = Action(
    act=bulk.cancel_many,
    done="cancelled",
    already=frozenset({"cancelled"}),
    refusal="not_waiting",
    why=_("Only a job that waits or runs can be cancelled."),
    later="stopping",
)
RETRY = Action(
    act=bulk.retry_many,
    done="retried",
    already=frozenset(each.value for each in State if each.waits or each in (State.WAITING, State.ACTIVE)),
    refusal="not_dead",
    why=_("Only a dead letter can be retried; the arguments of a job that has ended are not kept."),
)
DISCARD = Action(
    act=bulk.discard_many,
    done="discarded",
    already=frozenset({"discarded"}),
    refusal="not_dead",
    why=_("Only a dead letter can be discarded."),
)


class ActionView(DuctorView):
    """Does one action to one job. The answer says where the job stands then."""

    action: Action

    def perform(self, job_id: str) -> Response:
        before = self.job(job_id)
        counts = self.action.act([job_id], by=user_name(self.request)).counts
        job = self.job(job_id)
        later = self.action.later if counts.get(self.action.later) else ""
        changed = counts.get(self.action.done, 0) > 0 or (later != "" and not before.cancelling)
        if counts.get("skipped"):
            raise conflict(job, "skipped", _("Another job of the same singleton waits or runs."))
        if not (changed or later) and job.state not in self.action.already:
            raise conflict(job, self.action.refusal, self.action.why)
        outcome = job.record.outcome
        return Response(
            {
                "id": job.id,
                "state": job.record.state.value,
                "outcome": outcome.value if outcome else None,
                "url": self.job_url(job.id),
                "changed": changed,
                "word": later or (self.action.done if changed else "already"),
            },
            status=status.HTTP_202_ACCEPTED if later else status.HTTP_200_OK,
        )


def acting(name: str, summary: Text, *, later: bool = False, **said: Any) -> Callable[..., Response]:
    """The `post` of one action: they differ in nothing but in how they are described. `later`: it may take a while."""
    answers = {200: job_shapes.Acted, 202: job_shapes.Acted} if later else {200: job_shapes.Acted}

    @operation(name, summary, path=JOB_ID, answers=answers, faults=(404, 409), **said)
    def post(view: ActionView, request: Request, job_id: str, **kwargs: Any) -> Response:
        return view.perform(job_id)

    return post


class CancelView(ActionView):
    """`POST jobs/{id}/cancel/`: a waiting job does not run, a running one is told to stop."""

    action = CANCEL
    post = acting(
        "ductor_jobs_cancel",
        _("Cancel a job"),
        description=_("One that runs is told to stop: 202, and it ends as cancelled when its body is through."),
        later=True,
        operator_needs=OPERATE_JOB,
    )


class RetryView(ActionView):
    """`POST jobs/{id}/retry/`: a dead letter goes back to work, with fresh budgets."""

    action = RETRY
    post = acting("ductor_jobs_retry", _("Retry a dead job"), operator_needs=OPERATE_JOB)


class RetryLetterView(ActionView):
    """`POST dead-letters/{id}/retry/`: the same, for who came by the dead letters."""

    action = RETRY
    post = acting("ductor_dead_letters_retry_one", _("Retry a dead letter"), operator_needs=OPERATE_JOB)


class DiscardLetterView(ActionView):
    """`POST dead-letters/{id}/discard/`: a dead letter goes away for good."""

    action = DISCARD
    post = acting("ductor_dead_letters_discard", _("Discard a dead letter"), needs=DISCARD_JOB)


class RetryLettersView(DuctorView):
    """`POST dead-letters/retry/`: many at once."""

    @operation(
        "ductor_dead_letters_retry",
        _("Retry dead letters"),
        request=Ids,
        answers={200: job_shapes.Counts},
        description=_("At most %(most)d ids. The answer counts what became of them.") % {"most": BULK_MAX},
        operator_needs=OPERATE_JOB,
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        asked = Ids(data=request.data)
        asked.is_valid(raise_exception=True)
        ids = list(dict.fromkeys(asked.validated_data["ids"]))
        mine = [job.id for job in find_jobs(ids) if self.may_see(job)]
        counts = bulk.retry_many(mine, by=user_name(request)).counts if mine else {}
        answer = {word: counts.get(word, 0) for word in ("retried", "skipped", "already", "gone", "unreached")}
        return Response({**answer, "gone": answer["gone"] + len(ids) - len(mine)})


def user_name(request: Request) -> str:
    """Who acts, for the record of what was done to dead letters."""
    user = signed_in(request)
    return user.get_username() if user is not None else ""
