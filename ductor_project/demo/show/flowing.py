"""The flow of the demonstration at work: a few files go through it, and one chunk fails at first and runs again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ductor_project.demo.checking import HEADER
from ductor_project.demo.flows import import_upload
from ductor_project.demo.models import ROWS_PER_CHUNK, ImportChunk, ImportedRow, Upload, csv_rows
from ductor_project.demo.show.load import SMALL, File, csv_text
from ductor_project.demo.show.printing import duration
from ductor_project.demo.show.site import Site
from ductor_project.demo.tasks import BUSY_CUSTOMER
from flows.models import ItemRun, Run
from queueapp.bench.harness import Report
from queueapp.bench.statistics import median

TENANTS = SMALL[:3]
CHUNKS = 8
"""Of each file."""
BUSY_CHUNK = 2
"""Of the first file: the chunk that fails at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flowed:
    """What became of the runs."""

    runs: int
    completed: int
    run_ms: float
    """Median, from the start of a run to its end."""
    rows: int
    """In the files."""
    imported: int
    retried_attempts: int
    """Of the chunk that fails at first."""
    reports: int
    """Mails of the last step."""


def upload(site: Site, pool: str) -> None:
    """A file of each tenant, as a flow. In the first one a chunk will meet a busy register."""
    for number, tenant in enumerate(TENANTS):
        text = csv_text(File(at_s=0, tenant=tenant, name=f"flow-{number}.csv", chunks=CHUNKS))
        site.upload(tenant, f"flow-{number}.csv", with_busy_row(text) if number == 0 else text, pool, as_flow=True)


def with_busy_row(text: str) -> str:
    """The same file, but that one payment is of the customer at whom the register is busy."""
    lines = csv_rows(text)
    place = BUSY_CHUNK * ROWS_PER_CHUNK
    lines[place] = ",".join([BUSY_CUSTOMER, *lines[place].split(",")[1:]])
    return "\n".join([HEADER, *lines]) + "\n"


def ended() -> int:
    """How many runs have."""
    return Run.objects.filter(flow=import_upload.name, state__in=Run.ENDED).count()


def read(mails: Path) -> Flowed:
    """From the rows of the runs, and what they imported and sent."""
    runs = Run.objects.filter(flow=import_upload.name)
    uploads = Upload.objects.exclude(run="")
    items = ItemRun.objects.filter(step_run__run__in=runs, ending="completed").values_list("output", flat=True)
    busy = set(ImportChunk.objects.filter(text__contains=BUSY_CUSTOMER).values_list("pk", flat=True))
    return Flowed(
        runs=runs.count(),
        completed=runs.filter(state=Run.State.COMPLETED).count(),
        run_ms=median([run.ended_ms - run.started_ms for run in runs if run.ended_ms is not None]),
        rows=sum(uploads.values_list("row_count", flat=True)),
        imported=ImportedRow.objects.filter(upload__in=uploads).count(),
        retried_attempts=max((output["attempts"] for output in items if output and output["chunk"] in busy), default=0),
        reports=sum("Subject: Report: flow-" in mail.read_text() for mail in mails.glob("*")),
    )


def judge(report: Report, flowed: Flowed) -> None:
    """Fills the report's figures, and one sentence for each promise that was missed. Pure but for that."""
    figures: Mapping[str, float] = {
        "flow_runs": flowed.runs,
        "flow_runs_completed": flowed.completed,
        "flow_run_ms": flowed.run_ms,
        "flow_rows_imported": flowed.imported,
        "flow_retried_chunk_attempts": flowed.retried_attempts,
        "flow_reports": flowed.reports,
    }
    report.figures |= figures
    if flowed.completed != len(TENANTS):
        report.missed.append(f"{len(TENANTS)} runs of the flow were started and {flowed.completed} completed.")
    if flowed.imported != flowed.rows:
        report.missed.append(f"The flow was to import {flowed.rows} rows and imported {flowed.imported}.")
    if flowed.retried_attempts != 2:
        report.missed.append(
            f"The chunk of the flow that fails at first took {flowed.retried_attempts} attempts instead of 2."
        )
    if flowed.reports != len(TENANTS):
        report.missed.append(f"{len(TENANTS)} runs of the flow sent {flowed.reports} reports.")


def sentences(flowed: Flowed) -> Iterator[str]:
    """What it comes to, for people."""
    yield "  A flow (split the file, validate it, import its chunks side by side, report):"
    yield f"  {flowed.runs} runs started, {flowed.completed} completed, median {duration(flowed.run_ms)};"
    yield f"  {flowed.imported} of {flowed.rows} rows imported, {flowed.reports} reports sent;"
    yield f"  the chunk that fails at first was imported at attempt {flowed.retried_attempts}."
