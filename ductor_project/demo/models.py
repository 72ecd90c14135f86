"""What customers upload and what becomes of it: a file, its chunks, and the rows that were imported from them."""

from __future__ import annotations

from typing import Any

from django.db import models, transaction

from ductor_project.demo.checking import HEADER

ROWS_PER_CHUNK = 20
"""Rows that one job imports: small enough that nobody waits long behind one, large enough to be worth a job."""


class Upload(models.Model):
    """A file of payments that a tenant uploaded, and the pool that its jobs go to."""

    tenant = models.CharField(max_length=64, db_index=True)
    name = models.CharField(max_length=200)
    pool = models.CharField(max_length=64, default="default")
    row_count = models.PositiveIntegerField()
    uploaded_at = models.DateTimeField(auto_now_add=True)
    text = models.TextField(blank=True)
    """The whole file, of an upload that a flow imports; that one makes the chunks."""
    run = models.CharField(max_length=22, blank=True)
    """The run of the flow that imports it."""

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.name} of {self.tenant}"

    @classmethod
    def receive(cls, *, tenant: str, name: str, text: str, pool: str) -> Upload:
        """Store a CSV text and its chunks, whole or not at all. Saving a chunk enqueues its import (`signals`)."""
        lines = csv_rows(text)
        with transaction.atomic():
            upload = cls.objects.create(tenant=tenant, name=name, pool=pool, row_count=len(lines))
            for number, first in enumerate(range(0, len(lines), ROWS_PER_CHUNK)):
                # One by one, not bulk_create, which sends no signals.
                ImportChunk.objects.create(
                    upload=upload, number=number, text="\n".join(lines[first : first + ROWS_PER_CHUNK])
                )
        return upload

    def split(self) -> list[int]:
        """Makes chunks of the text, unless they are there, and gives their keys in order. No signal, so no job each."""
        lines = csv_rows(self.text)
        chunks = [
            ImportChunk(upload=self, number=number, text="\n".join(lines[first : first + ROWS_PER_CHUNK]))
            for number, first in enumerate(range(0, len(lines), ROWS_PER_CHUNK))
        ]
        ImportChunk.objects.bulk_create(chunks, ignore_conflicts=True)
        return list(self.chunks.order_by("number").values_list("pk", flat=True))

    def is_imported(self) -> bool:
        """Whether every row has been imported. True for every caller that asks after the last row was committed."""
        return self.rows.count() >= self.row_count


class ImportChunk(models.Model):
    """Some lines of an upload, the work of one job."""

    upload = models.ForeignKey(Upload, models.CASCADE, related_name="chunks")
    number = models.PositiveIntegerField()
    text = models.TextField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("upload", "number"), name="demo_chunk_number"),)

    def __str__(self) -> str:
        return f"chunk {self.number} of {self.upload}"


class ImportedRow(models.Model):
    """A payment. The constraint is what makes the import idempotent: a line of a chunk exists once."""

    tenant = models.CharField(max_length=64)
    upload = models.ForeignKey(Upload, models.CASCADE, related_name="rows")
    chunk = models.ForeignKey(ImportChunk, models.CASCADE, related_name="rows", db_index=False)
    line = models.PositiveIntegerField()
    customer = models.CharField(max_length=200)
    email = models.CharField(max_length=200)
    iban = models.CharField(max_length=34)
    amount = models.DecimalField(max_digits=12, decimal_places=2, null=True)
    booked = models.DateField(null=True)
    fault = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("chunk", "line"), name="demo_row_once"),)

    def __str__(self) -> str:
        return f"line {self.line} of {self.chunk_id}"


def csv_rows(text: str) -> list[str]:
    """The rows of an uploaded file without its header. ValueError says what is wrong with the file."""
    lines: list[Any] = [line for line in text.splitlines() if line.strip()]
    if not lines or lines[0].replace(" ", "").lower() != HEADER:
        raise ValueError(f"The first line of the file must be {HEADER}.")
    if len(lines) == 1:
        raise ValueError("The file has no rows below its header.")
    return lines[1:]
