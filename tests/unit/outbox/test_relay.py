"""A pass of the relay takes rows to the store as the same jobs, once; the scheduler's duty does it again and again."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.db import Error as DatabaseError
from django.db import transaction
from django.utils import timezone

from queueapp import enqueue_many
from queueapp.errors import IdempotencyConflict, StoreError, StoreUnavailable
from queueapp.models import OutboxEntry
from queueapp.producer import client, outbox, relaying, sending
from queueapp.producer.entries import VERSION
from queueapp.producer.relaying import Relayed, relay
from queueapp.producer.results import DuctorResult
from queueapp.scheduler.duties.relay import Relay
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import add
from tests.unit.outbox.away import kept, store_away

pytestmark = pytest.mark.django_db(transaction=True)


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
        newer.job["version"] = VERSION + 1
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
