"""`result.cancel()`: what it answers, and what the handle says afterwards, wherever the job stands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from queueapp import task
from queueapp.compat import TaskResultStatus
from queueapp.errors import NotSentYet
from queueapp.inspection.jobs import find_job
from queueapp.models import OutboxEntry
from queueapp.producer.results import DuctorResult
from queueapp.store import shards
from queueapp.store.records import Completed, Failed
from queueapp.store.store import Store
from queueapp.testing import recorded
from queueapp.worker.context import JobContext
from tests.producing import add, fail, run_waiting
from tests.unit.outbox.away import kept
from tests.working import work

seen: list[Any] = []


@task(takes_context=True)
def cancels_itself(context: JobContext) -> str:
    own = context.task_result
    assert isinstance(own, DuctorResult)
    seen.append((context.is_cancelled, own.cancel(), own.cancelling))
    return "a result that nobody gets"


@pytest.fixture(params=["cancel", "acancel"])
def cancel(request: pytest.FixtureRequest) -> Any:
    """Both ways."""
    if request.param == "cancel":
        return lambda result: result.cancel()
    return lambda result: async_to_sync(result.acancel)()


def test_one_that_waits_has_ended(store: Store, cancel: Any) -> None:
    result = add.enqueue(1)
    assert cancel(result) is True
    assert (result.state, result.outcome, result.status) == ("ended", "cancelled", TaskResultStatus.FAILED)
    assert cancel(result) is True, "asked again it is so already"
    assert run_waiting(store) == 0


def test_one_that_runs_is_told_to_stop(store: Store, cancel: Any) -> None:
    result = add.enqueue(1)
    [job] = store.check_and_lease("w", 1, want=1, begin=1, lease_ms=60_000).jobs
    assert cancel(result) is True
    assert (result.state, result.status, result.cancelling) == ("active", TaskResultStatus.RUNNING, True)
    assert cancel(result) is True
    assert store.complete([Completed(id=job.id, attempts=1, run_ms=1, result=b"1")]) == ["cancelled"]
    assert cancel(result) is True
    assert (result.outcome, result.cancelling, result.status) == ("cancelled", False, TaskResultStatus.FAILED)
    assert [error.exception_class_path for error in result.errors] == ["queueapp.errors.JobCancelled"]
    assert result.worker_ids == ["w"]
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_what_its_body_raised_then_stands_before_the_reason(store: Store) -> None:
    result = add.enqueue(1)
    [job] = store.check_and_lease("w", 1, want=1, begin=1, lease_ms=60_000).jobs
    result.cancel()
    failed = Failed(id=job.id, attempts=1, run_ms=1, error=b'{"class":"builtins.OSError"}', retry_ms=5)
    assert store.fail([failed]) == ["cancelled"]
    result.refresh()
    assert [error.exception_class_path for error in result.errors] == [
        "builtins.OSError",
        "queueapp.errors.JobCancelled",
    ]
    assert result.worker_ids == ["w"]


def test_too_late(store: Store, cancel: Any) -> None:
    done, dead = add.enqueue(1), fail.enqueue("no")
    run_waiting(store)
    assert cancel(done) is False
    assert (done.outcome, done.return_value) == ("completed", 1)
    assert cancel(dead) is False
    assert dead.state == "dead"
    store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=9_000, dead_max=9, replay_window_ms=0)
    assert cancel(done) is False, "nobody knows it any more"


@pytest.mark.django_db(transaction=True)
def test_before_the_commit_it_cannot_be_called_off(store: Store, cancel: Any) -> None:
    with transaction.atomic():
        result = add.enqueue(1)
        with pytest.raises(NotSentYet):
            result.cancel()
    assert cancel(result) is True


@pytest.mark.django_db(transaction=True)
def test_it_is_taken_out_of_the_outbox(store: Store, cancel: Any) -> None:
    result = kept()
    assert cancel(result) is True
    assert (result.state, result.outcome, result.outbox) == ("ended", "cancelled", "")
    assert OutboxEntry.objects.count() == 0
    assert cancel(result) is False, "it was never there"


@pytest.mark.django_db(transaction=True)
def test_while_a_relay_sends_it_it_is_not_said_to_be_cancelled(store: Store, cancel: Any) -> None:
    """It would be in the store a moment later, and run."""
    result = kept()
    soon = timezone.now() + timedelta(seconds=60)
    OutboxEntry.objects.update(claim="pass", due=soon)
    with pytest.raises(NotSentYet):
        cancel(result)
    assert OutboxEntry.objects.count() == 1
    OutboxEntry.objects.update(due=timezone.now())
    assert cancel(result) is True, "whoever claimed it has died"


def test_a_body_that_cancels_its_own_job(store: Store) -> None:
    seen.clear()
    result = cancels_itself.enqueue()
    work()
    result.refresh()
    assert result.outcome == "cancelled"
    assert seen == [(False, True, True)]
    found = find_job(result.id)
    assert found is not None
    assert found.record.result is None


def test_in_memory() -> None:
    with recorded():
        result = add.enqueue(1)
        assert result.cancel() is True
        assert (result.state, result.outcome, result.cancel()) == ("ended", "cancelled", True)
        running = add.enqueue(1)
        shard = shards.store("default")
        leased = shard.lease(running.id[-22:], "w")  # type: ignore[attr-defined]  # the narrower type is known here alone
        assert (running.cancel(), running.cancelling) == (True, True)
        ended = Completed(id=leased.id, attempts=1, run_ms=1)
        assert shard.finish(ended) == "cancelled"  # type: ignore[attr-defined]  # the narrower type is known here alone
        running.refresh()
        assert running.outcome == "cancelled"
