"""Enqueueing from a signal: each chunk that is saved gets its import job, once the upload has committed."""

from __future__ import annotations

from django.db.models.signals import post_save

from ductor_project.demo.models import ImportChunk
from ductor_project.demo.tasks import import_chunk


def connect() -> None:
    """Listen to saves. Called once, by the app's `ready()`."""
    post_save.connect(enqueue_import, sender=ImportChunk, dispatch_uid="demo.enqueue_import")


def enqueue_import(*, instance: ImportChunk, created: bool, raw: bool, **_: object) -> None:
    """A new chunk is a job of its tenant, in the pool of its upload. Fixtures (`raw`) are no uploads."""
    if created and not raw:
        import_chunk.using(tenant=instance.upload.tenant, queue_name=instance.upload.pool).enqueue(instance.pk)
