"""Jobs that exist already, met in bulk: each is answered as it would be alone, and all are read together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.test import override_settings

from queueapp import aenqueue_many, enqueue_many
from queueapp.errors import StoreUnavailable
from queueapp.producer.bulk import Outcome
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import BoundTask
from queueapp.store import connection, shards
from queueapp.store.store import Store
from queueapp.testing import immediate, recorded
from tests.producing import add, fail, run_waiting
from tests.unit.conftest import RoundTrips

Send = Callable[[Sequence[BoundTask]], list[Outcome]]


def in_a_loop(jobs: Iterable[BoundTask]) -> list[Outcome]:
    return asyncio.run(aenqueue_many(jobs))


both = pytest.mark.parametrize("send", [enqueue_many, in_a_loop])


def keyed(number: int, *, a: Any = 1, **options: Any) -> BoundTask:
    return add.using(idempotency_key=f"k{number}", **options).bind(a, number)


def words(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.word for outcome in outcomes]


@both
def test_a_hundred_cost_what_one_costs(store: Store, round_trips: RoundTrips, send: Send) -> None:
    jobs = [keyed(number) for number in range(100)]
    first = send(jobs)
    send(jobs[:1])
    round_trips.since_last()

    send([add.bind(1)])
    new = round_trips.since_last()
    send(jobs[:1])
    one = round_trips.since_last()
    again = send(jobs)
    hundred = round_trips.since_last()

    assert words(again) == ["exists"] * 100
    assert [outcome.id for outcome in again] == [outcome.id for outcome in first]
    assert (one, hundred) == (new + 1, new + 1), "what stands for the jobs is read in one round trip"


@both
def test_each_pool_is_read_once(store: Store, round_trips: RoundTrips, send: Send) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": {"default": {}, "mails": {}}}):
        jobs = [keyed(number, queue_name=("default", "mails")[number % 2]) for number in range(20)]
        first = send(jobs)
        for pool, own in (("default", first[::2]), ("mails", first[1::2])):
            assert set(shards.store(pool).cancel([str(outcome.id)[-22:] for outcome in own])) == {"cancelled"}
        send(jobs[:2])
        round_trips.since_last()

        send(jobs[:2])
        few = round_trips.since_last()
        again = send(jobs)

        assert round_trips.since_last() == few
        assert [outcome.id for outcome in again] == [outcome.id for outcome in first]
        assert [outcome.result.task.queue_name for outcome in again if outcome.result] == ["default", "mails"] * 10
        assert {outcome.result.state for outcome in again if outcome.result} == {"ended"}


@both
def test_large_jobs_are_read_in_parts(store: Store, round_trips: RoundTrips, send: Send) -> None:
    """In those in which they are sent, so that no answer of the store is larger than a call may be."""
    new = [keyed(number, a="x" * 200_000) for number in range(8)]
    jobs = [keyed(number, a="y" * 200_000) for number in range(8, 16)]
    send(jobs)
    send(jobs[:1])
    round_trips.since_last()

    send(new)
    sent = round_trips.since_last()
    assert words(send(jobs)) == ["exists"] * 8

    assert round_trips.since_last() == sent + 2, "four jobs a call, and as many in each part"


def of_all_kinds(store: Store) -> tuple[list[BoundTask], list[str]]:
    """Jobs whose keys stand for jobs in every state, and some that do not exist yet; the words that they will get."""
    later = datetime(2099, 1, 1, tzinfo=UTC)
    completed = keyed(1, metadata={"order": 7})
    dead = fail.using(idempotency_key="dead", max_attempts=1).bind("no")
    first = enqueue_many([completed, dead])
    run_waiting(store)
    cancelled, gone, leased = keyed(2), keyed(3), keyed(4)
    first += enqueue_many([cancelled, gone])
    store.cancel([str(outcome.id)[-22:] for outcome in first[2:4]])
    store.client.delete(store.keys.run(str(first[3].id)[-22:]))
    store.client.zrem(store.keys["ended"], str(first[3].id)[-22:])
    enqueue_many([leased])
    assert len(store.check_and_lease("busy", 1, want=1, begin=1, lease_ms=30_000).jobs) == 1
    waiting, scheduled = keyed(5, metadata={"order": 8}), keyed(6, run_after=later)
    enqueue_many([waiting, scheduled])
    jobs = [completed, dead, cancelled, gone, leased, waiting, scheduled, keyed(5, a=2), keyed(5, tenant="other")]
    return jobs, ["exists"] * 7 + ["conflict", "enqueued"]


FACTS = ("id", "state", "outcome", "reason", "metadata", "progress", "args", "kwargs", "worker_ids", "errors", "status")
MOMENTS = ("enqueued_at", "started_at", "finished_at", "last_attempted_at", "_return_value")


def facts(result: DuctorResult | None) -> dict[str, Any]:
    return {name: getattr(result, name) for name in FACTS + MOMENTS}


@both
def test_each_is_answered_as_it_would_be_alone(store: Store, send: Send) -> None:
    jobs, want = of_all_kinds(store)
    alone = [send([job])[0] for job in jobs[:8]]

    together = send(jobs)

    assert words(together) == want
    assert words(alone) == want[:8]
    for one, other in zip(together[:7], alone, strict=False):
        assert facts(one.result) == facts(other.result)
    assert [one.result.state for one in together[:7] if one.result] == [
        "ended",
        "dead",
        "ended",
        "pending",  # gone between the two calls: as far as the caller can tell
        "active",
        "pending",
        "scheduled",
    ]
    completed, waiting = together[0].result, together[5].result
    assert completed is not None
    assert waiting is not None
    assert (completed.return_value, completed.args) == (2, [1, 1])
    assert waiting.metadata == {"order": 8}
    assert str(together[7].error) == str(alone[7].error)
    assert together[8].id != together[5].id, "a key of another tenant is another key"


@both
def test_one_call_may_name_a_job_twice(store: Store, send: Send) -> None:
    new, same = send([keyed(1), keyed(1)])
    again = send([keyed(1), add.bind(1), keyed(1)])

    assert words([new, same, *again]) == ["enqueued", "exists", "exists", "enqueued", "exists"]
    assert len({outcome.id for outcome in (new, same, again[0], again[2])}) == 1
    assert again[0].result is not again[2].result


@both
@pytest.mark.dirty_store
def test_a_row_that_cannot_be_read_costs_the_others_nothing(store: Store, send: Send) -> None:
    first = send([keyed(number) for number in range(3)])
    run_waiting(store)
    store.client.hset(store.keys.run(str(first[1].id)[-22:]), "s", "none of ours")

    again = send([keyed(number) for number in range(3)])

    assert words(again) == ["exists"] * 3
    assert [outcome.result.state for outcome in again if outcome.result] == ["ended", "pending", "ended"]


@both
def test_when_the_store_goes_away_in_between(store: Store, monkeypatch: pytest.MonkeyPatch, send: Send) -> None:
    """That the jobs exist is known, and is not taken back because it cannot be told how they stand."""
    first = send([keyed(number) for number in range(3)])

    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "reads", away)
        patch.setattr(redis.asyncio.Redis, "pipeline", away)
        again = send([keyed(number) for number in range(3)])

    assert words(again) == ["exists"] * 3
    assert [outcome.id for outcome in again] == [outcome.id for outcome in first]
    assert {outcome.result.outcome for outcome in again if outcome.result} == {"exists"}


@both
def test_without_a_server_they_are_the_same(send: Send) -> None:
    with recorded() as jobs:
        first, again = send([keyed(1), keyed(2)]), send([keyed(2), keyed(1), keyed(1, a=2)])
        single = asyncio.run(add.using(idempotency_key="k1").aenqueue(1, 1))

    assert words(again) == ["exists", "exists", "conflict"]
    assert [outcome.id for outcome in again[:2]] == [first[1].id, first[0].id]
    assert (single.id, single.outcome) == (first[0].id, "exists")
    assert len(jobs) == 2


def test_a_job_that_runs_at_once_has_run_for_its_second_mention() -> None:
    with immediate():
        new, same = enqueue_many([keyed(1), keyed(1)])

    assert same.result is not None
    assert (same.id, same.word, same.result.return_value) == (new.id, "exists", 2)
