"""Relays that run at the same time share the rows out among them: each job is sent by one."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils import timezone

from queueapp import enqueue_many
from queueapp.errors import StoreUnavailable
from queueapp.models import OutboxEntry
from queueapp.producer import relaying
from queueapp.producer.relaying import Relayed, relay
from queueapp.producer.results import DuctorResult
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import add
from tests.unit.outbox.away import kept, store_away

pytestmark = pytest.mark.django_db(transaction=True)


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
