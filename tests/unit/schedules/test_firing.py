"""The pass: a schedule that is due becomes one job, whoever makes it and whoever dies; what was missed."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connections

from queueapp.codec import decode_arguments
from queueapp.errors import StoreUnavailable
from queueapp.firings import jitter_ms
from queueapp.models import OutboxEntry, Schedule
from queueapp.moments import now_ms
from queueapp.producer import entries, relaying
from queueapp.schedules import firing, jobs
from queueapp.schedules.firing import Passed
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import run_waiting
from tests.unit.outbox.away import store_away
from tests.unit.schedules.conftest import DAY, HOUR, MINUTE, NOW, fire, fired, planned, relay_all, stored
from tests.unit.schedules.firing_words import Died, die

pytestmark = pytest.mark.django_db(transaction=True)


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

    def test_whodies_in_the_transaction_has_done_nothing(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned()
        with monkeypatch.context() as patched:
            patched.setattr(entries, "entry_of", die)
            with pytest.raises(Died):
                fire()
        assert Schedule.objects.get().next_ms == NOW

        assert fire() == Passed(fired=1)
        assert fired(store) == [NOW]

    def test_whodies_after_it_leaves_the_job_to_the_relay(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned()
        with monkeypatch.context() as patched:
            patched.setattr(firing, "send_claimed", die)
            with pytest.raises(Died):
                fire()
        assert fire() == Passed(), "it is made"

        relay_all()
        assert fired(store) == [NOW]

    def test_whodies_after_sending_has_sent_it_once(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned()
        with monkeypatch.context() as patched:
            patched.setattr(relaying, "_taken", die)
            with pytest.raises(Died):
                fire()
        relay_all()
        assert fired(store) == [NOW]

    def test_also_when_its_job_has_run_and_is_forgotten_meanwhile(
        self, store: Store, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = planned()
        with monkeypatch.context() as patched:
            patched.setattr(relaying, "_taken", die)
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
