"""A job that the store could not take after commit is kept as a row: which jobs, how, and what is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from django.db import Error as DatabaseError
from django.db import transaction
from django.test import TestCase

from queueapp import enqueue_many
from queueapp.errors import NotSentYet, StoreError, StoreMisconfigured, StoreUnavailable, Upgrading
from queueapp.models import OutboxEntry
from queueapp.producer import client, outbox, sending
from queueapp.producer.entries import job_of
from queueapp.producer.preparation import Prepared, prepare
from queueapp.store.ids import new_id
from queueapp.store.records import DebounceUse, KeyUse, NewJob, SingletonUse
from queueapp.store.store import Store
from tests.producing import add, chosen
from tests.unit.outbox.away import kept, store_away

pytestmark = pytest.mark.django_db(transaction=True)


class TestKeeping:
    def test_a_job_without_a_store_becomes_a_row(self, failures: list[dict[str, Any]]) -> None:
        result = kept(add.using(tenant="acme"), 1)

        entry = OutboxEntry.objects.get()
        assert (entry.job_id, entry.pool, entry.tenant, entry.task) == (result.id, "default", "acme", add.module_path)
        assert (entry.state, entry.tries, bytes(entry.payload)) == ("waiting", 0, b'{"a":[1]}')
        assert "cannot be reached" in entry.error
        assert [failure["kept"] for failure in failures] == [True]
        assert (result.state, outbox.waiting()) == ("deferred", 1)

    def test_every_field_of_a_job_survives(self) -> None:
        prepared = prepare(chosen, (), {})
        values: dict[str, Any] = {
            field.name: 7 if field.type in ("int", "float") else "seven" for field in fields(NewJob)
        }
        key = KeyUse(digest="d" * 22, text="customer:7", limit=2, pattern="p" * 22)
        values |= {"keys": (key, replace(key, digest="e" * 22)), "parks": True, "admitted": True, "unheard": True}
        values |= {"debounce": DebounceUse(digest="f" * 22, period_ms=7, most_ms=8)}
        values |= {"singleton": SingletonUse(digest="g" * 22, mode="next")}
        values |= {"id": new_id(), "tier": "continue", "payload": b"\x00\xff", "delay_ms": 0, "expires_after_ms": 0}
        job = NewJob(**values)
        assert all(getattr(job, field.name) != field.default for field in fields(job) if not field.name.endswith("_ms"))
        prepared = Prepared(task=prepared.task, job=job, args=(), kwargs={})

        assert set(outbox.keep([(prepared, StoreUnavailable())], ["default"])) == {job.id}

        assert job_of(OutboxEntry.objects.get()) == job

    @pytest.mark.parametrize(
        "error", [StoreUnavailable("gone"), StoreMisconfigured("wrong password"), Upgrading(), StoreError("what?")]
    )
    def test_whatever_the_store_says_of_itself_keeps_the_job(
        self, error: StoreError, refusing: Callable[[StoreError], None]
    ) -> None:
        refusing(error)
        with transaction.atomic():
            result = add.enqueue(1)

        assert result.outbox == "default"
        assert OutboxEntry.objects.get().error == str(error)

    def test_a_conflict_is_no_fault_of_the_store_and_is_not_kept(
        self, store: Store, failures: list[dict[str, Any]]
    ) -> None:
        keyed = add.using(idempotency_key="k")
        keyed.enqueue(1)
        with transaction.atomic():
            result = keyed.enqueue(2)

        assert (failures[0]["kept"], result.outbox, OutboxEntry.objects.count()) == (False, "", 0)

    def test_the_setting_log_keeps_nothing(self, failures: list[dict[str, Any]]) -> None:
        with store_away(ON_COMMIT_FAILURE="log"), transaction.atomic():
            result = add.enqueue(1)

        assert (failures[0]["kept"], result.outbox, OutboxEntry.objects.count()) == (False, "", 0)
        with pytest.raises(NotSentYet, match="was not accepted after commit"):
            result.wait()

    def test_a_bulk_call_is_kept_in_chunks_and_in_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(outbox, "CHUNK_ROWS", 3)
        with store_away(), transaction.atomic():
            outcomes = enqueue_many(add.bind(number) for number in range(7))

        ids = [outcome.id for outcome in outcomes]
        assert list(OutboxEntry.objects.order_by("pk").values_list("job_id", flat=True)) == ids

    def test_chunks_are_bounded_by_bytes_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(outbox, "CHUNK_BYTES", 25)
        prepared = [(prepare(add, (number,), {}), StoreUnavailable()) for number in range(5)]

        assert [len(chunk) for chunk in outbox._chunks(prepared)] == [2, 2, 1]

    def test_a_table_that_cannot_be_written_is_told_and_nothing_is_raised(
        self,
        failures: list[dict[str, Any]],
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def broken(alias: str) -> Any:
            raise DatabaseError("the disk is full")

        monkeypatch.setattr(outbox, "rows", broken)
        with store_away(), transaction.atomic():
            result = add.enqueue(1)

        [record] = [record for record in caplog.records if record.name == "queueapp.producer.outbox"]
        assert (record.levelno, record.jobs) == (logging.ERROR, [result.id])  # type: ignore[attr-defined]  # what `extra` gave it
        assert (failures[0]["kept"], result.outbox) == (False, "")

    def test_after_a_send_without_a_store_the_next_commits_do_not_ask_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int] = []
        send_each = sending.send_each

        def counted(jobs: Any) -> Any:
            asked.append(len(jobs))
            return send_each(jobs)

        monkeypatch.setattr(client, "send_each", counted)
        with store_away():
            for number in range(5):
                with transaction.atomic():
                    add.enqueue(number)

        assert [count for count in asked if count] == [1]
        assert OutboxEntry.objects.count() == 5

    def test_a_pool_that_is_being_upgraded_says_nothing_of_the_others(
        self, refusing: Callable[[StoreError], None]
    ) -> None:
        refusing(Upgrading())
        with transaction.atomic():
            add.enqueue(1)

        assert outbox.away() is None


class TestInsideTestCase(TestCase):
    """A TestCase's own transaction is around it: what cannot be written must not break that."""

    def test_a_row_is_kept_inside_it(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks, transaction.atomic():
            result = add.enqueue(1)
        with store_away():
            for callback in callbacks:
                callback()

        assert (result.outbox, OutboxEntry.objects.count()) == ("default", 1)

    def test_a_write_that_fails_leaves_its_transaction_usable(self) -> None:
        prepared = prepare(add, (1,), {})
        outbox.keep([(prepared, StoreUnavailable())], ["default"])

        assert outbox.keep([(prepared, StoreUnavailable())], ["default"]) == {}, "its id is there already"
        assert OutboxEntry.objects.count() == 1
