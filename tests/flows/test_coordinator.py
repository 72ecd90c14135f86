"""Random runs: whatever the order, whatever is lost or comes twice, a run ends once and always the same."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from flows.coordinator import tick
from flows.definition import UNDO
from flows.operations import cancel, resume
from flows.snapshot import NOTHING, Ending
from flows.values import Json
from tests.flows.dags import Plan, plans
from tests.flows.world import World

seeds = st.integers(0, 2**32)
chances = st.sampled_from([0.0, 0.1, 0.4])


def world(plan: Plan, seed: int, losses: float) -> World:
    return World(plan.definition, plan.body, plan.size, seed, losses, sends=True)


@given(plan=plans(on_failure="continue"), seed=seeds, losses=chances)
@settings(deadline=None)
def test_every_order_and_every_loss_of_wake_ups_ends_in_the_same_states(plan: Plan, seed: int, losses: float) -> None:
    run = world(plan, seed, losses)
    assert run.finish().state == plan.run_state()
    assert run.states() == plan.expected()
    assert len(run.finished) == 1


@given(plan=plans(failing=False), seed=seeds, losses=chances)
@settings(deadline=None)
def test_without_failures_the_rule_for_them_makes_no_difference(plan: Plan, seed: int, losses: float) -> None:
    run = world(plan, seed, losses)
    assert run.finish().state == "completed"
    assert run.states() == plan.expected()


@given(plan=plans(on_failure="stop"), seed=seeds, losses=chances)
@settings(deadline=None)
def test_a_run_that_stops_ends_nothing_otherwise_than_it_would_have(plan: Plan, seed: int, losses: float) -> None:
    """It may leave out what it would have done. What it did, it did the same; and it has stopped for a reason."""
    run = world(plan, seed, losses)
    assert run.finish().state == plan.run_state()
    expected = plan.expected()
    for name, state in run.states().items():
        assert state in (expected[name], "waiting", "cancelled")
    if run.run.state == "failed":
        assert expected[run.run.cause] == "failed"


@given(plan=plans(on_failure="compensate"), seed=seeds, losses=chances)
@settings(deadline=None)
def test_whatever_was_done_is_undone_against_its_order(plan: Plan, seed: int, losses: float) -> None:
    run = world(plan, seed, losses)
    state = run.finish().state
    assert state == ("compensated" if plan.run_state() == "failed" else "completed")
    done = [row for row in run.steps.values() if row.completed or row.state == "completed"]
    kept = {row.step for row in done if not row.step.startswith(UNDO) and plan.definition.by_name[row.step].undo}
    undone = [step.removeprefix(UNDO) for step, _, _ in run.ran if step.startswith(UNDO)]
    if state == "completed":
        assert undone == []
        return
    for name in kept:
        is_map = plan.definition.by_name[name].kind == "map"
        assert undone.count(name) == (run.steps[name].completed if is_map else 1)
    order = list(dict.fromkeys(undone))
    for later, earlier in pairwise(order):
        places = run.steps[later].place, run.steps[earlier].place
        assert places[0] is None or (places[1] is not None and places[0] > places[1])


@given(plan=plans(failing=False), seed=seeds, moments=st.lists(st.integers(0, 60), max_size=3))
@settings(deadline=None)
def test_a_lost_store_repeats_only_what_was_not_recorded(plan: Plan, seed: int, moments: list[int]) -> None:
    """The world refuses a second run of what completed. What was under way comes back with a higher attempt."""
    run = world(plan, seed, 0.1)
    for number in moments:
        for _ in range(number):
            run.step()
        run.lose_jobs()
    assert run.finish().state == "completed"
    assert run.states() == plan.expected()
    tries = [key for key in run.ran if key[1] is None]
    assert len(tries) == len(set(tries))


@given(plan=plans(), seed=seeds, after=st.integers(0, 40))
@settings(deadline=None)
def test_nothing_starts_after_a_cancel_and_late_ends_advance_nothing(plan: Plan, seed: int, after: int) -> None:
    run = world(plan, seed, 0.1)
    for _ in range(after):
        run.step()
    ended_before = run.run.state not in ("running", "compensating")
    decision = cancel(plan.definition, run.snapshot(), run.now_ms, "asked to")
    assert bool(decision) != ended_before
    assert run.apply(decision)
    assert cancel(plan.definition, run.snapshot(), run.now_ms) == NOTHING
    state, states = run.run.state, run.states()
    handed_over = dict(run.handed_over)
    while run.step():
        pass
    assert (run.run.state, run.states(), dict(run.handed_over)) == (state, states, handed_over)
    assert "running" not in states.values()
    assert len(run.finished) == 1


@given(plan=plans(on_failure="stop") | plans(on_failure="continue"), seed=seeds, losses=chances)
@settings(deadline=None)
def test_a_run_that_is_resumed_until_nothing_fails_any_more_has_done_everything_once(
    plan: Plan, seed: int, losses: float
) -> None:
    """Bodies fail in the first round and not later, as though they had been mended. What completed never runs again."""
    mended = False

    def body(step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        ending, output = plan.body(step, index, attempt)
        return ("completed" if mended else ending), output

    run = World(plan.definition, body, plan.size, seed, losses, sends=True)
    while run.finish().state == "failed":
        mended = True
        assert run.apply(resume(plan.definition, run.snapshot(), run.now_ms))
        run.wake()
    assert run.run.state == "completed"
    # A failure that the run got over before it was mended stays as it is.
    may_fail = {step.name for step in plan.definition.steps if step.may_fail}
    assert {end for name, end in run.states().items() if name not in may_fail} <= {"completed", "skipped"}
    assert "upstream" not in {row.skipped for row in run.steps.values()}
    assert len(run.finished) == run.run.round


@given(plan=plans(), seed=seeds, steps=st.integers(0, 60), late_ms=st.integers(0, 3_600_000))
@settings(deadline=None, max_examples=60)
def test_a_wake_up_without_news_is_a_no_op(plan: Plan, seed: int, steps: int, late_ms: int) -> None:
    """Not only at the same moment: at any moment before something is due."""
    run = world(plan, seed, 0.0)
    for _ in range(steps):
        run.step()
    while run.tick():
        pass
    dues = [row.due_ms for row in run.steps.values() if row.state == "running" and row.due_ms is not None]
    later = min([run.run.watch_ms - 1, run.now_ms + late_ms, *(due - 1 for due in dues)])
    earlier = run.now_ms - random.Random(seed).randint(0, 5_000)  # another process's clock
    for now_ms in (later, earlier):
        assert tick(plan.definition, run.snapshot(), now_ms) == NOTHING
