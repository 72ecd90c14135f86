"""The pass: overlap, refusals, rows that SQL changed, and who hears of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from queueapp import metrics
from queueapp.errors import StoreUnavailable
from queueapp.models import OutboxEntry, Schedule
from queueapp.moments import now_ms
from queueapp.producer import relaying
from queueapp.producer.discovery import registry
from queueapp.schedules import firing, jobs
from queueapp.schedules.firing import Passed, fire_due, next_due_ms, overdue, repair
from queueapp.states import Outcome
from queueapp.store.ids import made_ms
from queueapp.store.reads import Reads
from queueapp.store.records import Completed
from queueapp.store.store import Store
from tests.producing import add, run_waiting
from tests.unit.schedules.conftest import DAY, HOUR, MINUTE, NOW, fire, fired, planned, relay_all, stored
from tests.unit.schedules.firing_words import Died, die

pytestmark = pytest.mark.django_db(transaction=True)


def state(reads: Reads, row: Schedule) -> str:
    record = reads.job(row.last_job[-22:])
    assert record is not None
    return (record.outcome or record.state).value


class TestOverlap:
    def test_allow_runs_beside_the_last_one(self, store: Store) -> None:
        planned()
        assert fire().fired == fire(NOW + HOUR).fired == 1
        assert fired(store) == [NOW, NOW + HOUR]

    def test_skip_while_it_waits_or_runs_and_not_when_it_is_over(self, store: Store, reads: Reads) -> None:
        row = planned(overlap="skip")
        assert fire().fired == 1
        row.refresh_from_db()
        first = row.last_job
        assert fire(NOW + HOUR) == Passed(skipped=1)
        row.refresh_from_db()
        assert (row.last_job, row.outcome, row.last_ms) == (first, "skipped", NOW)
        assert row.note == f"its last job waits: {first}"

        [job] = store.check_and_lease("w", 1, want=1, begin=1, lease_ms=60_000).jobs
        assert fire(NOW + 2 * HOUR) == Passed(skipped=1)
        row.refresh_from_db()
        assert row.note == f"its last job runs: {first}"

        store.partition_requeue([_returned(job)])
        run_waiting(store)
        assert fire(NOW + 3 * HOUR) == Passed(fired=1)
        assert state(reads, Schedule.objects.get()) == "pending"

    def test_a_job_that_the_outbox_keeps_waits(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned(overlap="skip")
        monkeypatch.setattr(relaying, "send_each", lambda given: [StoreUnavailable("away")] * len(given))
        fire()
        monkeypatch.undo()
        assert fire(NOW + HOUR) == Passed(skipped=1)

    def test_a_dead_letter_is_over(self, store: Store) -> None:
        planned(overlap="skip", task="tests.producing.fail", args=["no"])
        fire()
        run_waiting(store)
        assert fire(NOW + HOUR) == Passed(fired=1)

    def test_replace_takes_the_place_of_one_that_waits(self, store: Store, reads: Reads) -> None:
        row = planned(overlap="replace")
        fire()
        row.refresh_from_db()
        first = row.last_job
        assert fire(NOW + HOUR) == Passed(fired=1)
        record = reads.job(first[-22:])
        assert record is not None
        assert record.outcome is Outcome.CANCELLED
        assert fired(store) == [NOW + HOUR]

    def test_replace_tells_one_that_runs_to_stop_and_the_new_one_waits_for_its_end(
        self, store: Store, reads: Reads
    ) -> None:
        row = planned(overlap="replace")
        fire()
        [running] = store.check_and_lease("w", 1, want=1, begin=1, lease_ms=60_000).jobs
        assert fire(NOW + HOUR) == Passed(fired=1)
        told = reads.job(running.id)
        assert told is not None
        assert told.cancelling
        assert store.check_and_lease("w", 2, want=1, begin=1, lease_ms=60_000).jobs == []
        assert fire(NOW + 2 * HOUR) == Passed(fired=1)
        [word] = store.complete([Completed(id=running.id, attempts=1, run_ms=1)])
        assert word == "cancelled"
        row.refresh_from_db()
        [newest] = store.check_and_lease("w", 3, want=9, begin=1, lease_ms=60_000).jobs
        assert newest.id == row.last_job[-22:], "the one between has been replaced while it waited"

    def test_replace_skips_while_one_runs_that_it_could_not_wait_for(self, store: Store, reads: Reads) -> None:
        """It was made when the rule was another, and has no key by which a second one would wait."""
        row = planned(overlap="allow")
        fire()
        store.check_and_lease("w", 1, want=1, begin=1, lease_ms=60_000)
        Schedule.objects.update(overlap="replace")
        assert fire(NOW + HOUR) == Passed(skipped=1)
        row.refresh_from_db()
        assert (state(reads, row), row.outcome) == ("active", "skipped")
        assert "was told to stop and has not ended" in row.note

    def test_replace_needs_a_concurrency_key(self, store: Store) -> None:
        task = "tests.producing.many_keys"
        with pytest.raises(ValidationError, match="takes one of the 4 concurrency keys") as found:
            planned(overlap="replace", task=task, args=[])
        assert list(found.value.message_dict) == ["overlap"]
        row = planned(task=task, args=[])
        Schedule.objects.update(overlap="replace")  # what nobody validated is refused when it fires
        assert fire() == Passed(refused=1)
        row.refresh_from_db()
        assert "takes one of the 4 concurrency keys" in row.note

    def test_replace_takes_one_out_of_the_outbox(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned(overlap="replace")
        monkeypatch.setattr(relaying, "send_each", lambda given: [StoreUnavailable("away")] * len(given))
        fire()
        monkeypatch.undo()
        assert fire(NOW + HOUR) == Passed(fired=1)
        relay_all()
        assert fired(store) == [NOW + HOUR]

    def test_replace_leaves_one_that_another_scheduler_is_sending(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would come to the store a moment after its row was deleted, and run beside the new one."""
        row = planned(overlap="replace")
        with monkeypatch.context() as patched:
            patched.setattr(firing, "send_claimed", die)
            with pytest.raises(Died):
                fire()
        row.refresh_from_db()
        first = row.last_job
        assert fire(NOW + HOUR) == Passed(skipped=1)
        row.refresh_from_db()
        assert (row.last_job, OutboxEntry.objects.get().job_id) == (first, first)
        assert "is being sent" in row.note

        OutboxEntry.objects.update(due=timezone.now())  # the claim of one that died has run out
        assert fire(NOW + 2 * HOUR) == Passed(fired=1)
        relay_all()
        assert fired(store) == [NOW + 2 * HOUR]

    @pytest.mark.parametrize("overlap", ["skip", "replace"])
    def test_of_several_missed_ones_the_newest_runs(self, store: Store, overlap: str) -> None:
        planned(NOW - 3 * HOUR, overlap=overlap, catch_up="all")
        assert fire() == Passed(fired=1, missed=3)
        assert fired(store) == [NOW]


def _returned(job: Any) -> Any:
    from queueapp.store.records import Returned

    return Returned(id=job.id, attempts=job.attempts)


class TestRefused:
    def test_what_an_enqueue_would_refuse_is_told_and_the_series_goes_on(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        row = planned()
        Schedule.objects.update(tenant="_no")
        assert fire() == Passed(refused=1)
        row.refresh_from_db()
        assert (row.outcome, row.next_ms, row.last_ms) == ("refused", NOW + HOUR, None)
        assert "tenant is '_no'" in row.note
        assert "refused" in caplog.text

    def test_a_task_that_nobody_here_knows_is_left_to_others_for_a_while(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = planned()
        known = registry.pop("tests.producing.add")
        Schedule.objects.update(task="tests.nowhere.add")
        try:
            passed, unknown = fire_due(NOW + 14 * MINUTE)
            assert (passed, unknown) == (Passed(), {row.pk: row.name})
            assert next_due_ms(unknown) is None
            assert fire(NOW + 15 * MINUTE) == Passed(refused=1)
        finally:
            registry["tests.producing.add"] = known
        row.refresh_from_db()
        assert row.outcome == "refused"
        assert "tests.nowhere.add" in row.note

    def test_one_that_cannot_be_read_keeps_no_other_waiting(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        planned(name="good")
        bad = planned(name="bad")
        Schedule.objects.filter(pk=bad.pk).update(cron="no cron at all x", plan="")
        broken = Schedule.objects.get(pk=bad.pk)
        Schedule.objects.filter(pk=bad.pk).update(plan=broken.planned())

        assert fire().fired == 1
        bad.refresh_from_db()
        assert (bad.next_ms, bad.outcome) == (None, "refused")
        assert fire() == Passed()

    def test_arguments_that_fit_no_more_are_refused(self, store: Store) -> None:
        planned()
        Schedule.objects.update(kwargs={"b": "x" * 300_000})
        assert fire() == Passed(refused=1)

    def test_a_moment_that_is_none_any_more_is_passed_over(self, store: Store) -> None:
        """As after an update of the time zones."""
        row = planned(NOW - MINUTE)
        assert fire(NOW - 1) == Passed()
        row.refresh_from_db()
        assert (row.next_ms, row.outcome) == (NOW, "")


class TestChangedBySQL:
    def test_a_new_cron_counts_from_when_it_is_seen(self, store: Store) -> None:
        row = planned()
        Schedule.objects.update(cron="30 * * * *")
        assert fire(NOW + 10) == Passed(more=True)
        row.refresh_from_db()
        assert row.next_ms == NOW + 30 * MINUTE
        assert fire(NOW + 30 * MINUTE).fired == 1

    def test_repair_finds_what_is_not_due(self, store: Store) -> None:
        row = planned(NOW + DAY)
        Schedule.objects.update(cron="30 * * * *")
        assert repair(NOW) == 0
        row.refresh_from_db()
        assert row.next_ms == NOW + 30 * MINUTE

    def test_turned_off_and_on_nothing_was_missed(self, store: Store) -> None:
        row = planned()
        Schedule.objects.update(enabled=False)
        repair(NOW)
        row.refresh_from_db()
        assert (row.next_ms, row.plan) == (None, "off")
        Schedule.objects.update(enabled=True)
        repair(NOW + 5 * HOUR)
        assert fire(NOW + 5 * HOUR) == Passed()
        row.refresh_from_db()
        assert row.next_ms == NOW + 6 * HOUR

    def test_repair_takes_its_share_in_turn(self, store: Store) -> None:
        for number in range(5):
            planned(NOW + DAY, name=f"s{number}")
        Schedule.objects.update(cron="30 * * * *")
        after, looks = repair(NOW, 0, 2), 1
        while after:
            after, looks = repair(NOW, after, 2), looks + 1
        assert looks == 3
        assert not Schedule.objects.exclude(next_ms=NOW + 30 * MINUTE).exists()

    def test_rows_that_bulk_create_made_are_planned(self, store: Store) -> None:
        Schedule.objects.bulk_create([Schedule(name="b", task="tests.producing.add", args=[1], cron="0 * * * *")])
        repair(NOW)
        assert next_due_ms() is not None


class TestC101:
    """Whatever is changed, there is one next run, by what the schedule says now."""

    def changed(self, **values: Any) -> Schedule:
        row = Schedule.objects.get()
        for name, value in values.items():
            setattr(row, name, value)
        row.full_clean()
        row.save()
        return Schedule.objects.get()

    def test_c101_a_changed_cron_or_zone_is_planned_anew(self, store: Store) -> None:
        row = planned()
        before = row.next_ms
        row = self.changed(cron="0 0 1 1 *", zone="Asia/Kolkata")
        assert row.next_ms is not None
        local = datetime.fromtimestamp(row.next_ms / 1000, UTC)
        assert (local.hour, local.minute) == (18, 30)
        assert row.next_ms != before
        assert fire() == Passed()

    def test_c101_other_arguments_leave_the_moment(self, store: Store) -> None:
        planned()
        assert self.changed(args=[5], tenant="x").next_ms == NOW

    def test_c101_off_and_on(self, store: Store) -> None:
        planned()
        assert self.changed(enabled=False).next_ms is None
        following = self.changed(enabled=True).next_ms
        assert following is not None
        assert now_ms() < following <= now_ms() + HOUR

    def test_c101_a_job_that_is_deleted_by_hand_does_not_end_the_series(self, store: Store) -> None:
        row = planned()
        fire()
        store.cancel([jobs.job_id(row, NOW)])
        assert fire(NOW + HOUR) == Passed(fired=1)

    def test_a_save_writes_nothing_of_where_it_stands(self, store: Store) -> None:
        stale = planned()
        fire()
        stale.args = [3]
        stale.save()
        row = Schedule.objects.get()
        assert (row.next_ms, row.last_ms, row.outcome, row.args) == (NOW + HOUR, NOW, "fired", [3])

    def test_a_change_of_when_never_goes_back_behind_what_was_fired(self, store: Store) -> None:
        """The clock of the site is behind that of the scheduler."""
        ahead = now_ms() // HOUR * HOUR + HOUR
        planned(ahead)
        fire(ahead)
        assert self.changed(end=stored(datetime(2999, 1, 1, tzinfo=UTC))).next_ms == ahead + HOUR


def test_overdue_ones_are_counted(store: Store) -> None:
    planned()
    assert (overdue(NOW + 60_000), overdue(NOW + 60_001)) == (0, 1)


def test_metrics_count_what_became_of_firings(store: Store) -> None:
    def counts() -> list[float]:
        return [metrics.SCHEDULE_FIRINGS.labels(name)._value.get() for name in metrics.FIRING_OUTCOMES]

    before = counts()
    planned(NOW - 3 * HOUR, catch_up="one")
    fire(NOW + 10 * MINUTE)
    fire(NOW + HOUR)
    assert [after - then for after, then in zip(counts(), before, strict=True)] == [1, 1, 0, 3, 0]
    assert metrics.SCHEDULE_LAST_FIRING._value.get() == (NOW + HOUR) / 1000


def test_who_hears_of_a_job_hears_of_this_one(store: Store, announced: list[Any]) -> None:
    planned()
    fire()
    [result] = announced
    assert (result.id, result.args) == (Schedule.objects.get().last_job, [1])
    assert made_ms(result.id[-22:]) == NOW
    assert result.task.func is add.func


@pytest.fixture
def announced() -> Any:
    from queueapp.compat import task_enqueued

    seen: list[Any] = []

    def receive(task_result: Any, **_: Any) -> None:
        seen.append(task_result)

    task_enqueued.connect(receive, weak=False)
    yield seen
    task_enqueued.disconnect(receive)
