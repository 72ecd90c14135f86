"""Inside a transaction a job goes out after commit and never on rollback; outside it goes out at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import override_settings

from queueapp import enqueue_many
from queueapp.compat import task_enqueued
from queueapp.errors import (
    InvalidOption,
    NotSentYet,
    PayloadTooLarge,
    UnknownPool,
    UnknownTenant,
    UnserialisableArgument,
)
from queueapp.store.reads import Reads
from tests.producing import add
from tests.unit.transactions.rollback import rolled_back


@pytest.fixture
def announced() -> Iterator[list[str]]:
    seen: list[str] = []

    def receive(task_result: Any, **_: Any) -> None:
        seen.append(task_result.id)

    task_enqueued.connect(receive, weak=False)
    yield seen
    task_enqueued.disconnect(receive)


@pytest.mark.django_db(transaction=True)
class TestCommit:
    def test_without_a_transaction_it_goes_out_at_once(self, waiting: Callable[[], int]) -> None:
        result = add.enqueue(1)

        assert (result.state, result.outcome, waiting()) == ("pending", "enqueued", 1)

    def test_inside_it_goes_out_after_commit(self, waiting: Callable[[], int], announced: list[str]) -> None:
        with transaction.atomic():
            result = add.enqueue(1)
            assert (result.state, result.outcome, waiting(), announced) == ("deferred", "deferred", 0, [])
            assert not result.enqueued_at
        assert (result.state, result.outcome, waiting(), announced) == ("pending", "enqueued", 1, [result.id])
        assert result.enqueued_at is not None
        assert add.get_result(result.id).args == [1]

    def test_on_rollback_it_never_goes_out(self, waiting: Callable[[], int], announced: list[str]) -> None:
        with rolled_back():
            result = add.enqueue(1)

        assert (result.state, waiting(), announced) == ("deferred", 0, [])

    def test_a_savepoint_that_rolls_back_takes_its_jobs_along(self, waiting: Callable[[], int]) -> None:
        with transaction.atomic():
            kept = add.enqueue(1)
            with rolled_back():
                lost = add.enqueue(2)

        assert (kept.state, lost.state, waiting()) == ("pending", "deferred", 1)

    def test_nested_blocks_wait_for_the_outermost(self, waiting: Callable[[], int]) -> None:
        with transaction.atomic():
            with transaction.atomic():
                add.enqueue(1)
            assert waiting() == 0
        assert waiting() == 1

    def test_using_on_commit_false_goes_out_at_once(self, waiting: Callable[[], int]) -> None:
        with rolled_back():
            add.using(on_commit=False).enqueue(1)
            assert waiting() == 1
        assert waiting() == 1

    def test_the_setting_turns_it_off_and_the_option_on_again(self, waiting: Callable[[], int], settings: Any) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "ENQUEUE_ON_COMMIT": False}), transaction.atomic():
            add.enqueue(1)
            assert waiting() == 1
            add.using(on_commit=True).enqueue(2)
            assert waiting() == 1
        assert waiting() == 2

    def test_jobs_keep_their_order(self, reads: Reads) -> None:
        with transaction.atomic():
            ids = [add.enqueue(number).id for number in range(5)]

        records = [reads.job(job_id[-22:]) for job_id in ids]
        assert [record.payload for record in records if record] == [b'{"a":[%d]}' % number for number in range(5)]

    def test_bulk_inside_goes_out_after_commit_too(self, waiting: Callable[[], int]) -> None:
        with transaction.atomic():
            outcomes = enqueue_many([add.bind(1), add.using(on_commit=False).bind(2), add.bind(set()), add.bind(3)])
            assert waiting() == 1
        assert [outcome.word for outcome in outcomes] == ["deferred", "enqueued", "unserialisable", "deferred"]
        assert [outcome.result.state for outcome in outcomes if outcome.result] == ["pending"] * 3
        assert waiting() == 3

    def test_autocommit_off_has_no_hook_and_goes_out_at_once(self, waiting: Callable[[], int]) -> None:
        transaction.set_autocommit(False)
        try:
            add.enqueue(1)
            assert waiting() == 1
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

    def test_what_needs_no_store_is_refused_at_once(self, waiting: Callable[[], int], settings: Any) -> None:
        settings.DUCTOR = {**settings.DUCTOR, "UNKNOWN_TENANTS": "reject"}
        with transaction.atomic():
            with pytest.raises(UnserialisableArgument):
                add.enqueue({1})
            with pytest.raises(PayloadTooLarge):
                add.enqueue("x" * 300_000)
            with pytest.raises(UnknownPool):
                add.using(queue_name="nowhere").enqueue(1)
            with pytest.raises(UnknownTenant):
                add.using(tenant="stranger").enqueue(1)
            with pytest.raises(InvalidOption):
                add.using(database="nowhere").enqueue(1)
        assert waiting() == 0

    def test_no_hook_is_registered_where_no_block_is_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In asynchronous code `on_commit` would raise there, and elsewhere run at once, before the store answered."""
        hooks: list[object] = []
        monkeypatch.setattr(connection, "on_commit", lambda hook, robust=False: hooks.append(hook))
        add.enqueue(1)
        asyncio.run(add.aenqueue(1))

        assert hooks == []

    def test_aenqueue_outside_goes_out_at_once(self, waiting: Callable[[], int]) -> None:
        assert asyncio.run(add.aenqueue(1)).state == "pending"
        assert waiting() == 1


class TestHandle:
    pytestmark = pytest.mark.django_db(transaction=True)

    def test_refresh_does_nothing_and_waiting_raises_at_once(self) -> None:
        with transaction.atomic():
            result = add.enqueue(1)
            result.refresh()
            asyncio.run(result.arefresh())
            assert result.state == "deferred"
            with pytest.raises(NotSentYet, match="when the transaction commits"):
                result.wait(timeout=60)
            with pytest.raises(NotSentYet):
                asyncio.run(result.await_(timeout=60))
        result.refresh()
        assert result.state == "pending"
