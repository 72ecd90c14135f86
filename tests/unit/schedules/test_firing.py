"""The pass: a schedule that is due becomes one job, whoever makes it and whoever dies; overlap, catch-up, refusals."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connections

from queueapp import metrics
from queueapp.codec import decode_arguments
from queueapp.errors import StoreUnavailable
from queueapp.firings import jitter_ms
from queueapp.models import OutboxEntry, Schedule
from queueapp.moments import now_ms
from queueapp.producer import outbox, relaying
from queueapp.producer.discovery import registry
from queueapp.schedules import firing, jobs
from queueapp.schedules.firing import Passed, fire_due, next_due_ms, overdue, repair
from queueapp.states import Outcome, State
from queueapp.store import shards
from queueapp.store.ids import made_ms
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import add, run_waiting
from tests.unit.outbox.away import store_away
from tests.unit.schedules.conftest import DAY, HOUR, MINUTE, NOW, fire, fired, planned, relay_all, stored

pytestmark = pytest.mark.django_db(transaction=True)


def state(reads: Reads, row: Schedule) -> str:
    record = reads.job(row.last_job[-22:])
    assert record is not None
    return (record.outcome or record.state).value


class TestAFiring:
    def test_is_a_job_with_all_that_the_schedule_says(self, store: Store, reads: Reads) -> None:
        row = planned(
            kwargs={"b": 2},
            tenant="acme",
            lane="mail",
            priority=7,
            options={"max_attempts": 3, "cost": 5, "metadata": {"who": "me"}, "backoff": {"delay": 9}},
        )

        assert fire() == Passed(fired=1)

        row.refresh_from_db()
        record = reads.job(jobs.job_id(row, NOW))
        assert record is not None
        assert (record.tenant, record.lane, record.priority, record.max_attempts) == ("acme", "mail", 7, 3)
        args, kwargs, options = decode_arguments(record.payload or b"")
        assert (args, kwargs, options["backoff"]) == ([1], {"b": 2}, {"delay": 9.0})
        assert options["metadata"] == {"who": "me", "schedule": "hourly", "scheduled_for": "2025-06-01T12:00:00+00:00"}
        assert (row.next_ms, row.last_ms, row.fired_ms, row.outcome) == (NOW + HOUR, NOW, NOW, "fired")
        assert row.last_job == shards.keys("default").public_id(record.id)
        assert OutboxEntry.objects.count() == 0

    def test_goes_to_the_pool_of_the_schedule(self, store: Store, settings: Any) -> None:
        settings.DUCTOR = {**settings.DUCTOR, "POOLS": {"mail": {}}}
        planned(pool="mail")
        fire()
        assert shards.reads("mail").overview().waiting == 1
        shards.store("mail").cancel([jobs.job_id(Schedule.objects.get(), NOW)])

    def test_is_not_made_before_its_time_nor_while_the_schedule_is_off(self, reads: Reads, store: Store) -> None:
        row = planned()
        assert fire(NOW - 1) == Passed()
        row.enabled = False
        row.save()
        assert fire() == Passed()
        assert reads.overview().waiting == 0

    def test_c098_runs_by_the_servers_clock_also_when_the_scheduler_s_is_ahead(
        self, store: Store, reads: Reads
    ) -> None:
        """The pass believes that it is three seconds later than it is."""
        moment_ms = now_ms() + 3_000
        row = planned(moment_ms, every_seconds=60, start=stored(datetime.fromtimestamp(moment_ms / 1000, UTC)))

        assert fire(moment_ms) == Passed(fired=1)

        record = reads.job(jobs.job_id(row, moment_ms))
        assert record is not None
        assert (record.state, record.due_ms) == (State.SCHEDULED, moment_ms)

    def test_jitter_delays_the_job_by_what_its_moment_says(self, store: Store, reads: Reads) -> None:
        moment_ms = now_ms() // HOUR * HOUR
        row = planned(moment_ms, jitter_seconds=3_600)
        delay = jobs.prepared(row, moment_ms, moment_ms).job.due_ms - moment_ms
        fire(moment_ms)
        record = reads.job(jobs.job_id(row, moment_ms))
        assert record is not None
        assert (record.due_ms or moment_ms + delay) - moment_ms == delay == jitter_ms("hourly", moment_ms, HOUR)

    def test_belongs_to_the_default_tenant_without_a_warning(
        self, store: Store, reads: Reads, settings: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings.DUCTOR = {**settings.DUCTOR, "TENANT_RESOLVERS": ["tests.nowhere"], "TENANT_DEFAULT": "us"}
        row = planned()
        fire()
        record = reads.job(jobs.job_id(row, NOW))
        assert record is not None
        assert record.tenant == "us"
        assert "without a tenant" not in caplog.text


class TestOnce:
    def test_of_two_who_read_the_same_row_the_update_lets_one(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned()
        stale = firing._due(NOW, (), 100)
        assert fire() == Passed(fired=1)

        monkeypatch.setattr(firing, "_due", lambda *given: stale)
        assert fire() == Passed()

        assert fired(store) == [NOW]

    def test_of_two_at_the_same_time_one_makes_it(self, store: Store) -> None:
        for number in range(20):
            planned(name=f"s{number}", args=[number])
        together = threading.Barrier(3)
        passed: list[int] = []

        def run() -> None:
            try:
                together.wait(10)
                for _ in range(5):
                    passed.append(fire().fired)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert sum(passed) == 20
        relay_all()
        assert fired(store) == [NOW] * 20

    def test_who_dies_in_the_transaction_has_done_nothing(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned()
        with monkeypatch.context() as patched:
            patched.setattr(outbox, "entry_of", _die)
            with pytest.raises(Died):
                fire()
        assert Schedule.objects.get().next_ms == NOW

        assert fire() == Passed(fired=1)
        assert fired(store) == [NOW]

    def test_who_dies_after_it_leaves_the_job_to_the_relay(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned()
        with monkeypatch.context() as patched:
            patched.setattr(firing, "send_claimed", _die)
            with pytest.raises(Died):
                fire()
        assert fire() == Passed(), "it is made"

        relay_all()
        assert fired(store) == [NOW]

    def test_who_dies_after_sending_has_sent_it_once(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned()
        with monkeypatch.context() as patched:
            patched.setattr(relaying, "_taken", _die)
            with pytest.raises(Died):
                fire()
        relay_all()
        assert fired(store) == [NOW]

    def test_also_when_its_job_has_run_and_is_forgotten_meanwhile(
        self, store: Store, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = planned()
        with monkeypatch.context() as patched:
            patched.setattr(relaying, "_taken", _die)
            with pytest.raises(Died):
                fire()
        run_waiting(store)
        store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=0, dead_max=0, replay_window_ms=0)
        assert reads.job(jobs.job_id(row, NOW)) is None

        relay_all()
        assert (fired(store), OutboxEntry.objects.count()) == ([], 0)

    def test_a_schedule_that_is_made_again_does_not_fire_for_the_same_moment_twice(self, store: Store) -> None:
        planned()
        fire()
        Schedule.objects.all().delete()
        planned()
        fire()
        relay_all()
        assert fired(store) == [NOW]

    def test_nor_while_the_first_job_still_waits_for_the_store(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned()
        with monkeypatch.context() as patched:
            patched.setattr(relaying, "send_each", lambda given: [StoreUnavailable("away")] * len(given))
            fire()
        Schedule.objects.all().delete()
        planned()
        assert fire() == Passed(fired=1)
        relay_all()
        assert fired(store) == [NOW]

    def test_an_edit_meanwhile_is_heard_first(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        row = planned()
        stale = firing._due(NOW, (), 100)
        row.args = [2]
        row.save()
        with monkeypatch.context() as patched:
            patched.setattr(firing, "_due", lambda *given: stale)
            assert fire() == Passed()
        assert fire() == Passed(fired=1)
        [job] = store.check_and_lease("w", 1, want=5, begin=5, lease_ms=1_000).jobs
        assert json.loads(job.payload)["a"] == [2]


class Died(BaseException):
    """As a kill would be: no handler of exceptions sees it."""


def _die(*args: Any, **kwargs: Any) -> Any:
    raise Died


class TestMissed:
    @pytest.mark.parametrize(
        ("catch_up", "made", "passed"),
        [
            ("skip", [], Passed(missed=4)),
            ("one", [NOW], Passed(late=1, missed=3)),
            ("all", [NOW - 3 * HOUR, NOW - 2 * HOUR, NOW - HOUR, NOW], Passed(late=4)),
        ],
    )
    def test_the_rule_of_the_schedule_decides(
        self, store: Store, catch_up: str, made: list[int], passed: Passed, caplog: pytest.LogCaptureFixture
    ) -> None:
        row = planned(NOW - 3 * HOUR, catch_up=catch_up)
        assert fire(NOW + 10 * MINUTE) == passed
        assert fired(store) == made
        row.refresh_from_db()
        assert row.next_ms == NOW + HOUR
        assert row.outcome == {"skip": "missed", "one": "late", "all": "late"}[catch_up]
        assert row.note == {"skip": "4 missed", "one": "3 missed", "all": ""}[catch_up]

    def test_a_job_that_is_made_late_says_so(self, store: Store) -> None:
        planned(NOW)
        fire(NOW + 2 * MINUTE)
        [job] = store.check_and_lease("w", 1, want=5, begin=5, lease_ms=1_000).jobs
        metadata = decode_arguments(job.payload)[2]["metadata"]
        assert (metadata["late"], metadata["scheduled_for"]) == (True, "2025-06-01T12:00:00+00:00")

    def test_all_has_an_end_that_is_told(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        planned(NOW - DAY, catch_up="all", cron="* * * * *")
        total = Passed()
        while (passed := fire()) != Passed():
            total = passed
            assert passed.fired + passed.late <= 100
        assert fired(store) == [NOW - number * MINUTE for number in reversed(range(1_000))]
        assert total.late
        assert "older ones are dropped" in caplog.text

    def test_while_the_store_is_away_nothing_fires_and_the_rule_holds_afterwards(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = planned(NOW - HOUR, catch_up="one")
        with store_away():
            with pytest.raises(StoreUnavailable):
                fire(NOW - HOUR)
            assert (Schedule.objects.get().next_ms, OutboxEntry.objects.count()) == (NOW - HOUR, 0)
        assert fire() == Passed(fired=1, missed=1)
        assert fired(store) == [NOW]
        row.refresh_from_db()
        assert row.next_ms == NOW + HOUR

    def test_a_store_that_goes_away_in_between_gets_the_job_later(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned()
        monkeypatch.setattr(relaying, "send_each", lambda given: [StoreUnavailable("away")] * len(given))
        assert fire() == Passed(fired=1)
        assert OutboxEntry.objects.count() == 1
        monkeypatch.undo()
        relay_all()
        assert fired(store) == [NOW]

    def test_c103_two_thousand_that_are_due_in_one_minute_fire_90_seconds_late(self, store: Store) -> None:
        rows = [
            Schedule(name=f"s{number}", task="tests.producing.add", args=[number], cron="0 12 * * *", zone="UTC")
            for number in range(2_000)
        ]
        for row in rows:
            row.plan_anew(NOW - HOUR)
        Schedule.objects.bulk_create(rows)
        total = 0
        while (passed := fire(NOW + 90_000)).late:
            assert passed.late <= 100
            total += passed.late
        assert total == 2_000
        assert len(fired(store)) == 2_000
        assert not Schedule.objects.exclude(outcome="late").exists()


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

    def test_replace_leaves_one_that_runs_and_skips(self, store: Store, reads: Reads) -> None:
        row = planned(overlap="replace")
        fire()
        store.check_and_lease("w", 1, want=1, begin=1, lease_ms=60_000)
        assert fire(NOW + HOUR) == Passed(skipped=1)
        row.refresh_from_db()
        assert (state(reads, row), row.outcome) == ("active", "skipped")
        assert "is not stopped" in row.note

    def test_replace_takes_one_out_of_the_outbox(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned(overlap="replace")
        monkeypatch.setattr(relaying, "send_each", lambda given: [StoreUnavailable("away")] * len(given))
        fire()
        monkeypatch.undo()
        assert fire(NOW + HOUR) == Passed(fired=1)
        relay_all()
        assert fired(store) == [NOW + HOUR]

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
            assert (passed, unknown) == (Passed(), {row.pk})
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
