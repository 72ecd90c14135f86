"""The flow of the demonstration: a file is split, validated, imported chunk by chunk, and reported on.

The same import as `signals` makes of jobs that know of each other, here as steps of a run that survives whatever dies.
"""

from __future__ import annotations

from django.db import transaction

from ductor_project.demo import tasks
from ductor_project.demo.models import Upload, csv_rows
from flows import flow, map_step, step


@flow
def import_upload(upload_id: int) -> object:
    """How many chunks there are is known when the file has been read; a chunk that fails is tried again by itself."""
    chunks = step(tasks.split_upload, upload_id)
    checked = step(tasks.validate, chunks)
    imported = map_step(tasks.import_rows, checked["chunks"], max_parallel=8, retries=2)
    return step(tasks.report, upload_id, imported.counts)


def receive(*, tenant: str, name: str, text: str) -> Upload:
    """Store a CSV text and start its flow, both or neither: the first step goes to the queue after the commit."""
    with transaction.atomic():
        upload = Upload.objects.create(tenant=tenant, name=name, text=text, row_count=len(csv_rows(text)))
        upload.run = import_upload.using(tenant=tenant, key=f"upload {upload.pk}").start(upload.pk).id
        upload.save(update_fields=["run"])
    return upload
