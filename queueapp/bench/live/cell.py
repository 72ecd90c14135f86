"""A cell in earnest: a pool of its own, processes of its own, a workload that is sent by plan, and what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from queueapp import backoff
from queueapp.bench.live import pools
from queueapp.bench.live.harvest import harvest
from queueapp.bench.live.pacing import Answer, Sent, send
from queueapp.bench.live.plan import Arranged, Plan
from queueapp.bench.live.processes import Dice, Serving, serving
from queueapp.bench.live.producing import OWN, Batches
from queueapp.bench.results.cells import Cell
from queueapp.bench.workloads import Job, Workload
from queueapp.errors import DuctorError
from queueapp.store import scripts, shards
from queueapp.store.reads import Reads
from queueapp.store.views import JobRecord

LEAD_S = 0.1
"""From the choice of the beginning to the beginning."""
LOOK_S = 0.05
READ_TOGETHER = 250

Told = Callable[[str], object]
"""Hears how far the cell is."""


def run_cell(plan: Plan, arranged: Arranged, workload: Workload, pool: str, directory: Path, told: Told) -> Cell:
    """Runs it, on the ground of a benchmark. `pool` is a name that no pool has. Raises RuntimeError when one of its
    processes does not start or ends too soon, DuctorError for what the store refuses.
    """
    failures = plan.profile.failures
    dice = Dice(failing=failures.failing, lost=failures.lost, seed=arranged.fail_seed)
    told("starting")
    with pools.opened(pool, arranged.dispatch, arranged.policy, plan.profile.limits):
        with serving(
            pool, directory, workers=plan.workers, slots=plan.slots, lease_ms=failures.lease_ms, dice=dice
        ) as processes:
            batches = _batches(plan, workload, pool)
            begin_s = time.time() + LEAD_S
            ends_s = begin_s + plan.patience_s(workload, os.cpu_count() or 1)
            sent = _send(workload, batches, begin_s, ends_s, processes, told)
            timed_out = not _all_ended(shards.reads(pool), len(workload.jobs), ends_s, processes, told)
        reads = shards.reads(pool)
        found = harvest(
            workload.jobs,
            {one.number: one for one in sent},
            _records(reads, sent),
            reads.overview().stats,
            begin_us=round(begin_s * 1_000_000),
        )
    return Cell(
        setting=plan.setting(arranged, workload),
        outcomes=found.outcomes,
        timed_out=timed_out,
        lost=found.lost,
        recorded_twice=found.recorded_twice,
        dead_letters=found.dead_letters,
    )


def _batches(plan: Plan, workload: Workload, pool: str) -> Batches:
    """What sends the jobs; ready to do it, so that the first ones do not wait for what is done once."""
    failures = plan.profile.failures
    made = Batches(
        pool,
        OWN,
        plan.profile.run.execution,
        max_attempts=failures.attempts,
        max_crashes=failures.attempts,
        backoff=backoff.fixed(failures.backoff_ms / 1000),
    )
    made.bound(workload.jobs[0], time.time())
    scripts.script("enqueue")  # assembled once for this process
    return made


def _send(
    workload: Workload, batches: Batches, begin_s: float, ends_s: float, processes: Serving, told: Told
) -> list[Sent]:
    """Every job at its moment, or as many as come before the patience is over. Raises DuctorError for the first one
    that is refused: a pool without a limit on what waits takes all there is, and without that job the cell is another.
    """

    def enqueue(jobs: Sequence[Job]) -> Sequence[Answer]:
        answers = batches.send(jobs, begin_s)
        if batches.said:
            raise DuctorError(f"A job of the cell was refused: {next(iter(batches.said.values()))}")
        return answers

    number = 0

    def count(latest: Sequence[Sent]) -> None:
        nonlocal number
        number += len(latest)
        told(f"{number:,} of {len(workload.jobs):,} jobs sent")

    sent = send(
        workload.jobs,
        enqueue,
        begin_s=begin_s,
        told=count,
        goes_on=lambda: time.time() < ends_s and processes.goes_on(),
    )
    processes.require()
    return sent


def _all_ended(reads: Reads, jobs: int, ends_s: float, processes: Serving, told: Told) -> bool:
    """Waits until every job has completed or is dead. False: the patience was over before."""
    while (ended := sum(reads.sizes(["ended", "dead"]))) < jobs:
        if time.time() >= ends_s:
            return False
        processes.require()
        told(f"{ended:,} of {jobs:,} jobs ended")
        time.sleep(LOOK_S)
    return True


def _records(reads: Reads, sent: Sequence[Sent]) -> dict[int, JobRecord | None]:
    found: dict[int, JobRecord | None] = {}
    for first in range(0, len(sent), READ_TOGETHER):
        page = sent[first : first + READ_TOGETHER]
        records = reads.jobs([_inner(one) for one in page])
        found |= {one.number: record for one, record in zip(page, records, strict=True)}
    return found


def _inner(sent: Sent) -> str:
    assert sent.id is not None  # what is refused ends the cell
    return sent.id.rpartition(".")[2]
