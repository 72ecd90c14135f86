"""What is offered to the slots of the process that enqueues, and what becomes of the store's answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from queueapp import Debounce, Key, Singleton, enqueue_many, task
from queueapp.errors import StoreUnavailable
from queueapp.producer import matching
from queueapp.producer.preparation import prepare
from queueapp.producer.task import DuctorTask, registry
from queueapp.store.async_store import AsyncStore
from queueapp.store.records import LeasedJob, Matched, NewJob
from queueapp.store.store import Store
from tests.producing import add
from tests.unit.metrics.reading import here

LEASE_MS = 30_000


class Body:
    """One that has begun, as far as the producer can tell."""

    worker, lease_ms = "w1", LEASE_MS

    def __init__(self) -> None:
        self.said: list[LeasedJob | None] = []

    def recorded(self, lease: LeasedJob) -> None:
        self.said.append(lease)

    def refused(self) -> None:
        self.said.append(None)


class Slots:
    """A channel that always has room."""

    def __init__(self) -> None:
        self.bodies: list[Body] = []

    def begin(self, task: DuctorTask, job: NewJob, local: Any) -> Body:
        self.bodies.append(Body())
        return self.bodies[-1]


@pytest.fixture
def slots(store: Store) -> Iterator[Slots]:
    """A worker of the pool `default` in this process, known to the store."""
    store.register("w1", {}, 60_000)
    channel = Slots()
    matching.open_channels({"default": channel})
    yield channel
    matching.close_channels({"default": channel})


def count(outcome: str, pool: str = "default") -> float:
    return here("ductor_syncmatch_total", pool=pool, outcome=outcome)


def test_the_store_records_it_before_the_caller_has_its_handle(slots: Slots, store: Store) -> None:
    before = count("hit")
    result = add.enqueue(1, 2)
    [body] = slots.bodies
    [lease] = body.said
    assert lease is not None
    assert result.id.endswith(lease.id)
    assert lease.attempts == 1
    assert count("hit") == before + 1


def test_asynchronous_code_too(slots: Slots, store: Store) -> None:
    async def main() -> Any:
        return await add.aenqueue(1, 2)

    result = asyncio.run(main())
    [lease] = slots.bodies[0].said
    assert lease is not None
    assert result.id.endswith(lease.id)


@task(singleton=Singleton("one"))
def single() -> None: ...


@task(debounce=Debounce("one", period=1))
def debounced() -> None: ...


@task(concurrency=[Key("one", limit=1)])
def keyed() -> None: ...


UNOFFERED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a delay": (add.using(delay=1), (1,)),
    "a moment": (add.using(run_after=timezone.now() + timedelta(hours=1)), (1,)),
    "an expiry": (add.using(expires_after=60), (1,)),
    "an idempotency key": (add.using(idempotency_key="k"), (1,)),
    "it would be parked": (add.using(on_throttle="park"), (1,)),
    "a singleton": (single, ()),
    "a debounce": (debounced, ()),
    "a concurrency key": (keyed, ()),
}


@pytest.mark.parametrize("why", UNOFFERED)
def test_only_plain_jobs_are_offered(slots: Slots, store: Store, why: str) -> None:
    offered, arguments = UNOFFERED[why]
    offered.enqueue(*arguments)
    assert slots.bodies == []


def test_nor_are_bulk_calls(slots: Slots, store: Store) -> None:
    assert enqueue_many([add.bind(1)])[0].ok
    assert slots.bodies == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("on_commit", [True, False])
def test_nor_is_anything_while_a_transaction_is_open_or_after_its_commit(
    slots: Slots, store: Store, on_commit: bool
) -> None:
    with transaction.atomic():
        add.using(on_commit=on_commit).enqueue(1)
    assert slots.bodies == []


def test_a_task_that_is_not_known_here_is_left_to_others(slots: Slots, store: Store) -> None:
    prepared, before = prepare(add, (1,), {}), count("miss_no_channel")
    known = registry.pop(add.module_path)
    try:
        assert matching.send(prepared) is None
    finally:
        registry[add.module_path] = known
    assert count("miss_no_channel") == before + 1


def test_so_are_pools_that_this_worker_does_not_serve(slots: Slots, store: Store) -> None:
    before = count("miss_no_channel", "bench")
    assert matching.send(prepare(add.using(queue_name="bench"), (1,), {})) is None
    assert count("miss_no_channel", "bench") == before + 1


def test_where_no_worker_runs_nothing_is_offered_or_counted(store: Store) -> None:
    before = count("miss_no_channel")
    add.enqueue(1)
    assert count("miss_no_channel") == before


def test_a_worker_that_ends_closes_only_its_own(slots: Slots) -> None:
    matching.close_channels({"default": Slots()})
    assert matching._channels == {"default": slots}


def test_a_job_that_only_goes_into_line_is_accepted_and_its_body_not(slots: Slots, store: Store) -> None:
    store.forget("w1")
    result = add.enqueue(1)
    assert result.outcome == "enqueued"
    assert slots.bodies[0].said == [None]


class Interrupted(BaseException):
    """As Ctrl-C."""


@pytest.mark.parametrize("error", [StoreUnavailable("away"), Interrupted()])
def test_whatever_goes_wrong_the_body_hears_that_it_counts_for_nothing(
    slots: Slots, store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fails(*_: object) -> Matched:
        raise error

    async def afails(*_: object) -> Matched:
        raise error

    monkeypatch.setattr(Store, "match", fails)
    monkeypatch.setattr(AsyncStore, "match", afails)
    with pytest.raises(type(error)):
        add.enqueue(1)
    with pytest.raises(type(error)):
        asyncio.run(add.aenqueue(1))
    assert [body.said for body in slots.bodies] == [[None], [None]]


def test_the_child_of_a_fork_has_no_slots(slots: Slots) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"open" if matching._channels else b"none")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 4) == b"none"
    os.close(read)
    os.close(write)
