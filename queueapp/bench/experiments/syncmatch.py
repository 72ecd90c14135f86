"""`bench syncmatch`: how soon a body begins that code of a worker's own process enqueues, beside the usual path.

A worker runs in this process, and this thread enqueues: one job that may begin at once, then one that goes through the
store first (it has an expiry, which nothing begins before the store has heard of it), and so on in turn. Both clocks
are the same one. Promised: half of those that begin at once do so within 100 µs of the call of `enqueue`.
"""

from __future__ import annotations

import time

from prometheus_client import REGISTRY

from queueapp.bench.harness import Progress, Report
from queueapp.bench.statistics import percentiles
from queueapp.bench.tasks import note, noted
from queueapp.bench.worker_thread import worker_thread
from queueapp.cli import logs
from queueapp.metrics import SYNC_MATCH_OUTCOMES
from queueapp.producer.task import DuctorTask

POOL = noted.queue_name
HALF_WITHIN_US = 100.0
WARM = 50
"""So many of each kind come first and are not counted."""
WITHIN_S = 10.0
SETTLE_S = 0.005
"""The worker is idle again."""


def run(report: Report, progress: Progress, *, jobs: int, slots: int) -> None:
    """`jobs` of each kind, in turn, in a worker with so many slots."""
    logs.set_up(None, 1)  # as a worker does: else django.tasks writes a line before each body
    kinds = {"matched": noted, "queued": noted.using(expires_after=3_600)}
    begun: dict[str, list[float]] = {kind: [] for kind in kinds}
    returned: dict[str, list[float]] = {kind: [] for kind in kinds}
    before = _counts()
    with worker_thread(POOL, slots=slots):
        for number in range(jobs + WARM):
            if number == WARM:
                before = _counts()
            for kind, task in kinds.items():
                begun_us, returned_us = _once(task)
                if number >= WARM:
                    begun[kind].append(begun_us)
                    returned[kind].append(returned_us)
            progress.show(f"  {number:,} of {jobs + WARM:,} jobs of each kind")
        counts = {outcome: number - before[outcome] for outcome, number in _counts().items()}
    for kind, words in (("matched", "in the process"), ("queued", "through the store")):
        half, most = percentiles(begun[kind], 50, 99)
        call, _ = percentiles(returned[kind], 50, 99)
        report.figures |= {f"{kind}_us_p50": half, f"{kind}_us_p99": most, f"{kind}_call_us_p50": call}
        progress.say(
            f"  {words:<17} {half:8,.0f} µs p50, {most:,.0f} µs p99 from the call of enqueue to the body "
            f"(the call itself: {call:,.0f} µs p50)"
        )
    report.figures |= counts
    progress.say("  " + ", ".join(f"{outcome} {number:,.0f}" for outcome, number in counts.items()))
    half, _ = percentiles(begun["matched"], 50, 99)
    if half > HALF_WITHIN_US:
        report.missed.append(f"Half of the matched bodies began {half:,.0f} µs after the call, not {HALF_WITHIN_US:g}.")


def _once(task: DuctorTask) -> tuple[float, float]:
    """Microseconds from before the call of `enqueue` until the body began, and until the call returned."""
    note.left.clear()
    called = time.perf_counter()
    task.enqueue()
    returned = time.perf_counter()
    if not note.left.wait(WITHIN_S):
        raise TimeoutError(f"A job did not begin within {WITHIN_S:g} s.")
    time.sleep(SETTLE_S)
    return (note.began_s - called) * 1e6, (returned - called) * 1e6


def _counts() -> dict[str, float]:
    return {outcome: _count(outcome) for outcome in SYNC_MATCH_OUTCOMES}


def _count(outcome: str) -> float:
    return REGISTRY.get_sample_value("ductor_syncmatch_total", {"pool": POOL, "outcome": outcome}) or 0.0
