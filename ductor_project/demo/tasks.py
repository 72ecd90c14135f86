"""The jobs of the demonstration: import a chunk, send a summary; and the steps of its flow (`flows`).

A job may run twice: its worker can die after the work and before the outcome is recorded. Both bodies are written for
that, and the demonstration kills a worker to show it.
"""

from __future__ import annotations

import csv
import time
from typing import Any

from django.core.mail import EmailMessage

from ductor_project.demo.checking import check
from ductor_project.demo.models import ImportChunk, ImportedRow, Upload
from queueapp import backoff, task
from queueapp.worker.context import JobContext


@task
def import_chunk(chunk_id: int) -> dict[str, float]:
    """Check the rows of a chunk and store them; the last chunk of an upload sets off its summary.

    Returns when it ran and how long the database took, for the figures of the demonstration.
    """
    started_s, clock = time.time(), time.perf_counter
    begun = clock()
    chunk = ImportChunk.objects.select_related("upload").get(pk=chunk_id)
    upload = chunk.upload
    read_s = clock() - begun

    rows = _rows(chunk)
    checked = clock()
    # One short insert. On a second run of the job it meets its own rows and changes nothing.
    ImportedRow.objects.bulk_create(rows, ignore_conflicts=True)
    imported = upload.is_imported()
    written_s = clock() - checked
    if imported:
        # Two last chunks may both see all rows: the key makes it one summary.
        closing = send_summary.using(queue_name=upload.pool, idempotency_key=f"summary of upload {upload.pk}")
        closing.enqueue(upload.pk)
    return {
        "chunk": chunk_id,
        "started_ms": started_s * 1000,
        "ran_ms": (clock() - begun) * 1000,
        "database_ms": (read_s + written_s) * 1000,
    }


@task
def send_summary(upload_id: int) -> None:
    """The closing job of an upload: tell its owner what was imported."""
    upload = Upload.objects.get(pk=upload_id)
    _tell(upload, f"Imported: {upload.name}", f"{upload.row_count} rows of {upload.name} were imported.")


# -- steps of the flow -------------------------------------------------------------------------------------------


class RegisterBusy(Exception):
    """The register of accounts had no time for this chunk: try it again."""


BUSY_CUSTOMER = "Pat Busy"
"""A chunk with a payment of this customer meets a busy register first: the demonstration wants something to retry."""


@task
def split_upload(upload_id: int) -> list[int]:
    """The file becomes chunks."""
    return Upload.objects.get(pk=upload_id).split()


@task
def validate(chunk_ids: list[int]) -> dict[str, Any]:
    """Which chunks are worth importing, and how many rows are misshapen. Raises ValueError when most rows are."""
    chunks, misshapen, rows = [], 0, 0
    for chunk in ImportChunk.objects.filter(pk__in=chunk_ids).order_by("number"):
        shapes = [len(fields) == 5 for fields in csv.reader(chunk.text.splitlines())]
        rows, misshapen = rows + len(shapes), misshapen + shapes.count(False)
        if any(shapes):
            chunks.append(chunk.pk)
    if misshapen * 2 > rows:
        raise ValueError(f"{misshapen} of {rows} rows have not 5 fields: these are no payments.")
    return {"chunks": chunks, "misshapen": misshapen}


@task(takes_context=True, backoff=backoff.fixed(0.2))
def import_rows(context: JobContext, chunk_id: int) -> dict[str, int]:
    """Check the rows of a chunk and store them. Returns how many attempts it took."""
    chunk = ImportChunk.objects.select_related("upload").get(pk=chunk_id)
    if context.attempt == 1 and BUSY_CUSTOMER in chunk.text:
        raise RegisterBusy(f"chunk {chunk.number}")
    ImportedRow.objects.bulk_create(_rows(chunk), ignore_conflicts=True)
    return {"chunk": chunk_id, "attempts": context.attempt}


@task
def report(upload_id: int, counts: dict[str, int]) -> dict[str, int]:
    """The last step: tell the owner of an upload what became of it."""
    upload = Upload.objects.get(pk=upload_id)
    _tell(upload, f"Report: {upload.name}", f"{counts['completed']} of {counts['total']} chunks were imported.")
    return {"rows": upload.rows.count(), "faulty": upload.rows.exclude(fault="").count()}


# -- parts -------------------------------------------------------------------------------------------------------


def _rows(chunk: ImportChunk) -> list[ImportedRow]:
    return [
        ImportedRow(
            tenant=chunk.upload.tenant,
            upload_id=chunk.upload.pk,
            chunk_id=chunk.pk,
            line=row.line,
            customer=row.customer,
            email=row.email,
            iban=row.iban,
            amount=row.amount,
            booked=row.booked,
            fault=row.fault,
        )
        for row in check(chunk.text)
    ]


def _tell(upload: Upload, subject: str, first: str) -> None:
    """A mail with the faulty rows beneath."""
    faulty = list(upload.rows.exclude(fault="").order_by("pk").values_list("chunk__number", "line", "fault")[:20])
    lines = [first, "", *(f"chunk {number}, line {line}: {fault}" for number, line, fault in faulty)]
    EmailMessage(
        subject=subject,
        body="\n".join(lines),
        from_email="imports@example.com",
        to=[f"{upload.tenant}@example.com"],
    ).send()
