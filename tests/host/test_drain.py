"""`drain()` and the fixture `ductor`: a real store of the test's own, and a worker without threads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test.utils import override_settings
from django.utils import timezone

from queueapp.compat import TaskResultDoesNotExist, TaskResultStatus
from queueapp.errors import StoreUnavailable, UnknownTask
from queueapp.producer.discovery import registry
from queueapp.store import connection, shards
from queueapp.store.store import Store
from queueapp.sync import delivery
from queueapp.testing import DrainLimit, Ductor, StoreBlocked, drain, immediate, recorded, throwaway_store
from queueapp.testing.blocking import block
from queueapp.testing.factories import PoolFactory, TenantLimitsFactory
from tests.host.shop import (
    asks_again,
    broken,
    every_hour,
    flaky,
    for_ever,
    interrupted,
    parent,
    ran,
    send_invoice,
)

pytestmark = pytest.mark.compat


class TestWhatItRuns:
    def test_everything_that_waits_and_what_that_enqueues(self, ductor: Ductor) -> None:
        result = parent.using(tenant="acme").enqueue(2)
        assert ran == []

        drained = ductor.drain()

        assert ran == [("acme", "parent"), ("acme", 0), ("acme", 1)]
        assert (drained.succeeded, drained.failed, len(drained)) == (3, 0, 3)
        assert drained.results[0].id == result.id
        result.refresh()
        assert result.return_value == [done.id for done in drained.results[1:]]

    def test_one_pool_or_all(self, ductor: Ductor, settings: Any) -> None:
        settings.DUCTOR = {**settings.DUCTOR, "POOLS": {"mail": {}}}
        send_invoice.enqueue(1)
        send_invoice.using(queue_name="mail").enqueue(2)

        assert len(ductor.drain("mail")) == 1
        assert [what for _, what in ran] == [2]
        assert len(ductor.drain()) == 1

    def test_nothing_waits(self, ductor: Ductor) -> None:
        assert len(ductor.drain()) == 0
        assert len(ductor.drain("default")) == 0

    def test_no_more_than_was_asked_for(self, ductor: Ductor) -> None:
        for number in range(3):
            send_invoice.enqueue(number)

        assert len(ductor.drain(max_jobs=2)) == 2
        assert len(ductor.drain(max_jobs=2)) == 1, "the third was given back"

    def test_a_task_that_enqueues_itself_for_ever_is_told_of(
        self, ductor: Ductor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("queueapp.testing.draining.MAX_JOBS", 5)
        for_ever.enqueue()

        with pytest.raises(DrainLimit, match="for_ever is next: does a task enqueue itself"):
            ductor.drain()
        assert len(ran) == 5

    def test_the_assertions_are_at_hand(self, ductor: Ductor) -> None:
        send_invoice.using(tenant="acme").enqueue(1)

        ductor.assert_enqueued(send_invoice, tenant="acme")
        ductor.assert_not_enqueued(broken)
        assert [job.args for job in ductor.recorded] == [[1]]


class TestFailures:
    def test_what_a_body_raises_is_raised_and_recorded(self, ductor: Ductor) -> None:
        result = broken.enqueue("no such order")
        send_invoice.enqueue(1)

        with pytest.raises(LookupError, match="no such order") as caught:
            ductor.drain()
        result.refresh()
        assert (result.state, result.status) == ("dead", TaskResultStatus.FAILED)
        assert caught.traceback[-1].name == "broken", "it is the body's own exception"
        assert len(ductor.drain()) == 1, "the rest was left for later"

    def test_or_only_recorded(self, ductor: Ductor) -> None:
        broken.enqueue()
        send_invoice.enqueue(1)

        drained = ductor.drain(raise_on_failure=False)

        assert (drained.succeeded, drained.failed) == (1, 1)

    def test_another_attempt_waits_for_its_time(self, ductor: Ductor) -> None:
        result = flaky.enqueue(2)

        assert ductor.drain(raise_on_failure=False).failed == 1
        result.refresh()
        assert result.state == "scheduled"
        assert len(ductor.drain()) == 0
        drained = ductor.drain(include_scheduled=True, raise_on_failure=False)
        assert [done.status.name for done in drained.results] == ["READY", "SUCCESSFUL"]

    def test_an_attempt_that_fails_is_raised_although_others_follow(self, ductor: Ductor) -> None:
        flaky.enqueue(1)

        with pytest.raises(ConnectionError):
            ductor.drain()
        assert len(ductor.drain(include_scheduled=True)) == 1

    def test_a_retry_that_was_asked_for_is_no_failure(self, ductor: Ductor) -> None:
        asks_again.enqueue()

        assert ductor.drain(include_scheduled=True).failed == 1
        assert len(ran) == 2

    def test_ctrl_c_gives_the_job_back(self, ductor: Ductor) -> None:
        result = interrupted.enqueue()

        with pytest.raises(KeyboardInterrupt):
            ductor.drain()
        result.refresh()
        assert result.state == "pending"

    def test_an_unknown_task_is_told_of(self, ductor: Ductor, monkeypatch: pytest.MonkeyPatch) -> None:
        send_invoice.enqueue(1)
        known = registry.pop(send_invoice.module_path)
        try:
            monkeypatch.delattr("tests.host.shop.send_invoice")
            with pytest.raises(UnknownTask, match="send_invoice"):
                ductor.drain()
        finally:
            registry[send_invoice.module_path] = known

    def test_a_store_that_is_away_is_told_of(self, ductor: Ductor, settings: Any) -> None:
        send_invoice.enqueue(1)
        url = "unix:///nonexistent/gone.sock"
        block.opened_for = (url, ductor.namespace)
        with override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": url}), pytest.raises(StoreUnavailable):
            drain("default")
        block.opened_for = (ductor.url, ductor.namespace)

    def test_also_when_it_goes_in_the_middle(self, ductor: Ductor, monkeypatch: pytest.MonkeyPatch) -> None:
        send_invoice.enqueue(1)
        lost = iter([StoreUnavailable("the cable was pulled")])
        cycle = Store.cycle

        def once(*args: Any, **kwargs: Any) -> Any:
            for error in lost:
                raise error
            return cycle(*args, **kwargs)

        monkeypatch.setattr(Store, "cycle", once)
        with pytest.raises(StoreUnavailable, match="cable"):
            ductor.drain()
        assert ductor.drain().succeeded == 1


class TestTime:
    def test_later_jobs_run_in_the_order_of_their_time(self, ductor: Ductor) -> None:
        now = timezone.now()
        send_invoice.using(run_after=now + timedelta(days=2)).enqueue(2)
        send_invoice.using(run_after=now + timedelta(days=1)).enqueue(1)
        send_invoice.enqueue(0)

        assert [done.return_value["order"] for done in ductor.drain().results] == [0]
        until = ductor.drain(until=now + timedelta(days=1, hours=1))
        assert [done.return_value["order"] for done in until.results] == [1]
        rest = ductor.drain(include_scheduled=True)
        assert [done.return_value["order"] for done in rest.results] == [2]

    def test_an_expiry_that_comes_before_the_time_of_a_job_holds(self, ductor: Ductor) -> None:
        late = send_invoice.using(run_after=timezone.now() + timedelta(days=2), expires_after=3600).enqueue(1)
        soon = send_invoice.using(run_after=timezone.now() + timedelta(minutes=1), expires_after=3600).enqueue(2)

        ductor.drain(include_scheduled=True)

        late.refresh()
        soon.refresh()
        assert (late.outcome, soon.outcome) == ("expired", "completed")

    def test_a_task_that_plans_its_next_run_ends_with_the_moment(self, ductor: Ductor) -> None:
        every_hour.enqueue()
        assert len(ductor.drain(max_jobs=3, include_scheduled=True)) == 3

    def test_in_memory_it_is_the_same(self) -> None:
        now = timezone.now()
        with recorded():
            send_invoice.using(run_after=now + timedelta(days=2)).enqueue(2)
            send_invoice.using(run_after=now + timedelta(days=1)).enqueue(1)
            expired = send_invoice.using(expires_after=3600, run_after=now + timedelta(hours=2)).enqueue(3)
            flaky.enqueue(1)
            with pytest.raises(ConnectionError):
                drain()
            assert len(drain(until=now + timedelta(hours=12))) == 1
            assert len(drain(include_scheduled=True)) == 2
            expired.refresh()
        assert expired.outcome == "expired"
        assert [what for _, what in ran] == ["flaky", "flaky", 1, 2]


class TestTheRealStore:
    @pytest.mark.django_db
    def test_weights_and_pauses_of_the_test_hold(self, ductor: Ductor) -> None:
        TenantLimitsFactory.create(tenant__key="big", weight=3)
        for number in range(8):
            send_invoice.using(tenant="big", cost=100).enqueue(number)
            send_invoice.using(tenant="small", cost=100).enqueue(number)

        ductor.drain(max_jobs=8)

        assert [tenant for tenant, _ in ran].count("big") == 6

    def test_a_test_without_a_database_meets_none(self, ductor: Ductor) -> None:
        send_invoice.enqueue(1)
        assert len(ductor.drain()) == 1

    @pytest.mark.django_db
    def test_what_the_test_saved_is_carried_over_once(self, ductor: Ductor, monkeypatch: pytest.MonkeyPatch) -> None:
        PoolFactory.create(name="default")
        pushed: list[str] = []
        push = delivery._push

        def noted(touched: delivery._Touched, deadline: float) -> None:
            pushed.append(touched.name)
            push(touched, deadline)

        monkeypatch.setattr(delivery, "_push", noted)
        for number in range(3):
            send_invoice.enqueue(number)
        assert (len(ductor.drain()), pushed) == (3, ["default"])

    @pytest.mark.django_db
    def test_a_paused_pool_rests(self, ductor: Ductor) -> None:
        PoolFactory.create(name="default", paused=True)
        send_invoice.enqueue(1)
        assert len(ductor.drain()) == 0

    def test_it_is_the_tests_own_and_empty_afterwards(self, ductor: Ductor) -> None:
        with throwaway_store() as inner:
            send_invoice.enqueue(1)
            assert shards.reads("default").overview().waiting == 1
            assert inner.namespace != ductor.namespace
        assert connection.commands().keys(f"*{inner.namespace}*") == []
        assert [*ductor.recorded] == []

    def test_a_host_that_borrows_the_address_of_its_cache(self, settings: Any) -> None:
        settings.DUCTOR = {"CACHE_ALIAS": "default"}
        with throwaway_store() as ductor:
            send_invoice.enqueue(1)
            assert ductor.drain().succeeded == 1

    def test_a_test_that_leaves_it_by_changing_settings_is_stopped(self, ductor: Ductor, settings: Any) -> None:
        block.start("blocked")
        try:
            settings.DUCTOR = {**settings.DUCTOR, "NAMESPACE": "ductor"}
            with pytest.raises(StoreBlocked, match="Keep what is there"):
                send_invoice.enqueue(1)
        finally:
            block.stop()

    def test_modes_inside_hold(self, ductor: Ductor) -> None:
        with immediate():
            result = send_invoice.enqueue(1)
        with pytest.raises(TaskResultDoesNotExist):
            send_invoice.get_result(result.id)
        assert len(ductor.recorded) == 0

    def test_every_way_to_a_connection_is_blocked(self, ductor: Ductor) -> None:
        handed_out = [
            name
            for name, value in vars(connection).items()
            if callable(value) and "Redis" in str(getattr(value, "__annotations__", {}).get("return", ""))
            if not name.startswith("_")
        ]
        assert sorted(handed_out) == sorted(["commands", "reads", "blocking", "async_commands", "sentinels"])
