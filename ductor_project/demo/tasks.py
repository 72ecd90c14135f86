"""The jobs of the demonstration: import a chunk, send a summary.

A job may run twice: its worker can die after the work and before the outcome is recorded. Both bodies are written for
that, and the demonstration kills a worker to show it.
"""

from __future__ import annotations

import time

from django.core.mail import EmailMessage

from ductor_project.demo.checking import check
from ductor_project.demo.models import ImportChunk, ImportedRow, Upload
from queueapp import task


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

    rows = [
        ImportedRow(
            tenant=upload.tenant,
            upload_id=upload.pk,
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
    faulty = list(upload.rows.exclude(fault="").order_by("pk").values_list("chunk__number", "line", "fault")[:20])
    lines = [f"{upload.row_count} rows of {upload.name} were imported.", ""]
    lines += [f"chunk {number}, line {line}: {fault}" for number, line, fault in faulty]
    EmailMessage(
        subject=f"Imported: {upload.name}",
        body="\n".join(lines),
        from_email="imports@example.com",
        to=[f"{upload.tenant}@example.com"],
    ).send()
