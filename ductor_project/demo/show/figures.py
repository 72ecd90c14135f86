"""From what store and database recorded to the figures. Reading is apart from computing, which is pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from ductor_project.demo.models import ImportChunk, ImportedRow, Upload
from ductor_project.demo.show.load import BIG, SHARES, SMALL
from ductor_project.demo.tasks import import_chunk
from queueapp.bench.statistics import percentile, percentiles, ratio
from queueapp.codec import decode_result
from queueapp.states import Outcome
from queueapp.store import shards

PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import job that completed. Moments in ms since the epoch, `wait_ms` from enqueue to the start of its body."""

    tenant: str
    chunk: int
    enqueued_ms: float
    started_ms: float
    ended_ms: float
    ran_ms: float
    database_ms: float

    @property
    def wait_ms(self) -> float:
        return max(0.0, self.started_ms - self.enqueued_ms)

    @property
    def latency_ms(self) -> float:
        return self.ended_ms - self.enqueued_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """What one tenant got."""

    jobs: int
    share: float
    """Its part of the jobs that ended while uploads still came in."""
    wait_p50_ms: float
    wait_p95_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Whether every job was done, once."""

    enqueued: int
    completed: int
    dead: int
    lost: int
    """Imports that left no completed job, or not all of their rows; summaries of uploads that never completed."""
    recorded_twice: int
    """Outcomes beyond the first of a job, and rows beyond the first of a line."""
    lost_leases: int
    """Leases that ended with the killed worker; their jobs ran again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The workload under one policy, its runs taken together."""

    tenants: Mapping[str, Tenant]
    small_p95_ms: Sequence[float]
    """Of each run: wait of the small tenants, all together."""
    big_latency_p95_ms: Sequence[float]
    """Of each run: from enqueue to end."""
    jobs_per_s: float
    run_ms: float
    """Mean run time of an import."""
    database_share: float
    sums: Sums


def figures(runs: Sequence[Sequence[Import]], sums: Sums) -> Figures:
    """Computes the figures of one policy from the imports of each of its runs. Pure."""
    imports = [job for run in runs for job in run]
    by_tenant: dict[str, list[Import]] = defaultdict(list)
    for job in imports:
        by_tenant[job.tenant].append(job)
    early: Counter[str] = Counter()
    for run in runs:
        closing_ms = max((job.enqueued_ms for job in run), default=0.0)
        early.update(job.tenant for job in run if job.ended_ms <= closing_ms)
    tenants = {}
    for tenant in SHARES:
        waits = [job.wait_ms for job in by_tenant[tenant]]
        p50, p95 = percentiles(waits, 50, 95)
        share = early[tenant] / early.total() if early else 0.0
        tenants[tenant] = Tenant(jobs=len(waits), share=share, wait_p50_ms=p50, wait_p95_ms=p95)
    ran_ms = sum(job.ran_ms for job in imports)
    length_ms = sum(max(job.ended_ms for job in run) - min(job.started_ms for job in run) for run in runs if run)
    return Figures(
        tenants=tenants,
        small_p95_ms=[percentile((job.wait_ms for job in run if job.tenant in SMALL), 95) for run in runs],
        big_latency_p95_ms=[_big_p95_ms(run) for run in runs],
        jobs_per_s=1000 * ratio(len(imports), length_ms),
        run_ms=ratio(ran_ms, len(imports)),
        database_share=ratio(sum(job.database_ms for job in imports), ran_ms),
        sums=sums,
    )


def big_ratio(fifo: Sequence[Import], tiered: Sequence[Import]) -> float:
    """The big tenant's p95 latency in one run under tiered, as a multiple of that in one under fifo."""
    return ratio(_big_p95_ms(tiered), _big_p95_ms(fifo))


def _big_p95_ms(run: Sequence[Import]) -> float:
    return percentile((job.latency_ms for job in run if job.tenant == BIG), 95)


def read(pool: str) -> tuple[list[Import], Sums]:
    """What is recorded of a pool: by the store for every job, by the database for every upload, chunk and row."""
    imports, summaries = _ended(pool)
    overview = shards.reads(pool).overview()
    uploads = Upload.objects.filter(pool=pool).count()
    lines = {
        chunk: text.count("\n") + 1
        for chunk, text in ImportChunk.objects.filter(upload__pool=pool).values_list("pk", "text")
    }
    stored = dict(ImportedRow.objects.filter(upload__pool=pool).values_list("chunk").annotate(Count("pk")))
    runs = Counter(job.chunk for job in imports)
    undone = [chunk for chunk, count in lines.items() if not runs[chunk] or stored.get(chunk, 0) < count]
    sums = Sums(
        enqueued=len(lines) + uploads,
        completed=len(runs) + min(summaries, uploads),
        dead=overview.dead,
        lost=len(undone) + max(0, uploads - summaries),
        recorded_twice=(runs.total() - len(runs))
        + max(0, summaries - uploads)
        + (overview.stats.get("completed", 0) - len(imports) - summaries)
        + sum(max(0, stored.get(chunk, 0) - count) for chunk, count in lines.items()),
        lost_leases=overview.stats.get("lost", 0),
    )
    return imports, sums


def _ended(pool: str) -> tuple[list[Import], int]:
    """The imports that completed, and the number of summaries that did."""
    reads = shards.reads(pool)
    found: Any = reads.client.zrange(reads.keys["ended"], 0, -1)
    ids = [job_id.decode() for job_id in found]
    imports, summaries = [], 0
    for first in range(0, len(ids), PAGE):
        for record in reads.jobs(ids[first : first + PAGE]):
            if record is None or record.outcome is not Outcome.COMPLETED:
                continue
            if record.task != import_chunk.module_path:
                summaries += 1
                continue
            result = decode_result(record.result)
            imports.append(
                Import(
                    tenant=record.tenant,
                    chunk=result["chunk"],
                    enqueued_ms=record.submitted_ms,
                    started_ms=result["started_ms"],
                    ended_ms=record.ended_ms,
                    ran_ms=result["ran_ms"],
                    database_ms=result["database_ms"],
                )
            )
    return imports, summaries
