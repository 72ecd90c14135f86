"""What is relative to a moment keeps its meaning while a job waits in the outbox."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from queueapp.models import OutboxEntry
from queueapp.moments import now_ms
from queueapp.producer.entries import job_of
from queueapp.producer.relaying import relay
from queueapp.producer.results import DuctorResult
from queueapp.states import Outcome, State
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import add, run_waiting
from tests.unit.outbox.away import kept

pytestmark = pytest.mark.django_db(transaction=True)


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

    def test_a_delay_counts_from_the_call(self) -> None:
        self.kept_ago(40, delay=100)

        assert 59_000 <= job_of(OutboxEntry.objects.get()).delay_ms <= 60_000

    def test_a_delay_that_has_passed_is_none(self, reads: Reads) -> None:
        result = self.kept_ago(200, delay=100)
        assert relay().sent == 1

        record = reads.job(result.id[-22:])
        assert record is not None
        assert record.state is State.PENDING

    def test_c107_a_clock_that_was_ahead_makes_no_delay_longer(self) -> None:
        """The scheduler's clock against that of the process that kept the job."""
        self.kept_ago(-120, delay=3)

        assert 2_000 <= job_of(OutboxEntry.objects.get()).delay_ms <= 3_000

    def test_a_deadline_is_a_moment_since_the_call_and_stays(self, reads: Reads) -> None:
        before = now_ms()
        result = self.kept_ago(3600, deadline=90)
        kept_ms = job_of(OutboxEntry.objects.get()).deadline_ms

        assert before + 90_000 <= kept_ms <= now_ms() + 90_000
        relay()
        record = reads.job(result.id[-22:])
        assert record is not None
        assert record.deadline_ms == kept_ms

    def test_an_idempotency_key_stands_for_its_whole_time(self) -> None:
        self.kept_ago(3600, idempotency_key="k")

        assert job_of(OutboxEntry.objects.get()).idempotency_ttl_ms == 86_400_000
