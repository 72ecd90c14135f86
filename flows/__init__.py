"""Flows: durable runs over Ductor's queue. These names are the public ones; nothing else is promised.

@flow(on_failure="stop")
def import_upload(upload_id: int):
    rows = step(read_file, upload_id)
    checked = step(validate, rows)
    chunks = map_step(import_chunk, checked["chunks"], max_parallel=16, retries=3)
    return step(report, upload_id, chunks.counts)

What decides about a run is here, pure and whole. What stores runs and wakes them is not, so the package does not come
with the distribution yet.
"""

from __future__ import annotations

from flows.declaring import Flow, flow, map_step, sleep, step, wait_for
from flows.values import either

__all__ = ["Flow", "either", "flow", "map_step", "sleep", "step", "wait_for"]
