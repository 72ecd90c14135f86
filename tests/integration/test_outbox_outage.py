"""A real outage: what was committed while the store was down is in the store when it is back, each job once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connections, transaction

from queueapp import enqueue_many
from queueapp.cli.scheduler import make_scheduler
from queueapp.compat import task_enqueued
from queueapp.models import OutboxEntry
from queueapp.producer import outbox
from queueapp.store import embedded, shards
from queueapp.sync.installation import claim
from tests.integration.conftest import until
from tests.producing import add

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

JOBS = 450
"""More than two passes."""


@contextmanager
def schedulers(count: int) -> Iterator[None]:
    """Schedulers of this process, in threads; one of them leads, all of them relay."""
    running = [make_scheduler(f"scheduler-{number}", claim()) for number in range(count)]

    def run(number: int) -> None:
        try:
            running[number].run()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for scheduler in running:
            scheduler.stop()
        for thread in threads:
            thread.join(30)


def test_what_was_committed_during_an_outage_arrives_once(own_store: embedded.EmbeddedServer, directory: Path) -> None:
    announced: list[str] = []

    def receive(task_result: object, **_: object) -> None:
        announced.append(task_result.id)  # type: ignore[attr-defined]  # Ductor sends its own result

    task_enqueued.connect(receive)
    try:
        with schedulers(2):
            until(lambda: shards.reads("default").overview().leader, what="a leader")
            own_store.stop()
            with transaction.atomic():
                one = add.enqueue(1)
                many = enqueue_many(add.bind(number) for number in range(JOBS - 1))
            assert (one.outbox, outbox.waiting(), announced) == ("default", JOBS, [])

            again = embedded.start(directory)
            try:
                until(lambda: OutboxEntry.objects.count() == 0, timeout=90, what="the outbox to be sent")
                assert shards.reads("default").overview().waiting == JOBS
                one.refresh()
                assert (one.state, one.outbox) == ("pending", "")
                until(lambda: len(announced) >= JOBS)
                assert sorted(announced) == sorted([one.id, *(str(outcome.id) for outcome in many)])
                assert shards.store("default").verify() == []
            finally:
                again.stop()
    finally:
        task_enqueued.disconnect(receive)
