"""Random flows through the real runtime, with real rows and a queue that loses, repeats, reorders and dies.

The same flows as `test_coordinator` sends through the model of the runtime, and the same ends: what a run comes to does
not hang on what happens to its processes, its jobs and its wake-ups.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flows import flow, handle, models, runtime, step
from flows.definition import UNDO, Definition
from flows.errors import RunBusy, RunRefused
from flows.snapshot import ENDED_STEPS, Ending
from flows.values import Json
from queueapp import task
from tests.flows import lossy_queue
from tests.flows.dags import Plan, plans
from tests.flows.lossy_queue import Killed, Queue

pytestmark = pytest.mark.django_db
SETTINGS = settings(
    deadline=None,
    max_examples=10,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # what has failed is told as it is: each try takes a while
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
THOROUGH = settings(parent=SETTINGS, max_examples=300)
seeds = st.integers(0, 2**32)
chances = st.sampled_from([0.0, 0.05, 0.2])


@task
def anything() -> None:
    """Never called: the queue is told how bodies end."""


@flow
def tiny() -> object:
    return step(anything)


def declared(plan: Plan) -> Definition:
    """The flow of the plan, with tasks and sub-flows that are there."""
    steps = [
        replace(
            each,
            target={"task": anything.module_path, "map": anything.module_path, "flow": "tiny"}.get(
                each.kind, each.target
            ),
            undo=each.undo and anything.module_path,
        )
        for each in plan.definition.steps
    ]
    return replace(plan.definition, steps=tuple(steps))


class Trial:
    """One run of a plan."""

    def __init__(self, plan: Plan, seed: int, losses: float) -> None:
        self.plan = plan
        self.definition = declared(plan)
        self.queue = Queue(self._body, seed, losses)
        self.unsent = [each.target for each in plan.definition.steps if each.kind == "event"]

    def start(self) -> str:
        before = set(models.Run.objects.values_list("id", flat=True))
        try:
            run_id = runtime.start(self.definition, {}, tenant="acme").id
            self.queue.work_begun()
            return run_id
        except Killed:
            self.queue.dead = False
        [run_id] = models.Run.objects.filter(parent_run=None).exclude(pk__in=before).values_list("id", flat=True)
        return run_id

    def finish(self, run_id: str, lost_at: list[int] | None = None) -> models.Run:
        for number in range(60):
            self.queue.step()
            if self.queue.chance.random() < 0.5:
                self._send(run_id)
            if number in (lost_at or []):
                self.queue.lose_all()
        while self._send(run_id):
            pass
        run = self.queue.finish(run_id)
        assert set(self.queue.recorded.values()) <= {1}, "one outcome, once"
        assert set(self.queue.decided.values()) == {1}, "each try begins once, each round ends once"
        return run

    def states(self, run_id: str) -> dict[str, str]:
        rows = dict(models.StepRun.objects.filter(run_id=run_id).values_list("step", "state"))
        return {each.name: rows.get(each.name, "waiting") for each in self.definition.steps}

    def _send(self, run_id: str) -> bool:
        """One of the events that steps may wait for. False: there is none left, or the run has ended before."""
        try:
            if self.unsent:
                handle.send_event(run_id, self.unsent[-1])
        except RunRefused:
            return False
        except Killed:  # after it was written
            self.queue.dead = False
        return bool(self.unsent and self.unsent.pop())

    def _body(self, run: models.Run, name: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        if run.parent_run is not None:
            return self.plan.body(run.parent_step, None, attempt)
        self._look_at_fan_in(run, name, index)
        return self.plan.body(name, index, attempt)

    def _look_at_fan_in(self, run: models.Run, name: str, index: int | None) -> None:
        """Nothing begins before what is before it has ended, nor again once it has."""
        assert not self.queue.recorded[run.id, name, -1 if index is None else index], f"{name} had completed"
        before = self.definition.before.get(name, ())
        rows = {row.step: row for row in models.StepRun.objects.filter(run_id=run.id, step__in=before)}
        for first in before:
            assert rows[first].state in ENDED_STEPS, f"{name} began before {first} had ended"
            if rows[first].total is not None and rows[first].state == "completed":
                assert rows[first].completed + rows[first].failed == rows[first].total


def same_states(plan: Plan, seed: int, losses: float) -> None:
    trial = Trial(plan, seed, losses)
    with lossy_queue.around(trial.queue):
        run_id = trial.start()
        assert trial.finish(run_id).state == plan.run_state()
    assert trial.states(run_id) == plan.expected()


@given(plan=plans(on_failure="continue"), seed=seeds, losses=chances)
@SETTINGS
def test_every_order_every_loss_and_every_death_ends_in_the_same_states(plan: Plan, seed: int, losses: float) -> None:
    same_states(plan, seed, losses)


@pytest.mark.long
@pytest.mark.timeout(900)
@given(plan=plans(on_failure="continue"), seed=seeds, losses=chances)
@THOROUGH
def test_every_order_every_loss_and_every_death_at_length(plan: Plan, seed: int, losses: float) -> None:
    same_states(plan, seed, losses)


@given(plan=plans(on_failure="stop") | plans(on_failure="compensate"), seed=seeds, losses=chances)
@SETTINGS
def test_a_run_that_stops_or_undoes_ends_as_it_must(plan: Plan, seed: int, losses: float) -> None:
    trial = Trial(plan, seed, losses)
    with lossy_queue.around(trial.queue):
        run_id = trial.start()
        state = trial.finish(run_id).state
    undone = [name.removeprefix(UNDO) for _, name, _, _ in trial.queue.ran if name.startswith(UNDO)]
    expected = plan.expected()
    if plan.run_state() == "completed":
        assert (state, trial.states(run_id), undone) == ("completed", expected, [])
        return
    assert state == ("compensated" if plan.definition.on_failure == "compensate" else "failed")
    for name, ended in trial.states(run_id).items():
        assert ended in (expected[name], "waiting", "cancelled")
    if plan.definition.on_failure == "compensate":
        rows = models.StepRun.objects.filter(run_id=run_id).exclude(step__startswith=UNDO)
        for row in rows:
            done = row.completed if row.total is not None or row.completed else int(row.state == "completed")
            if plan.definition.by_name[row.step].undo:
                assert undone.count(row.step) >= done
            recorded = [key for key in trial.queue.recorded if key[:2] == (run_id, UNDO + row.step)]
            assert len(recorded) == (done if plan.definition.by_name[row.step].undo else 0)


@given(plan=plans(failing=False), seed=seeds, moments=st.lists(st.integers(0, 59), max_size=3))
@SETTINGS
def test_a_lost_store_repeats_only_what_was_not_recorded(plan: Plan, seed: int, moments: list[int]) -> None:
    trial = Trial(plan, seed, 0.05)
    with lossy_queue.around(trial.queue):
        run_id = trial.start()
        assert trial.finish(run_id, moments).state == "completed"
    assert trial.states(run_id) == plan.expected()


@given(plan=plans(), seed=seeds, after=st.integers(0, 40))
@SETTINGS
def test_after_a_cancel_nothing_begins_and_sub_runs_end_with_it(plan: Plan, seed: int, after: int) -> None:
    trial = Trial(plan, seed, 0.05)
    with lossy_queue.around(trial.queue):
        run_id = trial.start()
        for _ in range(after):
            trial.queue.step()
        ended = models.Run.objects.get(pk=run_id).has_ended
        trial.queue.losses = 0.0
        handled = handle.get_run(run_id)
        assert handled.cancel("asked to") != ended
        state, states, ran = handled.state, trial.states(run_id), len(trial.queue.ran)
        trial.queue.finish(run_id)
        assert (handled.refresh().state, trial.states(run_id)) == (state, states)
        if not ended:
            assert not [each for each in trial.queue.ran[ran:] if each[0] == run_id], "no body after the answer"
            subs = models.Run.objects.filter(parent_run=run_id)
            assert not subs.filter(state="running").exists()


@given(plan=plans(on_failure="continue"), seed=seeds, losses=chances)
@SETTINGS
def test_resumed_until_nothing_fails_everything_was_recorded_once(plan: Plan, seed: int, losses: float) -> None:
    trial = Trial(plan, seed, losses)
    with lossy_queue.around(trial.queue):
        run_id = trial.start()
        run = trial.finish(run_id)
        trial.plan = replace(plan, failing=frozenset())
        while run.state == "failed":
            try:
                handle.get_run(run_id).resume()
            except (Killed, RunBusy):
                trial.queue.dead = False
            run = trial.finish(run_id)
    assert run.state == "completed"
    assert set(trial.queue.recorded.values()) <= {1}
    assert set(trial.queue.decided.values()) == {1}
    may_fail = {each.name for each in plan.definition.steps if each.may_fail}
    ends = {end for name, end in trial.states(run_id).items() if name not in may_fail}
    assert ends <= {"completed", "skipped"}
