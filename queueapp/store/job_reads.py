"""The commands that read jobs as they stand in the store, and the records behind their replies.

For whoever brings a pipeline: `reads` and `async_store`. Nothing is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from queueapp.errors import StoreError
from queueapp.store.keys import ShardKeys
from queueapp.store.rows import job_record
from queueapp.store.views import JobRecord

logger = logging.getLogger(__name__)

PARTS_PER_JOB = 6


def queue_job_reads(pipeline: Any, keys: ShardKeys, ids: Sequence[str]) -> None:
    """Adds the commands that read these jobs to a pipeline (sync or async): six for each, then the names of tasks."""
    for job_id in ids:
        pipeline.get(keys.job(job_id))
        pipeline.hgetall(keys.run(job_id))
        pipeline.get(keys[f"result:{job_id}"])
        pipeline.lrange(keys[f"errors:{job_id}"], 0, -1)
        pipeline.hgetall(keys[f"data:{job_id}"])
        pipeline.zscore(keys["scheduled"], job_id)
    pipeline.hgetall(keys["names"])


class WrongType(ResponseError):
    """A key of ours holds a value of another type: another program writes under the same names."""


def check_replies(replies: Sequence[Any]) -> None:
    """Raises the first of the errors among the replies of a pipeline that was told not to; WrongType for that kind."""
    for reply in replies:
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            raise WrongType(str(reply)) from reply
        if isinstance(reply, Exception):
            raise reply


def read_jobs(
    ids: Sequence[str], replies: Sequence[Any], names: Mapping[bytes, bytes], *, lenient: bool = False
) -> list[JobRecord | None]:
    """The records behind the replies of `queue_job_reads` for each of `ids`; `names` is the hash of task names.

    A row that is none of this release's raises StoreError; `lenient`, for lists: it is left out, so that the others
    are seen.
    """
    task_names = {number: name.decode(errors="replace") for number, name in names.items()}
    records = []
    for position, job_id in enumerate(ids):
        first = position * PARTS_PER_JOB
        text, run, result, errors, data, due = parts = replies[first : first + PARTS_PER_JOB]
        try:
            check_replies(parts)
            record = job_record(
                job_id,
                text,
                run,
                result=result,
                errors=errors,
                data=data,
                due_ms=int(due or 0),
                task_names=task_names,
            )
        except (ValueError, KeyError, WrongType) as error:
            fault = StoreError(
                f"The row of job {job_id} cannot be read by this release ({type(error).__name__}): a newer one has "
                "written it, or another program writes under the same names."
            )
            if not lenient:
                raise fault from error
            logger.warning(str(fault), extra={"job_id": job_id})
            record = None
        records.append(record)
    return records
