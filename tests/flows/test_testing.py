"""Flows under `queueapp.testing`: run through at once, recorded, drained; and inside TestCase, which never commits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase
from django.utils import timezone

from flows import flow, get_run, map_step, models, sleep, step, wait_for
from flows.errors import RunFailed
from queueapp import Retry, current_tenant, task
from queueapp.errors import WaitTimeout
from queueapp.signals import enqueue_failed
from queueapp.testing import (
    Ductor,
    DuctorTestMixin,
    adrain,
    assert_enqueued,
    assert_not_enqueued,
    drain,
    immediate,
    recorded,
    throwaway_store,
)
from queueapp.testing.blocking import StoreBlocked, block
from tests.flows import host

BODIES: list[str] = []
"""Begin and end of each body of `enter`, and attempts of `flaky`."""


@task(max_attempts=3)
def flaky(number: int) -> int:
    BODIES.append("flaky")
    if BODIES.count("flaky") < 3:
        raise Retry(delay=3600)
    return number


@task
def enter(name: str) -> str:
    BODIES.append(f"{name} begins for {current_tenant()}")
    return name


@task
def starts_another(number: int) -> str:
    run: Any = host.chain.start(number)
    return str(run.id)


@flow
def stubborn(number: int) -> object:
    first = step(flaky, number)
    return step(host.add, first, 1, name="last")


@flow
def two_tenants() -> object:
    first = step(enter, "first", tenant="acme", name="one")
    return step(enter, "second", tenant="globex", name="two", after=first)


@flow
def waits(number: int) -> object:
    told = wait_for("go", timeout=600, may_fail=True)
    pause = sleep(3600, after=told)
    return step(host.add, number, 1, after=pause)


@flow
def waits_for_ever(number: int) -> object:
    return step(host.add, number, 1, after=wait_for("go"))


@flow
def many(count: int) -> object:
    listed = step(host.numbers, count)
    return step(host.atotal, map_step(host.double, listed))


@flow
def parental(number: int) -> object:
    return step(starts_another, number)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    host.RAN.clear()
    host.FAIL.clear()
    BODIES.clear()


@pytest.mark.django_db
class TestImmediate:
    def test_a_run_is_through_when_start_comes_back(self) -> None:
        with immediate() as jobs:
            run = host.chain.start(5)
            assert run.wait() == 16
        assert [job.args for job in jobs] == [[5, 1], [6, 10]]
        assert [job.result.outcome for job in jobs] == ["completed"] * 2
        assert not models.FlowCommand.objects.exists()

    @pytest.mark.parametrize("count", [0, 1, 70])
    def test_a_map_and_what_takes_its_results(self, count: int) -> None:
        with immediate():
            run = many.start(count)
        assert run.refresh().output == count * (count - 1)
        assert set(host.RAN.values()) == {1}

    def test_a_long_chain_is_no_deep_one(self) -> None:
        """Steps follow each other; they do not call each other."""

        def declare(number: int) -> object:
            before: object = number
            for place in range(120):
                before = step(host.add, before, 1, name=f"s{place}")
            return before

        with immediate():
            assert flow(name="long_chain")(declare).start(0).wait() == 120

    def test_each_step_begins_when_the_one_before_is_through(self) -> None:
        with immediate() as jobs:
            two_tenants.start()
        assert BODIES == ["first begins for acme", "second begins for globex"]
        first, second = (job.result for job in jobs)
        assert first.finished_at is not None
        assert second.started_at is not None
        assert first.finished_at <= second.started_at

    def test_attempts_follow_each_other_without_waiting(self) -> None:
        with immediate():
            assert stubborn.start(5).wait() == 6
        assert BODIES == ["flaky"] * 3

    def test_a_failure_fails_the_run_and_not_the_caller(self) -> None:
        host.FAIL.add("second")
        with immediate():
            run = host.chain.start(5)
            with pytest.raises(RunFailed, match="second was told to fail"):
                run.wait()
            host.FAIL.clear()
            assert run.resume()
            assert run.output == 16

    def test_it_is_raised_at_the_end_where_that_is_asked_for(self) -> None:
        host.FAIL.add("second")
        with pytest.raises(ValueError, match="told to fail"), immediate(raise_on_failure=True):
            host.chain.start(5)

    def test_a_sub_flow(self) -> None:
        with immediate():
            assert host.outer.start(1).wait() == 112

    def test_a_body_that_starts_a_run(self) -> None:
        with immediate():
            inner = parental.start(5).wait()
        assert get_run(inner).output == 16

    def test_an_event_carries_it_on(self) -> None:
        with immediate():
            run = waits_for_ever.start(5)
            assert run.state == "running"
            with pytest.raises(WaitTimeout, match="does not get on while you wait"):
                run.wait()
            run.send_event("go")
            assert run.wait() == 6

    def test_a_cancelled_run_does_not_go_on(self) -> None:
        with immediate():
            run = waits.start(5)
            assert run.cancel()
            assert len(drain(include_scheduled=True)) == 0
        assert run.refresh().state == "cancelled"


@pytest.mark.django_db
class TestTime:
    @pytest.fixture(params=[immediate, recorded, throwaway_store])
    def mode(self, request: pytest.FixtureRequest) -> Iterator[None]:
        with request.param():
            yield

    def test_sleeps_and_timeouts_pass_without_waiting(self, mode: None) -> None:
        run = waits.start(5)
        drain()
        assert run.refresh().state == "running"
        assert len(drain(until=timezone.now() + timedelta(minutes=11))) == 0, "wake-ups are in no count"
        assert {row.step: row.state for row in run.row.steps.all()} == {
            "go": "failed",
            "sleep_1": "running",
        }
        drain(include_scheduled=True)
        assert run.wait(timeout=0) == 6

    def test_a_run_that_waits_for_an_event_alone_ends_no_drain_late(self, mode: None) -> None:
        """Its watchdog would look at it again each day, for ever."""
        run = waits_for_ever.start(5)
        assert len(drain(include_scheduled=True)) == 0
        run.send_event("go")
        drain()
        assert run.wait(timeout=0) == 6


@pytest.mark.django_db
class TestRecorded:
    def test_the_first_steps_are_recorded_and_drained_with_what_follows(self) -> None:
        with recorded() as jobs:
            run = host.chain.using(tenant="acme").start(5)
            assert_enqueued(host.add, args=[5, 1], tenant="acme", count=1)
            with pytest.raises(WaitTimeout, match="recorded"):
                run.wait()
            assert drain().succeeded == 2
            assert [job.args for job in jobs] == [[5, 1], [6, 10]]
        assert run.wait() == 16

    def test_wake_ups_are_nobodys_jobs(self) -> None:
        with recorded():
            waits.start(5)
            assert_not_enqueued()

    def test_what_a_step_raises_is_raised(self) -> None:
        host.FAIL.add("add")
        with recorded():
            run = host.chain.start(5)
            with pytest.raises(ValueError, match="add was told to fail"):
                drain()
        assert run.refresh().state == "failed"

    def test_as_many_as_are_wanted(self) -> None:
        with recorded():
            run = waits.start(5)
            host.chain.start(1)
            assert len(drain(max_jobs=1, include_scheduled=True)) == 1
            assert run.refresh().state == "running"
            assert len(drain(include_scheduled=True)) == 2

    def test_with_a_store_of_its_own(self, ductor: Ductor) -> None:
        run = many.start(3)
        assert ductor.drain().succeeded == 5
        assert run.wait(timeout=0) == 6
        assert ductor.recorded[0].name == host.numbers.module_path

    def test_what_the_block_refused_is_told(self) -> None:
        """The run is there and would begin later; a test without a helper must hear of it (`pytest_plugin`)."""
        told: list[Any] = []

        def hear(*, error: Exception, kept: bool, **_: Any) -> None:
            told.append((type(error), kept))

        enqueue_failed.connect(hear)
        block.start("blocked")
        try:
            assert host.chain.start(5).state == "running"
        finally:
            block.stop()
            enqueue_failed.disconnect(hear)
        assert (StoreBlocked, True) in told


class InTestCase(TestCase):
    def test_outside_of_blocks_it_begins_at_once(self) -> None:
        with immediate():
            assert host.chain.start(5).wait() == 16

    def test_inside_a_block_it_begins_when_somebody_looks(self) -> None:
        with immediate():
            with transaction.atomic():
                run = host.chain.start(5)
                assert_not_enqueued()
            assert run.refresh().state == "running", "a TestCase never commits"
            assert_enqueued(host.add, count=2)
            assert run.refresh().output == 16

    def test_djangos_own_capture_begins_it(self) -> None:
        with immediate():
            with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
                run = host.chain.start(5)
            assert run.refresh().output == 16
            assert_enqueued(host.add, count=2)

    def test_drain_begins_it(self) -> None:
        with recorded():
            with transaction.atomic():
                run = host.chain.start(5)
            drain()
        assert run.wait() == 16

    def test_a_rollback_takes_it_along(self) -> None:
        with immediate():
            with transaction.atomic():
                run = host.chain.start(5)
                transaction.set_rollback(True)
            assert_not_enqueued()
        assert not models.Run.objects.filter(pk=run.id).exists()

    def test_what_is_done_to_a_run_inside_a_block_acts_after_it(self) -> None:
        with immediate():
            run = waits_for_ever.start(5)
            with transaction.atomic():
                run.send_event("go")
                assert not host.RAN, "its rows are not committed yet"
            assert_enqueued(host.add, count=1)
            assert run.wait() == 6

    async def test_asynchronous(self) -> None:
        with immediate():
            assert await (await many.using().astart(3)).await_() == 6
        with recorded():
            run = await many.using().astart(3)
            with pytest.raises(WaitTimeout):
                await run.await_()
            await adrain()
            assert await run.await_() == 6


class WithTheMixin(DuctorTestMixin, TestCase):
    ductor_mode = "immediate"

    def test_it_runs_through(self) -> None:
        with transaction.atomic():
            run = host.chain.start(5)
        assert len(self.ductor) == 2
        assert run.wait() == 16


@pytest.mark.django_db(transaction=True)
class TestAfterCommit:
    def test_the_run_begins_then(self) -> None:
        with immediate():
            with transaction.atomic():
                run = host.chain.start(5)
                assert not host.RAN
            assert run.wait() == 16
