"""Runs told one by one: what a failure means, sleeps, events, sub-flows, code that is gone, and what people do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flows.coordinator import tick
from flows.definition import Definition, OnFailure, StepDefinition
from flows.draft import Draft
from flows.errors import OtherVersion, RunRefused
from flows.fanout import LOSSES_MAX
from flows.inputs import arguments, items, result, step_key
from flows.operations import cancel, resume, retry_step, send_event
from flows.snapshot import NOTHING, Ending, Enqueue, Event, Finish, Report, SetTimer, Timer, Withdraw
from flows.values import WITHHELD, Json
from flows.watchdog import WATCH_MS
from tests.flows.world import Body, World


def task(name: str, *after: str, **given: Any) -> StepDefinition:
    return StepDefinition(name=name, kind="task", target=f"shop.tasks.{name}", after=after, **given)


def defined(*steps: StepDefinition, on_failure: OnFailure = "stop", result: Any = None) -> Definition:
    return Definition(
        name="f",
        parameters=(),
        defaults={},
        steps=steps,
        result=result or ["value", None],
        on_failure=on_failure,
    )


def ends(**given: Any) -> Body:
    """Steps that end as given, the others complete: an ending, or what one returns."""

    def body(step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        said = given.get(step.replace(":", "_"))
        said = said(attempt) if callable(said) else said
        return (said, None) if said in ("failed", "lost", "cancelled") else ("completed", said)

    return body


BRANCHES = [
    task(f"{branch}{number}", *([f"{branch}{number - 1}"] if number > 1 else []))
    for branch in "abc"
    for number in (1, 2, 3)
]


@pytest.mark.parametrize("on_failure", ["stop", "continue", "compensate"])
@pytest.mark.parametrize("seed", range(10))
def test_C112_a_failure_early_in_a_branch_ends_the_run_by_its_rule(on_failure: OnFailure, seed: int) -> None:
    """Three branches of three steps; the first of one fails for good. Who waits is told, once."""
    run = World(defined(*BRANCHES, on_failure=on_failure), ends(a1="failed"), seed=seed)
    ended = run.finish()
    assert ended.state == ("compensated" if on_failure == "compensate" else "failed")
    assert ended.cause == "a1"
    assert {step for step, _, _ in run.ran}.isdisjoint({"a2", "a3"})
    assert [each.state for each in run.finished] == [ended.state]
    if on_failure == "continue":
        assert {"b3", "c3"} <= {step for step, _, _ in run.ran}
        assert run.steps["a3"].skipped == "upstream"


def test_C118_what_completed_is_reused_and_everything_has_a_key_that_stays() -> None:
    """The store is lost at every point of a run of ten steps in three branches."""
    steps = [task("s0"), *(task(each.name, *(each.after or ("s0",))) for each in BRANCHES)]
    for moment in range(50):
        run = World(defined(*steps), ends(), seed=moment, losses=0.1)
        for _ in range(moment):
            run.step()
        run.lose_jobs()
        assert run.finish().state == "completed"
        assert set(run.recorded.values()) == {1}
        last: dict[str, int] = {}
        for step, _, attempt in run.ran:
            assert attempt > last.get(step, 0)
            last[step] = attempt
    assert step_key("r1", "a1") == "r1/a1"
    assert step_key("r1", "a1", 3) == "r1/a1/3"


def test_a_job_that_is_lost_over_and_over_has_failed() -> None:
    run = World(defined(task("a")), ends(a="lost"))
    assert run.finish().state == "failed"
    assert run.steps["a"].error == f"its job was lost {LOSSES_MAX + 1} times"
    assert [attempt for _, _, attempt in run.ran] == [1, 2, 3, 4]
    run = World(defined(task("a")), ends(a=lambda attempt: "lost" if attempt < 3 else 7))
    assert run.finish().state == "completed"
    assert run.steps["a"].output == 7


def test_a_job_that_somebody_cancelled_has_failed() -> None:
    run = World(defined(task("a")), ends(a="cancelled"))
    assert run.finish().state == "failed"
    assert run.steps["a"].error == "its job was cancelled"


def test_a_branch_that_is_not_taken_is_skipped_with_all_that_takes_its_values() -> None:
    """What only comes after it runs; `either` takes what is there; what is not there is null in the result."""
    when = ["is", ">", ["ref", "a", "output", ["rows"]], ["value", 10]]
    chosen = ["either", [["ref", "b", "output", []], ["value", "none"]]]
    definition = defined(
        task("a"),
        task("b", when=when),
        task("takes", args=(["ref", "b", "output", []],)),
        task("follows", "b"),
        task("joins", args=(chosen,)),
        result=["map", {"b": ["ref", "b", "output", []], "a": ["ref", "a", "output", ["rows"]]}],
    )
    run = World(definition, ends(a={"rows": 3}))
    assert run.finish().state == "completed"
    assert run.states() == {
        "a": "completed",
        "b": "skipped",
        "takes": "skipped",
        "follows": "completed",
        "joins": "completed",
    }
    assert (run.steps["b"].skipped, run.steps["takes"].skipped) == ("condition", "no_value")

    def lookup(step: str, part: str) -> Json:
        return Draft(definition, run.snapshot(), run.now_ms).lookup(step, part)

    assert arguments(definition.by_name["joins"], lookup) == (["none"], {})
    assert result(definition, lookup) == {"b": None, "a": 3}


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"lines": 3}, "a['rows'] is not there: a gave a dictionary with the keys lines."),
        ("text", "a['rows'] is not there: a gave a value of the type str."),
        ({"rows": "many"}, "a['rows'] > 10 cannot be told: it compares str and int."),
    ],
)
def test_a_value_that_is_not_there_fails_the_step_that_takes_it(output: Json, said: str) -> None:
    when = ["is", ">", ["ref", "a", "output", ["rows"]], ["value", 10]]
    run = World(defined(task("a"), task("b", when=when)), ends(a=output))
    assert run.finish().state == "failed"
    assert (run.run.cause, run.steps["b"].error) == ("b", said)


def test_a_map_over_what_is_no_list_has_failed() -> None:
    taken = ["ref", "a", "output", []]
    mapped = StepDefinition(name="m", kind="map", target="shop.tasks.m", items=taken)
    run = World(defined(task("a"), mapped), ends(a="text"))
    assert run.finish().state == "failed"
    assert run.steps["m"].error == "items is of the type str: a map runs over a list."
    assert items(mapped, lambda step, part: [1]) == [1]


# -- time and events -------------------------------------------------------------------------------------------------


def test_a_sleep_holds_nothing_and_ends_when_it_is_due() -> None:
    nap = StepDefinition(name="nap", kind="sleep", seconds=["ref", "a", "output", []])
    run = World(defined(task("a"), nap, task("b", "nap")), ends(a=90))
    while run.step():
        pass
    assert (run.states()["nap"], run.pending()) == ("running", [])
    due_ms = run.steps["nap"].due_ms
    assert due_ms is not None
    run.now_ms = due_ms - 1
    run.tick()
    assert run.states()["nap"] == "running"
    run.now_ms = due_ms
    run.tick()
    assert run.states()["nap"] == "completed"
    assert run.finish().state == "completed"
    run = World(defined(task("a"), nap), ends(a="soon"))
    assert run.finish().state == "failed"
    assert run.steps["nap"].error == "it was to sleep for 'soon': it must be seconds from 0 to ten years."


def test_a_timer_that_comes_early_is_set_again_under_another_id_and_once() -> None:
    nap = StepDefinition(name="nap", kind="sleep", seconds=["value", 60])
    run = World(defined(nap), ends())
    early = Timer(reason="sleep:nap", requeues=0)
    decision = run.tick(early)
    assert decision.commands == (SetTimer(reason="sleep:nap", at_ms=61_000, requeues=1),)
    assert run.tick(early) == NOTHING
    watch = Timer(reason="watchdog", requeues=run.run.watches)
    decision = run.tick(watch)
    assert decision.commands == (SetTimer(reason="watchdog", at_ms=61_000 + WATCH_MS, requeues=watch.requeues + 1),)
    assert run.tick(watch) == NOTHING


def test_the_watchdog_finds_a_sleep_whose_timer_was_lost() -> None:
    nap = StepDefinition(name="nap", kind="sleep", seconds=["value", 3_600])
    run = World(defined(nap), ends())
    while run.step():
        pass
    run.lose_jobs()
    run.pass_time()
    assert run.now_ms == 1_000 + 3_600_000 + WATCH_MS
    assert run.finish().state == "completed"


def test_an_event_is_kept_for_the_step_that_will_wait_for_it_and_taken_once() -> None:
    first = StepDefinition(name="first", kind="event", target="go", after=("a",))
    second = StepDefinition(name="second", kind="event", target="go", after=("first",))
    run = World(defined(task("a"), first, second), ends())
    sent = Event(id="e1", name="go", payload={"by": "ada"})
    assert run.apply(send_event(run.snapshot(), sent))
    assert send_event(run.snapshot(), sent) == NOTHING
    while run.step():
        pass
    assert (run.steps["first"].output, run.states()["second"]) == ({"by": "ada"}, "running")
    assert run.apply(send_event(run.snapshot(), Event(id="e2", name="other")))
    assert run.apply(send_event(run.snapshot(), Event(id="e3", name="go", payload=2)))
    assert run.finish().state == "completed"
    assert run.steps["second"].output == 2
    with pytest.raises(RunRefused, match="Run r1 is completed: no step of it waits"):
        send_event(run.snapshot(), sent)


@pytest.mark.parametrize("may_fail", [False, True])
def test_an_event_that_does_not_come_in_time(may_fail: bool) -> None:
    wait = StepDefinition(name="wait", kind="event", target="go", timeout_ms=5_000, may_fail=may_fail)
    run = World(defined(wait, task("b", "wait")), ends())
    assert run.finish().state == ("completed" if may_fail else "failed")
    assert run.steps["wait"].error == "no event 'go' came within 5 s"
    assert run.states()["b"] == ("completed" if may_fail else "waiting")


def test_a_failure_ends_waiting_at_once_and_takes_back_what_has_not_begun() -> None:
    """What has begun may end, and what it returns is kept for a resumed run."""
    wait = StepDefinition(name="wait", kind="event", target="go")
    run = World(defined(task("a"), task("b"), wait), ends(a="failed", b=5))
    while run.outbox:
        run.carry_out(run.outbox.pop(0))
    a, b = run.pending()
    run.work(a)
    run.wakes.clear()
    decision = run.tick()
    assert decision.commands == (Withdraw(step="b", attempt=1),)
    assert (run.states(), run.run.state) == ({"a": "failed", "b": "running", "wait": "cancelled"}, "running")
    run.outbox.clear()  # it had begun
    run.work(b)
    assert run.finish().state == "failed"
    assert (run.steps["b"].output, run.states()["b"]) == (5, "completed")


# -- code and versions -----------------------------------------------------------------------------------------------


def test_a_step_whose_code_is_gone_is_not_handed_over_and_the_run_says_so() -> None:
    run = World(defined(task("a"), task("b", "a")), ends())
    run.gone = {"shop.tasks.b"}
    while run.step():
        pass
    assert run.states() == {"a": "completed", "b": "waiting"}
    assert "Waiting for code: b (shop.tasks.b)." in run.run.note
    assert run.run.definition in run.run.note
    run.pass_time()
    while run.step():
        pass
    assert run.run.state == "running"
    run.gone = set()
    assert run.finish().state == "completed"
    assert run.run.note == ""


def test_a_run_is_advanced_by_the_version_it_began_with_alone() -> None:
    run = World(defined(task("a")), ends())
    other = defined(task("a"), task("b"))
    with pytest.raises(OtherVersion, match=f"Run r1 began with version {run.run.definition} .* {other.version}"):
        tick(other, run.snapshot(), run.now_ms)


def test_a_condition_on_what_is_too_large_to_look_at_fails_its_step_and_arguments_may_be() -> None:
    part = ["ref", "a", "output", ["rows"]]
    definition = defined(task("a"), task("b", args=(part,)), task("c", when=["is", ">", part, ["value", 1]]))
    assert definition.looked_at() == {"a"}
    run = World(definition, ends(a=WITHHELD), seed=3)
    assert run.finish().state == "failed"
    assert run.states()["b"] in ("completed", "cancelled")
    assert run.steps["c"].error.startswith("A condition looks at a value that is too large for one")


def test_first_steps_are_fresh_work_and_later_ones_belong_to_a_run_that_has_begun() -> None:
    run = World(defined(task("a"), task("b", "a")), ends(b="failed"))
    first = [each for each in run.outbox if isinstance(each, Enqueue)]
    assert [(each.step, each.tier) for each in first] == [("a", "start")]
    run.finish()
    again = resume(run.definition, run.snapshot(), run.now_ms)
    assert [(each.step, each.tier, each.attempt) for each in again.commands if isinstance(each, Enqueue)] == [
        ("b", "continue", 2)
    ]


# -- what people do --------------------------------------------------------------------------------------------------


def test_one_step_is_retried_with_what_it_had_cut_off() -> None:
    definition = defined(task("a"), task("b", "a"), task("c"), task("d", "c"), on_failure="continue")
    run = World(definition, ends(a=lambda attempt: "failed" if attempt == 1 else 1, c="failed"))
    assert run.finish().state == "failed"
    assert run.states() == {"a": "failed", "b": "skipped", "c": "failed", "d": "skipped"}
    assert run.apply(retry_step(definition, run.snapshot(), "a", run.now_ms))
    run.wake()
    assert run.finish().state == "failed"
    assert run.states() == {"a": "completed", "b": "completed", "c": "failed", "d": "skipped"}
    assert (run.run.cause, [each.round for each in run.finished]) == ("c", [1, 2])
    for step, said in [
        ("a", "Step a of run r1 is completed: only one that failed"),
        ("d", "Step d of run r1 is skipped"),
        ("x", "Flow f has no step 'x'; its steps: a, b, c, d"),
    ]:
        with pytest.raises(RunRefused, match=said):
            retry_step(definition, run.snapshot(), step, run.now_ms)


def test_the_first_failure_decides_the_run() -> None:
    run = World(defined(task("a"), task("b"), on_failure="continue"), ends(a="failed", b="failed"))
    while run.outbox:
        run.carry_out(run.outbox.pop(0))
    for job in reversed(run.pending()):
        run.work(job)
        run.tick()
    assert (run.run.state, run.run.cause) == ("failed", "b")


def test_a_step_is_not_retried_where_others_would_stop_the_run_again() -> None:
    run = World(defined(task("a"), task("b")), ends(a="failed", b="failed"))
    for job in [*map(run.carry_out, run.outbox), *run.pending()]:
        if job is not None:
            run.work(job)
    assert run.finish().state == "failed"
    with pytest.raises(RunRefused, match="Run r1 stops at a failure, and b failed or was cut off, too: resume it"):
        retry_step(run.definition, run.snapshot(), "a", run.now_ms)


def test_what_cannot_be_resumed_is_refused() -> None:
    run = World(defined(task("a")), ends())
    with pytest.raises(RunRefused, match="Run r1 is running: only a run that failed or was cancelled"):
        resume(run.definition, run.snapshot(), run.now_ms)
    decision = cancel(run.definition, run.snapshot(), run.now_ms, "by ada")
    assert decision.commands == (Withdraw(step="a", attempt=1, all=True), Finish(state="cancelled", round=1))
    assert run.apply(decision)
    assert (run.run.state, run.run.note, run.states()) == ("cancelled", "by ada", {"a": "cancelled"})
    with pytest.raises(RunRefused, match="was cancelled, and with it more than this step: resume it"):
        retry_step(run.definition, run.snapshot(), "a", run.now_ms)
    assert run.apply(resume(run.definition, run.snapshot(), run.now_ms))
    assert run.finish().state == "completed"


def test_a_step_that_completed_after_its_run_was_cancelled_is_not_run_again() -> None:
    run = World(defined(task("a"), task("b", "a")), ends(a=7))
    while run.outbox:
        run.carry_out(run.outbox.pop(0))
    (job,) = run.pending()
    assert run.apply(cancel(run.definition, run.snapshot(), run.now_ms))
    run.outbox.clear()  # its body did not hear of it
    run.work(job)
    run.tick()
    assert run.states()["a"] == "cancelled"
    assert run.apply(resume(run.definition, run.snapshot(), run.now_ms))
    assert run.finish().state == "completed"
    assert run.ran == [("a", None, 1), ("b", None, 1)]
    assert run.steps["a"].output == 7


def test_an_undoing_that_fails_ends_the_run_and_is_gone_on_with() -> None:
    definition = defined(
        task("a", undo="shop.tasks.x"),
        task("b", "a", undo="shop.tasks.x"),
        task("c", "b", undo="shop.tasks.x"),
        task("d", "c"),
        on_failure="compensate",
    )
    run = World(definition, ends(d="failed", undo_b=lambda attempt: "failed" if attempt == 1 else 1))
    assert (run.finish().state, run.run.cause) == ("failed", "undo:b")
    assert [step for step, _, _ in run.ran][4:] == ["undo:c", "undo:b"]
    with pytest.raises(RunRefused, match="has been undone, or in part"):
        retry_step(definition, run.snapshot(), "d", run.now_ms)
    assert run.apply(resume(definition, run.snapshot(), run.now_ms))
    assert run.finish().state == "compensated"
    assert [step for step, _, _ in run.ran][6:] == ["undo:b", "undo:a"]
    with pytest.raises(RunRefused, match="Run r1 is compensated: only a run that failed"):
        resume(definition, run.snapshot(), run.now_ms)


def test_a_report_of_an_earlier_try_is_none() -> None:
    run = World(defined(task("a")), ends())
    stale = Report(attempt=0, ending="failed", error="old")
    run.steps["a"] = replace(run.steps["a"], report=stale)
    assert run.tick() == NOTHING
