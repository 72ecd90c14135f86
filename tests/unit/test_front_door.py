"""The front door from Python: outcomes, errors with the time to come back, transactions, outbox, bulk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from queueapp import Debounce, Singleton, enqueue_many
from queueapp.errors import BacklogFull, FrontDoorError, StoreUnavailable, Throttled
from queueapp.models import OutboxEntry
from queueapp.producer import outbox
from queueapp.producer.preparation import prepare
from queueapp.producer.relaying import relay
from queueapp.signals import enqueue_failed
from queueapp.store.configuration import Rate, ScopeLimits
from queueapp.store.store import Store
from tests.producing import add, run_waiting

pytestmark = pytest.mark.django_db

SLOW = Rate(rate=1, period_ms=3_600_000)


@pytest.fixture
def failures() -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []

    def note(**told: Any) -> None:
        found.append(told)

    enqueue_failed.connect(note)
    yield found
    enqueue_failed.disconnect(note)


def limit(store: Store, **limits: Any) -> None:
    store.configure(1, scopes=[ScopeLimits(tenant="acme", **limits)])


def test_above_the_rate_a_call_raises_and_says_when_to_come_back(store: Store) -> None:
    limit(store, rate=SLOW)
    task = add.using(tenant="acme")
    assert task.enqueue(1).outcome == "enqueued"
    with pytest.raises(
        Throttled, match=r"tests\.producing\.add of tenant 'acme' came above a rate .*\"park\""
    ) as caught:
        task.enqueue(2)
    assert 3_590 < caught.value.retry_after <= 3_600
    assert caught.value.code == "throttled"


def test_c080_the_time_to_come_back_is_never_negative() -> None:
    """C080: Negative or nonsense reset/retry values."""
    assert FrontDoorError(retry_after=-86_401).retry_after == 0
    assert Throttled().retry_after == 0


def test_parked_jobs_are_there_and_say_so(store: Store) -> None:
    limit(store, rate=Rate(rate=20, period_ms=1_000))
    task = add.using(tenant="acme", on_throttle="park")
    results = [task.enqueue(number) for number in range(3)]
    assert [(result.outcome, result.state) for result in results] == [
        ("enqueued", "pending"),
        ("parked", "backlog"),
        ("parked", "backlog"),
    ]
    results[1].refresh()
    assert (results[1].state, results[1].status.value) == ("backlog", "READY")
    while store.backlog_promote(1).next_due_ms >= 0:
        pass
    assert run_waiting(store) == 3
    results[2].refresh()
    assert results[2].return_value == 2


def test_a_full_backlog_raises(store: Store) -> None:
    limit(store, backlog_limit=1)
    task = add.using(tenant="acme")
    task.enqueue(1)
    with pytest.raises(BacklogFull, match="has as many waiting jobs as its backlog_limit allows") as caught:
        task.enqueue(2)
    assert 1 <= caught.value.retry_after <= 300


def test_a_debounced_call_has_the_handle_of_the_job_that_runs(store: Store) -> None:
    task = add.using(tenant="acme", debounce=Debounce("k:{b}", 0.05))
    first, second, other = task.enqueue(1), task.enqueue(2), task.enqueue(1, b=1)
    assert (first.outcome, first.state, second.outcome, other.outcome) == (
        "enqueued",
        "scheduled",
        "debounced",
        "enqueued",
    )
    assert (second.id, second.args) == (first.id, [2])
    while store.promote_due().next_due_ms >= 0:
        pass
    assert run_waiting(store) == 2
    first.refresh()
    assert first.return_value == 2


def test_a_skipped_call_has_the_handle_of_the_job_that_is_there(store: Store) -> None:
    task = add.using(tenant="acme", singleton=Singleton("k"))
    first, second = task.enqueue(1), task.enqueue(2)
    assert (second.outcome, second.id, second.args) == ("skipped", first.id, [1])
    run_waiting(store)
    second.refresh()
    assert second.return_value == 1
    assert task.enqueue(3).outcome == "enqueued"


def test_a_replaced_job_says_why_it_did_not_run(store: Store) -> None:
    task = add.using(tenant="acme", singleton=Singleton("k", mode="replace"))
    first, second = task.enqueue(1), task.enqueue(2)
    assert (first.id != second.id, second.outcome) == (True, "enqueued")
    first.refresh()
    assert (first.status.value, first.outcome) == ("FAILED", "replaced")
    assert first.errors[0].exception_class_path == "queueapp.errors.JobReplaced"


def test_many_at_once_each_with_its_word(store: Store) -> None:
    limit(store, rate=Rate(rate=1, period_ms=3_600_000, burst=3))
    task, single = add.using(tenant="acme"), Singleton("k")
    made = enqueue_many(
        [
            task.using(singleton=single).bind(1),
            task.using(singleton=single).bind(2),
            task.using(debounce=Debounce("d", 60)).bind(3),
            task.using(debounce=Debounce("d", 60)).bind(4),
            task.bind(5),
            task.bind(6),
            task.using(on_throttle="park").bind(7),
        ]
    )
    assert [outcome.word for outcome in made] == [
        *("enqueued", "skipped", "enqueued", "debounced", "enqueued", "throttled", "parked")
    ]
    assert (made[1].id, made[3].id) == (made[0].id, made[2].id)
    assert isinstance(made[5].error, Throttled)
    assert made[5].error.retry_after > 0
    assert [outcome.ok for outcome in made] == [True] * 5 + [False, True]


def test_asynchronous_calls_get_the_same(store: Store) -> None:
    limit(store, rate=SLOW)
    task = add.using(tenant="acme", singleton=Singleton("k"))

    async def calls() -> list[str]:
        first, second = await task.aenqueue(1), await task.aenqueue(2)
        assert first.id == second.id
        with pytest.raises(Throttled):
            await add.using(tenant="acme").aenqueue(3)
        return [first.outcome, second.outcome]

    assert asyncio.run(calls()) == ["enqueued", "skipped"]


@pytest.mark.django_db(transaction=True)
def test_a_refusal_after_commit_is_logged_counted_and_signalled(
    store: Store, failures: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    limit(store, rate=SLOW)
    add.using(tenant="acme").enqueue(1)
    with transaction.atomic():
        result = add.using(tenant="acme").enqueue(2)
    assert isinstance(result.send_error, Throttled)
    assert [(failure["error"].code, failure["kept"]) for failure in failures] == [("throttled", False)]
    assert any("A job was not accepted after commit" in record.message for record in caplog.records)
    assert not OutboxEntry.objects.exists()


def test_what_the_outbox_kept_waits_there_for_its_rate(store: Store, failures: list[dict[str, Any]]) -> None:
    limit(store, rate=SLOW)
    task = add.using(tenant="acme")
    task.enqueue(1)
    prepared = prepare(task, (2,), {})
    outbox.keep([(prepared, StoreUnavailable("gone"))], ["default"])
    relayed = relay()
    [entry] = OutboxEntry.objects.all()
    assert (relayed.sent, relayed.refused, relayed.put_off) == (0, 0, 1)
    assert "above the rate" in entry.error
    assert entry.state == OutboxEntry.State.WAITING
    limit(store, rate=None)
    OutboxEntry.objects.update(due=entry.created)
    assert relay().sent == 1
    assert store.peek(5)[-1][2] == prepared.job.id
