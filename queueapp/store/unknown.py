"""Jobs whose task no worker knows that has met them: what the workers themselves said when they gave them back.

Called by `doctor`. No list of names is kept: a worker finds out whether it knows a task when a job of it comes.
"""

from __future__ import annotations

from typing import Any

from queueapp.store.connection import translate_errors
from queueapp.store.reads import Reads

LOOKED_AT = 500
"""Of those that are due first: what is given back comes again within a minute or a few."""


def given_back(reads: Reads) -> dict[str, int]:
    """Name of a task → since when, in ms, the first of its jobs goes from one worker to the next."""
    with translate_errors():
        found: Any = reads.client.zrange(reads.keys["scheduled"], 0, LOOKED_AT - 1)
        ids = [job_id.decode() for job_id in found]
        pipeline = reads.client.pipeline(transaction=False)
        for job_id in ids:
            pipeline.hget(reads.keys.run(job_id), "uk")
        since = {job_id: int(at) for job_id, at in zip(ids, pipeline.execute(), strict=True) if at} if ids else {}
    first: dict[str, int] = {}
    for job_id, record in zip(since, reads.letters([*since]) if since else [], strict=True):
        if record is not None:
            first[record.task] = min(since[job_id], first.get(record.task, since[job_id]))
    return first
