"""What goes wrong around a run: none of it stops the run for ever, fails it without a word, or repeats without end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction

from flows import (
    commands,
    dispatch,
    flow,
    get_run,
    map_step,
    models,
    reports,
    runtime,
    sleep,
    step,
    targets,
    versions,
    waking,
)
from flows.declaring import registry
from flows.errors import UnknownFlow
from flows.snapshot import Ending, Timer, Wake
from queueapp import task
from queueapp.errors import StoreUnavailable
from queueapp.moments import now_ms
from queueapp.producer import discovery
from tests.flows import host
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    host.forget()


@task(max_attempts=1)
def blames(text: str) -> None:
    raise ValueError(text)


@flow
def blaming(text: str) -> object:
    return step(blames, text)


@flow
def picky(given: dict[str, Any]) -> object:
    made = step(host.same, given)
    return map_step(host.add, made["listed"], made["deep"]["gone"])


@flow
def napping(given: dict[str, Any]) -> object:
    made = step(host.same, given)
    return step(host.same, 1, name="after", after=sleep(made["seconds"], name="nap"))


def end(run_id: str, name: str, ending: Ending, *, attempt: int = 1, **more: Any) -> reports.End:
    return reports.End(run_id=run_id, step=name, attempt=attempt, ending=ending, **more)


def error_of(run_id: str, name: str) -> str:
    return models.StepRun.objects.get(run_id=run_id, step=name).error


def test_an_error_that_nobody_expected_fails_the_step_with_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    run = host.chain.start(1)

    def broken(*_: object) -> None:
        raise RuntimeError("this was not foreseen")

    monkeypatch.setattr(dispatch, "arguments", broken)
    work()
    assert run.refresh().state == "failed"
    assert "this was not foreseen" in error_of(run.id, "second")
    assert not models.FlowCommand.objects.exists()


def test_what_no_item_can_be_given_fails_the_map_at_once() -> None:
    """Too large to be looked at by a tick, the part is found to be missing when the items are handed over."""
    run = picky.start({"listed": [1, 2], "deep": {"there": "x" * 70_000}})
    work()
    assert run.refresh().state == "failed"
    assert "gone" in error_of(run.id, "add")
    assert not models.FlowCommand.objects.exists()


def test_a_sleep_whose_length_is_not_there_fails_its_step_and_no_tick() -> None:
    run = napping.start({"minutes": 1})
    work()
    assert run.refresh().state == "failed"
    assert "seconds" in error_of(run.id, "nap")


def test_a_store_that_is_away_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch) -> None:
    run = host.chain.start(1)
    with monkeypatch.context() as away:
        away.setattr(dispatch, "hand_over", lambda orders: [StoreUnavailable("It is away.") for _ in orders])
        work()
    assert run.refresh().state == "running"
    assert [command for _, command in commands.left(run.id)], "what waits for the store is still there"
    runtime.look(run.id)
    work()
    assert run.refresh().output == 12


def test_what_was_told_stands_whatever_becomes_of_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    run = host.chain.start(1)
    with monkeypatch.context() as broken:
        broken.setattr(runtime, "_made", lambda *_: 1 / 0)
        assert runtime.report_and_advance(end(run.id, "add", "completed", output=7))
    assert models.StepRun.objects.get(run_id=run.id, step="add").report_ending == "completed"
    work()
    assert run.refresh().output == 17
    assert not [key for key in host.RAN if key.endswith("/add")], "it did not run again"


def test_where_no_wake_up_can_be_left_a_command_is(monkeypatch: pytest.MonkeyPatch) -> None:
    run = host.chain.start(1)
    monkeypatch.setattr(waking, "hand_over", lambda orders: [StoreUnavailable("It is away.") for _ in orders])
    waking.leave_word(run.id)
    assert [command for _, command in commands.left(run.id)] == [Wake()]


def test_code_that_is_gone_is_waited_for_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    run = host.chain.start(1)
    found = discovery.registry[host.add.module_path]
    monkeypatch.setattr(versions, "_whole", set())
    with monkeypatch.context() as gone:
        gone.setattr(versions, "_is_there", lambda name: name != host.add.module_path)
        work()
        assert run.refresh().state == "running"
        assert "add" in run.row.note
    assert discovery.registry[host.add.module_path] is found
    runtime.look(run.id)
    work()
    assert run.refresh().output == 12
    assert run.row.note == ""


def test_a_task_that_is_gone_when_it_is_handed_over_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that decided had it; this one, of an older release, has not."""
    run = host.chain.start(1)

    def unknown(name: str) -> object:
        return discovery.find(f"{name}_of_a_later_release")

    with monkeypatch.context() as older:
        older.setattr(dispatch, "find", unknown)
        older.setattr(targets, "find", unknown)
        work()
        assert run.refresh().state == "running"
        runtime.look(run.id)
        assert run.refresh().state == "running"
    runtime.look(run.id)
    work()
    assert run.refresh().output == 12


def test_a_sub_flow_that_is_gone_is_waited_for() -> None:
    run = host.outer.start(1)
    chain = registry.pop("chain")
    try:
        versions._whole.clear()
        models.Run.objects.filter(parent_run=run.id).delete()
        models.StepRun.objects.filter(run_id=run.id).update(state="waiting", attempt=0)
        runtime.look(run.id)
        assert "chain" in run.refresh().row.note
    finally:
        registry["chain"] = chain
    runtime.look(run.id)
    work(slots=2)
    assert run.refresh().output == 112


def test_a_definition_that_is_gone_is_told_and_does_not_wake_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run = host.chain.start(1)

    def gone(flow: str, version: str) -> object:
        raise UnknownFlow(f"Version {version} of flow {flow!r} is not stored any more.")

    with monkeypatch.context() as older:
        older.setattr(versions, "definition_of", gone)
        work()
        assert work() == 0, "no wake-up follows another"
        assert "is not stored any more" in run.refresh().row.note
        assert models.StepRun.objects.get(run_id=run.id, step="add").report_ending == "completed"
        runtime.look(run.id)  # a wake-up ends well, and is not tried again and again
        assert run.refresh().row.watch_ms > now_ms()
    runtime.look(run.id)
    work()
    assert run.refresh().output == 12


def test_a_timer_of_a_run_that_is_gone_ends() -> None:
    runtime.look("r" + "0" * 21, Timer(reason="sleep:nap", requeues=0), 1)


def test_an_error_with_characters_that_no_database_takes_is_told_all_the_same() -> None:
    run = blaming.start("half a pair")
    models.Run.objects.filter(pk=run.id).update(input={"text": "x"})
    assert reports.write(end(run.id, "blames", "failed", error="a zero \0 and half a pair \ud800"))
    row = models.StepRun.objects.get(run_id=run.id, step="blames")
    assert row.report_error == "a zero  and half a pair \\ud800"


def test_a_start_that_is_rolled_back_does_not_count_its_definition_as_kept() -> None:
    once: Any = flow(name="once")(lambda: step(host.add, 1, 1))
    try:
        with transaction.atomic():
            once.start()
            transaction.set_rollback(True)
        once.start()
        assert models.FlowVersion.objects.filter(flow="once").exists()
    finally:
        registry.pop("once")


def test_a_definition_whose_row_was_lost_is_stored_again_by_the_next_start() -> None:
    """As after a database was restored beneath processes that live on."""
    host.chain.start(1)
    models.FlowVersion.objects.all().delete()
    host.chain.start(2)
    assert models.FlowVersion.objects.filter(flow="chain").count() == 1


def test_a_definition_whose_row_was_lost_may_be_what_the_code_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a module that nothing has imported yet: it is, before anybody says that the run cannot go on."""
    lost: Any = flow(name="lost")(lambda: step(host.add, 1, 1))
    del registry["lost"]
    monkeypatch.setattr(versions, "load_flows", lambda: registry.__setitem__("lost", lost))
    try:
        assert versions.definition_of("lost", lost.definition.version) is lost.definition
        with pytest.raises(UnknownFlow, match="is not stored any more"):
            versions.definition_of("lost", "another")
    finally:
        registry.pop("lost")


def test_what_is_done_to_a_run_in_a_transaction_follows_after_its_commit() -> None:
    run = host.patient.start(1)
    with transaction.atomic():
        run.send_event("go", {"more": 4})
        work()
        assert not host.RAN
    host.work_through(run)
    assert run.output == 5


def test_events_of_one_name_do_not_hide_those_of_another() -> None:
    run = host.two_events.start()
    row = models.Run.objects.get(pk=run.id)
    models.Event.objects.bulk_create(
        models.Event(run=row, event_id=f"e{number}", name="first", payload=number, sent_ms=1) for number in range(600)
    )
    run.send_event("second", 7)
    work()
    assert run.refresh().output == 7


def test_an_end_that_is_told_twice_is_written_once() -> None:
    run = host.fan.start(3)
    work(slots=1)
    item = models.ItemRun.objects.get(step_run__run_id=run.id, index=1)
    assert (item.state, item.ending) == ("counted", "completed")
    told = end(run.id, "double", "failed", attempt=item.attempt, index=1)
    assert not reports.write(told)
    assert not reports.write(replace(told, attempt=item.attempt + 1, ending="completed", output=5))


def test_a_thread_does_not_serve_a_run_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own job would not end, and the next one waits for its slot: after so many ticks a wake-up goes on."""
    run = host.chain.start(1)
    ticks: list[int] = []

    def carried_out(*_: object, **__: object) -> bool:
        ticks.append(1)
        return True

    with monkeypatch.context() as busy:
        busy.setattr(runtime, "_carry_out", carried_out)
        runtime.advance(run.id)
    assert len(ticks) == runtime.TICKS
    assert runtime._turns.take(run.id), "its turn is free"
    runtime._turns.leave(run.id)
    work()
    assert get_run(run.id).output == 12


def test_a_pool_that_was_given_up_does_not_stop_a_run_from_being_woken() -> None:
    run = host.chain.start(1)
    models.Run.objects.filter(pk=run.id).update(pool="given-up")
    waking.wake(run.id)
    assert work() >= 1


def test_a_step_whose_worker_died_after_its_end_was_told_is_gone_on_with() -> None:
    """The job comes back, does not run, and whoever has it looks after the run."""
    run = host.chain.start(1)
    assert reports.write(end(run.id, "add", "completed", output=5))
    work()
    assert run.refresh().output == 15
    assert sum(host.RAN.values()) == 1
