"""`POST jobs/bulk/`: many jobs in one request, each answered for itself.

The request is answered with 200 once its list has been read; each item says with which status its job would have been
answered alone. When the store is away and nothing was taken, the whole request is answered with 503, so that a client
that only looks at the status asks again.
"""

from __future__ import annotations

import logging
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

import queueapp
from queueapp.api import faults, job_shapes
from queueapp.api.jobs import Starting
from queueapp.api.requests import BULK_MAX, BulkJob, BulkList, BulkRequest
from queueapp.api.schema import operation
from queueapp.errors import StoreError
from queueapp.producer.bulk import Outcome
from queueapp.producer.task import BoundTask

logger = logging.getLogger(__name__)


class BulkView(Starting):
    """Starts many jobs."""

    @operation(
        "ductor_jobs_bulk",
        _("Start many jobs"),
        request=BulkRequest,
        answers={200: job_shapes.BulkAnswer},
        description=_("At most %(most)d jobs. One that is refused does not fail the others.") % {"most": BULK_MAX},
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        if "Idempotency-Key" in request.headers:
            raise ValidationError({"Idempotency-Key": [_("Give each job an idempotency_key of its own.")]})
        asked = BulkList(data=request.data)
        asked.is_valid(raise_exception=True)
        items = asked.validated_data["jobs"]
        # A job of a bulk request costs as much of the rate as one that comes alone.
        self.rate.charge(len(items) - 1)
        places = [self._place(item) for item in items]
        sent = iter(queueapp.enqueue_many(place for place in places if isinstance(place, BoundTask)))
        outcomes = [next(sent) if isinstance(place, BoundTask) else place for place in places]
        away = next((error for outcome in outcomes if (error := _away(outcome)) is not None), None)
        if away is not None and not any(isinstance(outcome, Outcome) and outcome.ok for outcome in outcomes):
            raise away
        return Response({"results": [self._item(outcome) for outcome in outcomes]})

    def _place(self, item: Any) -> BoundTask | APIException:
        """A job to be sent, or why the item is none."""
        asked = BulkJob(data=item)
        try:
            asked.is_valid(raise_exception=True)
            values = asked.validated_data
            task = self.prepared(values, values.get("idempotency_key"))
        except Exception as error:
            translated = faults.translate(error)
            if not isinstance(translated, APIException):
                raise
            return translated
        return task.bind(*values["args"], **values["kwargs"])

    def _item(self, outcome: Outcome | APIException) -> dict[str, Any]:
        if isinstance(outcome, APIException):
            error = outcome
        elif outcome.result is not None:
            code, body = self.accepted(outcome.result)
            return {"status": code, "job": body, "error": None}
        else:
            error = _as_answer(outcome.error)
        return {"status": error.status_code, "job": None, "error": faults.body_of(error, faults.data_of(error))}


def _away(outcome: Outcome | APIException) -> StoreError | None:
    """The store's own fault with a job."""
    error = outcome.error if isinstance(outcome, Outcome) else None
    return error if isinstance(error, StoreError) else None


def _as_answer(error: Exception | None) -> APIException:
    translated = faults.translate(error) if error is not None else None
    if isinstance(translated, APIException):
        return translated
    # Others of the request may have been taken: the whole must not be answered as if nothing had happened.
    logger.error("a job of a bulk request failed", exc_info=error)
    return APIException()
