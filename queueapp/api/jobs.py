"""Jobs: start one, list them, look at one and at its result."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import answers, cursors, faults, job_shapes
from queueapp.api.faults import Refused
from queueapp.api.grants import ALL
from queueapp.api.requests import JobRequest, JobsQuery
from queueapp.api.schema import operation
from queueapp.api.throttles import ENQUEUE
from queueapp.api.view import DuctorView, declared, is_told
from queueapp.errors import InvalidOption
from queueapp.inspection.explain import explain
from queueapp.inspection.jobs import JobView as Seen
from queueapp.inspection.jobs import list_jobs
from queueapp.permissions import VIEW_PAYLOAD
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import DuctorTask
from queueapp.states import Outcome

OPTIONS = ("lane", "priority", "run_after", "delay", "expires_after", "deadline", "metadata")
"""Fields that are options of `.using()` under the same name."""
REPLAYED = "Idempotency-Replayed"
"""Header of an answer that tells of a job of an earlier request."""
JOB_ID = {"job_id": _("Id of the job.")}


class Starting(DuctorView):
    """What the ways to start jobs have in common."""

    scope_of_post = ENQUEUE

    def prepared(self, values: dict[str, Any], key: str | None) -> DuctorTask:
        """The task with the options of a checked request."""
        task: DuctorTask = values["task"]
        return task.using(
            tenant=self.one_tenant(values.get("tenant")),
            queue_name=values.get("pool"),
            idempotency_key=key,
            # Whatever the settings say: the answer must not promise what a later rollback would undo.
            on_commit=False,
            **{name: values[name] for name in OPTIONS if name in values},
        )

    def accepted(self, result: DuctorResult) -> tuple[int, dict[str, Any]]:
        """Status and body for a job that is there: 202, or 200 when it was there before."""
        body = {"id": result.id, "state": getattr(result, "state", None), "url": self.job_url(result.id)}
        return (status.HTTP_200_OK if was_there(result) else status.HTTP_202_ACCEPTED), body


class JobsView(Starting):
    """`POST jobs/` starts a job, `GET jobs/` lists those of one state."""

    @operation(
        "ductor_jobs_start",
        _("Start a job"),
        request=JobRequest,
        headers={"Idempotency-Key": _("Sent twice with one key and the same job, a request makes one job.")},
        answers={202: job_shapes.Accepted, 200: job_shapes.Accepted},
        located={
            202: {"Location": _("Where to look at the job.")},
            200: {"Location": _("Where to look at the job."), REPLAYED: _("“true”: made by an earlier request.")},
        },
        faults=(404, 409),
        description=_(
            "202: there is a new job. 200: one that was there stands for it, by the Idempotency-Key or by what the "
            "task says of jobs that are alike."
        ),
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        asked = JobRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
        result = self.prepared(values, self.idempotency_key()).enqueue(*values["args"], **values["kwargs"])
        code, body = self.accepted(result)
        replayed = {REPLAYED: "true"} if getattr(result, "outcome", "") == "exists" else {}
        headers = {"Location": body["url"], **replayed}
        return Response(body, code, headers=headers)

    @operation(
        "ductor_jobs_list",
        _("List jobs of one pool in one state"),
        query=JobsQuery,
        answers={200: job_shapes.Jobs},
        faults=(404,),
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        query = self.asked(JobsQuery)
        tenant = self.one_tenant(query.get("tenant"))
        pool = self.pool(query["pool"])
        if not is_told(query.get("task", "")):
            return Response({"next": None, "results": []})
        try:
            page = list_jobs(
                pool,
                query["state"],
                tenant=tenant or "",
                task=query.get("task", ""),
                cursor=cursors.opened(query["cursor"]) if "cursor" in query else "",
                count=query["page_size"],
            )
        except InvalidOption:
            raise faults.wrong_cursor() from None
        results = [answers.brief(job, self.job_url) for job in page.jobs if self.may_see(job)]
        cursor = None if page.next_cursor is None else cursors.sealed(page.next_cursor)
        return Response({"next": self.next_url(cursor), "results": results})


class JobView(DuctorView):
    """`GET jobs/{id}/`: where a job stands and, when it has completed, its result."""

    @operation("ductor_jobs_look", _("Look at a job"), path=JOB_ID, answers={200: job_shapes.Job}, faults=(404,))
    def get(self, request: Request, job_id: str, **kwargs: Any) -> Response:
        job = self.job(job_id)
        return Response(answers.whole(job, self.job_url, known=is_known(job), contents=self.allowed(VIEW_PAYLOAD)))


class ResultView(DuctorView):
    """`GET jobs/{id}/result/`: what the job returned, once it has completed."""

    @operation(
        "ductor_jobs_result",
        _("The result of a job"),
        path=JOB_ID,
        answers={200: job_shapes.JobResult},
        faults=(404, 409),
    )
    def get(self, request: Request, job_id: str, **kwargs: Any) -> Response:
        job = self.job(job_id)
        if job.record.outcome is not Outcome.COMPLETED:
            raise conflict(job, "not_completed", _("The job has not completed: it has no result."))
        if not is_known(job):
            raise conflict(job, "unknown_task", _("No task of this name is known any more: its result is not told."))
        return Response({"id": job.id, "result": job.result()})


class WhyView(DuctorView):
    """`GET jobs/{id}/why/`: what the job waits for, and until when."""

    @operation(
        "ductor_jobs_why", _("Why a job does not run"), path=JOB_ID, answers={200: job_shapes.Why}, faults=(404,)
    )
    def get(self, request: Request, job_id: str, **kwargs: Any) -> Response:
        tenants = None if self.tenants is ALL else self.tenants
        why = explain(job_id, tenants=tenants, contents=self.allowed(VIEW_PAYLOAD))
        if not why.tenant or why.tenant not in self.tenants or not is_told(why.task):
            raise faults.not_found()
        return Response(answers.why(why, self.job_url))


def is_known(job: Seen) -> bool:
    """Whether the job's task is. One that is gone from the code may not have been one of the API's."""
    return declared(job.record.task) is not None


def was_there(result: DuctorResult) -> bool:
    """Whether the job is of an earlier request."""
    return getattr(result, "outcome", "") in {"exists", "debounced", "skipped"}


def conflict(job: Seen, code: str, detail: Any) -> Refused:
    """409 with where the job stands."""
    outcome = job.record.outcome
    return Refused(
        status.HTTP_409_CONFLICT,
        code,
        str(detail),
        more={"state": job.record.state.value, "outcome": outcome.value if outcome else None},
    )
