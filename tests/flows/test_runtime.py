"""Runs over a real queue and a real database: what the coordinator decides comes about, and is told."""

from __future__ import annotations

import pytest
from django.db import transaction

from flows import get_run, models
from flows.errors import RunFailed, RunRefused
from queueapp.errors import InvalidOption
from tests.flows import host
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    host.forget()


def test_a_chain_ends_with_what_its_last_step_returned() -> None:
    run = host.chain.start(5)
    work(slots=2)
    assert run.refresh().output == 16
    assert not models.FlowCommand.objects.exists()


def test_a_map_runs_over_a_list_known_only_then_and_an_async_body_gets_its_results() -> None:
    run = host.fan.start(10)
    work(slots=3)
    assert run.refresh().output == 90
    assert max(host.RAN.values()) == 1


def test_an_empty_map_is_done_at_once() -> None:
    run = host.fan.start(0)
    work()
    assert run.refresh().output == 0


def test_an_event_that_came_before_counts() -> None:
    run = host.patient.start(1)
    work()
    assert run.refresh().state == "running"
    assert run.send_event("go", {"more": 4}, event_id="e1")
    assert not run.send_event("go", {"more": 9}, event_id="e1")
    host.work_through(run)
    assert run.output == 5


def test_a_sub_flow_gives_what_it_returned() -> None:
    run = host.outer.start(1)
    work(slots=2)
    assert run.refresh().output == 112


def test_a_failure_ends_the_run_and_a_resume_goes_on_there() -> None:
    host.FAIL.add("second")
    run = host.chain.start(5)
    work(slots=2)
    assert run.refresh().state == "failed"
    with pytest.raises(RunFailed, match="by its step second: ValueError: second was told to fail"):
        _ = run.output
    host.FAIL.clear()
    assert run.resume()
    work(slots=2)
    assert run.refresh().output == 16
    assert set(host.RAN.values()) == {1}, "what had completed did not run again"
    with pytest.raises(RunRefused, match="is completed"):
        run.resume()


def test_after_a_cancel_nothing_starts() -> None:
    run = host.chain.start(5)
    assert run.cancel("not wanted")
    assert not run.cancel()
    work()
    assert run.refresh().state == "cancelled"
    assert not host.RAN


def test_started_twice_with_a_key_a_run_is_there_once() -> None:
    first = host.chain.using(key="a").start(5)
    second = host.chain.using(key="a").start(5)
    assert first.id == second.id
    assert get_run(first.id).state == "running"


def test_C112_a_failure_early_in_one_branch_answers_who_waits_and_lets_the_other_branch_end() -> None:
    """C112: a failure early in a chain inside a group is handled by nobody, and the caller hangs."""
    host.FAIL.add("left_1")
    run = host.branches.start()
    work(slots=2)
    with pytest.raises(RunFailed, match="by its step left_1"):
        run.wait(timeout=10)
    states = dict(models.StepRun.objects.filter(run_id=run.id).values_list("step", "state"))
    assert states == {
        "left_1": "failed",
        "left_2": "skipped",
        "left_3": "skipped",
        "right_1": "completed",
        "right_2": "completed",
        "right_3": "completed",
    }


def test_wait_is_refused_in_a_transaction_which_would_never_see_the_end() -> None:
    run = host.chain.start(5)
    with transaction.atomic(), pytest.raises(InvalidOption, match=r"wait\(\) was called inside a transaction"):
        run.wait(timeout=0)
    work(slots=2)
    assert run.wait(timeout=0) == 16
