"""`database=`: a send waits for the transaction on that alias alone, also in bulk and in a task's declaration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction

from queueapp import enqueue_many, task
from queueapp.producer.discovery import registry
from queueapp.store.reads import Reads
from tests.producing import add

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    yield
    registry[add.module_path] = add


def test_a_declared_database(second_database: str, reads: Reads) -> None:
    made = task(database=second_database)(add.func)
    with transaction.atomic():
        result = made.enqueue(1)
        assert (result.state, reads.overview().waiting) == ("pending", 1)
        with transaction.atomic(using=second_database):
            result = made.enqueue(2)
            assert result.state == "deferred"
        assert (result.state, reads.overview().waiting) == ("pending", 2)


def test_in_bulk_each_waits_for_its_own(second_database: str) -> None:
    jobs = [
        add.using(database=second_database).bind(1),
        add.using(database="default").bind(2),
        add.bind(3),
        add.using(database=second_database, on_commit=False).bind(4),
    ]
    with transaction.atomic():
        with transaction.atomic(using=second_database):
            outcomes = enqueue_many(jobs)
            states = [outcome.result and outcome.result.state for outcome in outcomes]
            assert states == ["deferred", "deferred", "deferred", "pending"]
        states = [outcome.result and outcome.result.state for outcome in outcomes]
        assert states == ["pending", "deferred", "deferred", "pending"]
    assert {outcome.result and outcome.result.state for outcome in outcomes} == {"pending"}
