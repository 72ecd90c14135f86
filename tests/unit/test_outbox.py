"""A job that the store could not take after commit is kept as a row, and reaches the store as the same job, once."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.test import TestCase
from django.test.utils import override_settings
from django.utils import timezone

from queueapp import enqueue_many, sync
from queueapp.compat import TaskResultDoesNotExist, task_enqueued
from queueapp.errors import (
    IdempotencyConflict,
    NotSentYet,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    Upgrading,
)
from queueapp.models import OutboxEntry, Pool
from queueapp.moments import now_ms
from queueapp.producer import client, outbox, relaying, sending
from queueapp.producer.outbox import job_of
from queueapp.producer.preparation import Prepared, prepare
from queueapp.producer.relaying import Relayed, relay
from queueapp.producer.results import DuctorResult
from queueapp.scheduler.duties.relay import Relay
from queueapp.states import Outcome, State
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.reads import Reads
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from tests.producing import add, chosen, run_waiting

pytestmark = pytest.mark.django_db(transaction=True)

NOWHERE = "redis://localhost:1/0"


@contextmanager
def store_away(**more: Any) -> Iterator[None]:
    from django.conf import settings

    with override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": NOWHERE, **more}):
        yield


def kept(task: Any = add, *args: Any) -> DuctorResult:
    """The handle of a job that found no store after its commit."""
    with store_away(), transaction.atomic():
        result: DuctorResult = task.enqueue(*(args or (1,) if task.module_path == add.module_path else args))
    assert result.outbox == "default"
    return result


@pytest.fixture
def announced() -> Iterator[list[DuctorResult]]:
    seen: list[DuctorResult] = []

    def receive(task_result: Any, **_: Any) -> None:
        seen.append(task_result)

    task_enqueued.connect(receive, weak=False)
    yield seen
    task_enqueued.disconnect(receive)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[StoreError], None]:
    """Make every send be answered with this error."""

    def refuse(error: StoreError) -> None:
        for module in (client, relaying):
            monkeypatch.setattr(module, "send_each", lambda jobs: [error] * len(jobs))

    return refuse


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
        assert (record.levelno, record.jobs) == (logging.ERROR, [result.id])  # type: ignore[attr-defined]
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


class TestDatabases:
    def test_the_row_stands_in_the_database_of_the_transaction(self, second_database: str) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        with store_away(), transaction.atomic(using=second_database):
            result = add.enqueue(1)

        assert result.outbox == second_database
        assert OutboxEntry.objects.using(second_database).get().job_id == result.id
        assert (OutboxEntry.objects.count(), outbox.waiting()) == (0, 1)

    def test_a_pool_that_was_renamed_meanwhile_gets_its_jobs(self, second_database: str) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        Pool.objects.create(name="mail")
        shards.store("mail")
        with store_away(), transaction.atomic(using=second_database):
            add.using(queue_name="mail").enqueue(1)
        sync.rename(Pool.objects.get(), "letters")
        shards.forget()  # as a scheduler that starts now

        assert relay().sent == 1
        assert shards.reads("letters").overview().waiting == 1

    def test_else_in_that_of_the_settings(self, second_database: str) -> None:
        with store_away(), transaction.atomic(using=second_database):
            result = add.enqueue(1)

        assert (result.outbox, OutboxEntry.objects.count()) == ("default", 1)

    def test_one_that_cannot_be_asked_for_its_table_costs_no_job(
        self, second_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(alias: str) -> bool:
            raise DatabaseError("no answer")

        monkeypatch.setattr(outbox, "_has_table", broken)
        with store_away(), transaction.atomic(using=second_database):
            result = add.enqueue(1)

        assert result.outbox == "default"

    def test_that_of_the_settings_comes_first_when_both_committed(self, second_database: str) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        with store_away(), transaction.atomic(using=second_database), transaction.atomic():
            result = add.enqueue(1)

        assert result.outbox == "default"

    def test_a_database_that_the_router_closes_to_us_is_not_used(
        self, second_database: str, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        settings.DATABASE_ROUTERS = [f"{__name__}.DefaultOnly"]
        with store_away(), transaction.atomic(using=second_database):
            result = add.enqueue(1)

        assert (result.outbox, outbox.served()) == ("default", ("default",))

    def test_every_database_with_the_table_is_relayed(self, second_database: str, reads: Reads) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        with store_away(), transaction.atomic(using=second_database):
            add.enqueue(1)
        kept()

        assert relay().sent == 2
        assert reads.overview().waiting == 2

    def test_a_database_that_fails_costs_the_others_nothing(
        self, second_database: str, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept()
        monkeypatch.setattr(outbox._memory, "served", (second_database, "default"))
        monkeypatch.setattr(outbox._memory, "served_until", float("inf"))

        with pytest.raises(DatabaseError):  # it has no table
            relay()
        assert reads.overview().waiting == 1

    def test_a_database_that_cannot_be_asked_is_left_out(self, second_database: str, tmp_path: Any) -> None:
        connections.settings[second_database]["NAME"] = str(tmp_path / "no" / "such" / "directory")

        assert outbox.served() == ("default",)


class DefaultOnly:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == "default"


class TestRelay:
    def test_the_store_gets_the_same_job_and_the_row_goes(
        self, reads: Reads, announced: list[DuctorResult], store: Store
    ) -> None:
        result = kept(add.using(tenant="acme", lane="mail", priority=5, max_attempts=3, cost=7), 1)

        assert relay() == Relayed(sent=1)

        record = reads.job(result.id[-22:])
        assert record is not None
        assert (record.tenant, record.lane, record.priority, record.max_attempts) == ("acme", "mail", 5, 3)
        assert record.payload == b'{"a":[1]}'
        assert OutboxEntry.objects.count() == 0
        assert [(each.id, each.outcome, each.state, each.args) for each in announced] == [
            (result.id, "enqueued", "pending", [1])
        ]
        assert announced[0].task.func is add.func

    def test_nothing_to_do(self) -> None:
        assert relay() == Relayed()

    def test_rows_go_out_in_the_order_in_which_they_were_kept(self, reads: Reads, store: Store) -> None:
        with store_away():
            for number in range(5):
                with transaction.atomic():
                    add.enqueue(number)
        relay()

        leased = store.check_and_lease("w", 1, want=5, begin=5, lease_ms=30_000).jobs
        assert [json.loads(job.payload)["a"] for job in leased] == [[number] for number in range(5)]

    def test_a_job_that_arrived_although_its_answer_was_lost_stays_one_job(
        self, reads: Reads, refusing: Callable[[StoreError], None], monkeypatch: pytest.MonkeyPatch, store: Store
    ) -> None:
        send_each = sending.send_each

        def lose_the_answer(jobs: Any) -> Any:
            send_each(jobs)
            return [StoreUnavailable("no answer")] * len(jobs)

        monkeypatch.setattr(client, "send_each", lose_the_answer)
        with transaction.atomic():
            result = add.enqueue(1)
        assert result.outbox

        assert relay().sent == 1
        assert (reads.overview().waiting, OutboxEntry.objects.count()) == (1, 0)

    def test_a_store_that_is_away_puts_off_for_longer_each_time(self) -> None:
        kept()
        pauses = []
        with store_away():
            for _ in range(7):
                OutboxEntry.objects.update(due=timezone.now())
                assert relay() == Relayed(put_off=1)
                entry = OutboxEntry.objects.get()
                pauses.append(round((entry.due - timezone.now()).total_seconds()))

        assert pauses == [1, 2, 4, 8, 16, 30, 30]
        assert (entry.tries, entry.state, entry.claim) == (7, "waiting", "")
        assert "cannot be reached" in entry.error

    def test_what_is_put_off_is_not_sent_before_it_is_due(self, reads: Reads) -> None:
        kept()
        with store_away():
            relay()
        assert relay() == Relayed()
        OutboxEntry.objects.update(due=timezone.now())
        assert relay() == Relayed(sent=1)

    def test_one_pool_without_a_store_tells_for_all(self, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
        asked: list[str] = []
        send_each = sending.send_each

        def counted(jobs: Any) -> Any:
            asked.append(jobs[0][0])
            return send_each(jobs)

        with store_away(POOLS={"emails": {}}):
            with transaction.atomic():
                enqueue_many([add.bind(1), add.using(queue_name="emails").bind(2)])
            monkeypatch.setattr(relaying, "send_each", counted)
            assert relay().put_off == 2
        assert asked == ["default"]

    def test_a_refusal_for_good_stays_as_a_row_for_people(
        self, failures: list[dict[str, Any]], caplog: pytest.LogCaptureFixture, store: Store
    ) -> None:
        keyed = add.using(idempotency_key="k")
        result = kept(keyed, 1)
        first = keyed.enqueue(2)

        assert relay() == Relayed(refused=1)

        entry = OutboxEntry.objects.get()
        assert (entry.state, outbox.waiting(), outbox.refused()) == ("refused", 0, 1)
        assert first.id in entry.error
        assert [(failure["kept"], failure["task_result"].id) for failure in failures] == [
            (True, result.id),
            (False, result.id),
        ]
        assert isinstance(failures[1]["error"], IdempotencyConflict)
        assert failures[1]["payload"] == b'{"a":[1]}'
        [record] = [record for record in caplog.records if record.name == relaying.__name__ and record.levelno > 20]
        assert record.levelno == logging.ERROR
        assert relay() == Relayed()

    def test_a_key_that_stands_for_another_job_with_the_same_arguments_is_what_was_wanted(
        self, reads: Reads, announced: list[DuctorResult], store: Store
    ) -> None:
        keyed = add.using(idempotency_key="k")
        kept(keyed, 1)
        keyed.enqueue(1)

        assert relay() == Relayed(sent=1)
        assert (reads.overview().waiting, OutboxEntry.objects.count(), len(announced)) == (1, 0, 1)

    def test_at_most_so_many_rows_a_pass(self) -> None:
        with store_away(), transaction.atomic():
            enqueue_many(add.bind(number) for number in range(5))

        assert [relay(2) for _ in range(3)] == [
            Relayed(sent=2, more=True),
            Relayed(sent=2, more=True),
            Relayed(sent=1),
        ]

    def test_a_row_that_cannot_be_read_or_sent_costs_the_others_nothing(
        self, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with store_away(), transaction.atomic():
            ids = [str(outcome.id) for outcome in enqueue_many(add.bind(number) for number in range(3))]
        newer = OutboxEntry.objects.get(job_id=ids[0])
        newer.job["version"] = 2
        newer.save()
        send_each = sending.send_each

        def poisoned(jobs: Any) -> Any:
            if any(job.id == ids[1][-22:] for _, job in jobs):
                raise TypeError("a value that cannot be sent")
            return send_each(jobs)

        monkeypatch.setattr(relaying, "send_each", poisoned)
        assert relay() == Relayed(sent=1, put_off=2)
        assert reads.job(ids[2][-22:])
        errors = dict(OutboxEntry.objects.values_list("job_id", "error"))
        assert "this release" in errors[ids[0]]
        assert "cannot be sent" in errors[ids[1]]

    def test_a_receiver_or_an_alias_that_fails_keeps_no_row(
        self, reads: Reads, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept()
        entry = OutboxEntry.objects.get()
        entry.job["backend"] = "gone"
        entry.save()

        assert relay().sent == 1
        assert (OutboxEntry.objects.count(), reads.overview().waiting) == (0, 1)
        assert "not announced" in caplog.text


class TestTimes:
    """What is relative to a moment, after a delay."""

    def kept_ago(self, seconds: float, **options: Any) -> DuctorResult:
        result = kept(add.using(**options), 1)
        entry = OutboxEntry.objects.get()
        entry.job["kept_ms"] -= round(seconds * 1000)
        entry.save()
        return result

    def test_an_expiry_counts_from_the_commit(self) -> None:
        self.kept_ago(40, expires_after=100)

        assert 59_000 <= job_of(OutboxEntry.objects.get()).expires_after_ms <= 60_000

    def test_one_that_has_passed_ends_the_job_as_expired_and_unrun(
        self, store: Store, reads: Reads, announced: list[DuctorResult]
    ) -> None:
        result = self.kept_ago(200, expires_after=100)
        assert relay().sent == 1

        assert run_waiting(store) == 0
        while not store.promote_due().expired:  # a millisecond
            pass
        record = reads.job(result.id[-22:])
        assert record is not None
        assert (record.state, record.outcome) == (State.ENDED, Outcome.EXPIRED)

    def test_a_moment_to_come_stays_and_one_that_passed_runs_at_once(self, reads: Reads) -> None:
        later = timezone.now() + timedelta(hours=1)
        result = kept(add.using(run_after=later), 1)
        relay()
        record = reads.job(result.id[-22:])
        assert record is not None
        assert (record.state, record.due_ms) == (State.SCHEDULED, round(later.timestamp() * 1000))

    def test_a_delay_becomes_a_moment(self) -> None:
        prepared = prepare(add, (1,), {})
        job = NewJob(id=new_id(), task="t", tenant="t", payload=b"{}", fingerprint="", delay_ms=60_000)
        before = now_ms()
        outbox.keep([(Prepared(task=prepared.task, job=job, args=(), kwargs={}), StoreUnavailable())], ["default"])

        read = job_of(OutboxEntry.objects.get())
        assert read.delay_ms == 0
        assert before + 60_000 <= read.due_ms <= now_ms() + 60_000

    def test_an_idempotency_key_stands_for_its_whole_time(self) -> None:
        self.kept_ago(3600, idempotency_key="k")

        assert job_of(OutboxEntry.objects.get()).idempotency_ttl_ms == 86_400_000


class TestClaims:
    def test_a_row_that_another_pass_has_claimed_is_left_to_it(self) -> None:
        kept()

        [entry] = relaying._claim("default", "one", 200)
        assert entry.tries == 1
        assert relaying._claim("default", "two", 200) == []

    def test_of_two_that_read_the_same_rows_the_update_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The second claims between the first's look and its UPDATE."""
        kept()
        stolen: list[Any] = []
        atomic = transaction.atomic

        def first_looks_then_the_second_claims(**kwargs: Any) -> Any:
            monkeypatch.setattr(transaction, "atomic", atomic)
            stolen.extend(relaying._claim("default", "second", 200))
            return atomic(**kwargs)

        monkeypatch.setattr(transaction, "atomic", first_looks_then_the_second_claims)
        assert relaying._claim("default", "first", 200) == []
        assert len(stolen) == 1

    def test_the_claim_of_a_relay_that_died_runs_out(self, reads: Reads) -> None:
        kept()
        relaying._claim("default", "dead", 200)
        assert relay() == Relayed()

        OutboxEntry.objects.update(due=timezone.now())  # what CLAIM_S later is
        assert relay().sent == 1

    def test_a_late_pass_does_not_put_off_what_another_has_claimed_since(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kept()

        def slow(entries: Any) -> Any:
            OutboxEntry.objects.update(claim="another", due=timezone.now() + timedelta(seconds=50))
            return {entry.pk: StoreUnavailable("late") for entry in entries}

        monkeypatch.setattr(relaying, "_send", slow)
        relay()

        entry = OutboxEntry.objects.get()
        assert (entry.claim, entry.error == "late") == ("another", False)

    def test_several_at_once_send_each_job_once(self, store: Store, announced: list[DuctorResult]) -> None:
        with store_away(), transaction.atomic():
            ids = {outcome.id for outcome in enqueue_many(add.bind(number) for number in range(60))}
        together = threading.Barrier(3)
        sent: list[int] = []

        def run() -> None:
            try:
                together.wait(10)
                while (relayed := relay(10)).found:
                    sent.append(relayed.sent)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert sum(sent) == 60
        assert sorted(each.id for each in announced) == sorted(str(job_id) for job_id in ids)
        assert OutboxEntry.objects.count() == 0


class TestHandle:
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_waiting_says_where_the_job_is_and_why(self, asynchronous: bool, redis_url: str) -> None:
        result = kept()

        with pytest.raises(NotSentYet, match=r"outbox of the database 'default'.*cannot be reached"):
            asyncio.run(result.await_(60)) if asynchronous else result.wait(60)

    def test_refresh_finds_it_once_it_was_sent(self, store: Store) -> None:
        result = kept()
        result.refresh()
        assert (result.state, result.outbox) == ("deferred", "default")

        relay()
        result.refresh()
        assert (result.state, result.outbox, result.send_error) == ("pending", "", None)

    def test_arefresh_does_too(self, store: Store) -> None:
        result = kept()
        asyncio.run(result.arefresh())
        assert result.state == "deferred"

        relay()
        asyncio.run(result.arefresh())
        assert (result.state, result.outbox) == ("pending", "")

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_waiting_works_once_it_was_sent(self, store: Store, asynchronous: bool) -> None:
        result = kept(add, 20)
        relay()
        run_waiting(store)

        done = asyncio.run(result.await_(10)) if asynchronous else result.wait(10)
        assert done.return_value == 20

    def test_a_refusal_reaches_it(self, store: Store) -> None:
        keyed = add.using(idempotency_key="k")
        result = kept(keyed, 1)
        keyed.enqueue(2)
        relay()

        result.refresh()
        assert (result.outbox, isinstance(result.send_error, IdempotencyConflict)) == ("", True)
        with pytest.raises(NotSentYet, match="already stands for job"):
            result.wait()

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_neither_here_nor_there(self, asynchronous: bool, redis_url: str) -> None:
        result = kept()
        OutboxEntry.objects.all().delete()

        with pytest.raises(TaskResultDoesNotExist, match="neither in the outbox nor in the store"):
            asyncio.run(result.arefresh()) if asynchronous else result.refresh()

    def test_what_is_carried_over_between_two_looks_is_found(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result = kept()
        rows = outbox.rows

        def relayed_meanwhile(alias: str) -> Any:
            monkeypatch.setattr(outbox, "rows", rows)
            relay()
            return rows(alias)

        monkeypatch.setattr(outbox, "rows", relayed_meanwhile)
        result.refresh()
        assert result.state == "pending"


class TestDuty:
    def test_it_comes_each_second_while_there_is_something_and_ever_less_often_after(self, redis_url: str) -> None:
        duty = Relay()
        assert [duty.run() for _ in range(4)] == [2.0, 4.0, 5.0, 5.0]
        kept()
        assert [duty.run() for _ in range(2)] == [1.0, 2.0]

    def test_it_comes_again_at_once_while_a_pass_was_full(
        self, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("queueapp.scheduler.duties.relay.relay", lambda: Relayed(sent=200, more=True))
        assert Relay().run() == 0.0

    def test_old_connections_are_closed_around_it(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        order: list[str] = []
        place = "queueapp.scheduler.duties.relay"
        monkeypatch.setattr(f"{place}.close_old_connections", lambda: order.append("close"))

        def broken() -> Relayed:
            order.append("relay")
            raise DatabaseError

        monkeypatch.setattr(f"{place}.relay", broken)
        with pytest.raises(DatabaseError):
            Relay().run()
        assert order == ["close", "relay", "close"]

    def test_every_scheduler_does_it(self) -> None:
        from queueapp.cli.scheduler import make_scheduler

        scheduler = make_scheduler("me", "installation")
        assert "database Relay" in [appointment.name for appointment in scheduler._appointments]


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
