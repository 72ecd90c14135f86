"""Jobs that died while they waited for children: what workers do for all others, a scheduler does for these.

Who finished is told by django.tasks' `task_finished`, sent as a worker sends it: inside an `except`, with the tenant
entered, so that monitors find the cause.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import close_old_connections

from queueapp import metrics
from queueapp.compat import TaskResultStatus, task_finished
from queueapp.errors import ChildFailed, JobDead
from queueapp.producer.results import result_from_record
from queueapp.producer.tenancy import belonging_to
from queueapp.store import shards
from queueapp.store.views import JobRecord

logger = logging.getLogger(__name__)


def announce(pool: str, ids: Sequence[str]) -> None:
    """Sends the signal and counts, once for each of these parents. What is wrong with one is only told."""
    metrics.PARENTS_FAILED.labels(pool).inc(len(ids))
    close_old_connections()
    for record in shards.reads(pool).jobs(ids) if ids else ():
        if record is None:
            continue  # dropped or erased meanwhile
        try:
            _announce(pool, record)
        except Exception:
            logger.exception("A job that died of a child was not announced", extra={"job_id": record.id, "pool": pool})
    close_old_connections()


def _announce(pool: str, record: JobRecord) -> None:
    result = result_from_record(record, pool)
    result._set(status=TaskResultStatus.FAILED)  # somebody may have sent it back to work meanwhile
    cause = JobDead if record.reason == "incomplete" else ChildFailed
    text = result.errors[-1].traceback if result.errors else f"Job {result.id} died while it waited for its children."
    with belonging_to(record.tenant):
        try:
            raise cause(text)
        except cause:
            task_finished.send_robust(sender=type(result.task.get_backend()), task_result=result)
