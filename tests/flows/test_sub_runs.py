"""Runs that are steps of other runs: begun once, told once, cancelled with their parent and resumed with it."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from flows import get_run, models, operations, runtime
from flows.snapshot import Decision
from flows.subflows import SubFlows
from tests.flows import host
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    host.forget()


def subs(run_id: str) -> list[models.Run]:
    return list(models.Run.objects.filter(parent_run=run_id).order_by("parent_index", "parent_attempt"))


def times(name: str) -> int:
    """How often bodies of steps of this name ran."""
    return sum(number for key, number in host.RAN.items() if key.split("/")[1] == name)


def test_a_map_over_a_flow_gathers_what_its_runs_returned() -> None:
    run = host.outer_fan.start(4)
    work(slots=2)
    assert run.refresh().output == [11, 12, 13, 14]
    assert [sub.parent_index for sub in subs(run.id)] == [0, 1, 2, 3]


def test_a_sub_run_has_the_tenant_of_its_parent() -> None:
    run = host.outer.using(tenant="acme").start(1)
    work()
    [sub] = subs(run.id)
    assert (sub.tenant, sub.state) == ("acme", "completed")


def test_a_failed_sub_run_fails_its_step_and_a_resume_of_the_parent_resumes_it() -> None:
    """What completed in it is kept, as in any run."""
    host.FAIL.add("second")
    run = host.outer.start(1)
    work(slots=2)
    assert run.refresh().state == "failed"
    [sub] = subs(run.id)
    assert f"run {sub.id} of flow chain is failed, by its step second" in models.StepRun.objects.get(step="chain").error
    host.FAIL.clear()
    assert run.resume()
    work(slots=2)
    assert run.refresh().output == 112
    [again] = subs(run.id)
    assert (again.id, again.round, again.parent_attempt) == (sub.id, 2, 2)
    assert times("add") == 2, "the first step of the sub-run, and the last of the parent: each once"


def test_items_whose_sub_runs_failed_are_resumed_alone() -> None:
    host.FAIL.add("second")
    run = host.outer_fan.start(3)
    work()
    assert run.refresh().state == "failed"
    host.FAIL.clear()
    run.resume()
    work()
    assert run.refresh().output == [11, 12, 13]
    assert times("add") == 3
    assert len(subs(run.id)) == 3


def test_a_cancel_reaches_sub_runs_and_a_resume_goes_on_with_them() -> None:
    run = host.outer.start(1)
    assert run.cancel()
    [sub] = subs(run.id)
    assert sub.state == "cancelled"
    work()
    assert not host.RAN
    run.resume()
    work(slots=2)
    assert run.refresh().output == 112
    assert [each.id for each in subs(run.id)] == [sub.id]


def test_a_sub_run_is_not_begun_for_a_step_that_was_called_off_meanwhile() -> None:
    """Who carries out the command has read the run before it was cancelled, and is slow."""
    with patch.object(SubFlows, "begin") as begin:
        run = host.outer.start(1)
    assert begin.call_count == 1
    assert run.cancel()
    given = begin.call_args.args
    runtime._subflows.begin(*given)
    assert subs(run.id) == []


def test_a_sub_run_that_goes_on_is_taken_over_by_the_next_try() -> None:
    """The parent was cancelled and resumed before its sub-run heard of it."""
    with patch.object(SubFlows, "cancel"):
        run = host.outer.start(1)
        run.cancel()
    run.resume()
    work(slots=2)
    assert run.refresh().output == 112
    [sub] = subs(run.id)
    assert sub.parent_attempt == 2


@pytest.fixture
def unheard() -> Iterator[None]:
    """The process in which a run ends dies before it tells anybody."""
    with patch.object(SubFlows, "finished"):
        yield


def test_the_end_of_a_sub_run_is_heard_of_by_asking(unheard: None) -> None:
    run = host.outer.start(1)
    work()
    assert run.refresh().state == "running"
    models.Run.objects.filter(pk=run.id).update(watch_ms=1)
    runtime.look(run.id)
    work()
    assert run.refresh().output == 112


def test_a_sub_run_that_is_gone_begins_anew() -> None:
    run = host.outer.start(1)
    models.Run.objects.filter(parent_run=run.id).delete()
    models.Run.objects.filter(pk=run.id).update(watch_ms=1)
    runtime.look(run.id)
    work(slots=2)
    assert run.refresh().output == 112


def test_a_sub_run_that_is_told_of_twice_is_recorded_once() -> None:
    run = host.outer.start(1)
    work(slots=2)
    [sub] = subs(run.id)
    before = models.StepRun.objects.get(run_id=run.id, step="chain").report_ms
    runtime._subflows.finished(sub.id, sub.round)
    assert models.StepRun.objects.get(run_id=run.id, step="chain").report_ms == before
    assert times("add") == 2


def test_a_resumed_sub_run_tells_only_who_waits_for_it_now() -> None:
    """Resumed by itself, its parent has failed already, and stays so."""
    host.FAIL.add("second")
    run = host.outer.start(1)
    work(slots=2)
    host.FAIL.clear()
    [sub] = subs(run.id)
    decision = runtime.act(sub.id, operations.resume)
    assert isinstance(decision, Decision)
    work()
    assert get_run(sub.id).state == "completed"
    assert run.refresh().state == "failed"
