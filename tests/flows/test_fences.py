"""Which of two jobs of a run is the younger: the fences in a host's rows go by that (`queueapp.fencing`)."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

from flows import coordinator, operations
from flows.definition import Definition
from flows.inputs import job_key, job_ms
from flows.snapshot import Decision, Report, Snapshot, StepRun
from queueapp.store.ids import fixed_id, made_order
from tests.flows import host

NOW = 1_900_000_000_000


def order(step: StepRun, attempt: int | None = None) -> int:
    own = step.attempt if attempt is None else attempt
    return made_order(fixed_id(job_ms(step.started_ms or 0, own), job_key("run", step.step, own)))


def begun(definition: Definition) -> Snapshot:
    run, decision = operations.start(definition, run_id="run", input={"number": 1}, tenant="acme", now_ms=NOW)
    return after(Snapshot(run=run), decision)


def after(snapshot: Snapshot, decision: Decision) -> Snapshot:
    assert decision.changes is not None
    steps = {**snapshot.steps, **{row.step: row for row in decision.changes.steps}}
    return dataclasses.replace(snapshot, run=decision.changes.run or snapshot.run, steps=steps)


def completes(snapshot: Snapshot, step: str, attempt: int) -> Snapshot:
    report = Report(attempt=attempt, ending="completed", output=1)
    row = dataclasses.replace(snapshot.steps[step], report=report, attempt=attempt)
    return dataclasses.replace(snapshot, steps={**snapshot.steps, step: row})


def test_a_step_is_younger_than_those_that_ended_before_it_whatever_the_clocks_say() -> None:
    """The worker that goes on may be behind the one that began, and a step may take no time at all."""
    definition = host.chain.definition
    for late_ms in (0, -5_000):
        for attempt in (1, 4):
            seen = completes(begun(definition), "add", attempt)
            seen = after(seen, coordinator.tick(definition, seen, NOW + late_ms))
            assert seen.steps["second"].state == "running"
            assert order(seen.steps["second"]) > order(seen.steps["add"])


def test_a_step_that_starts_later_by_the_clock_has_that_moment() -> None:
    definition = host.chain.definition
    seen = completes(begun(definition), "add", 1)
    seen = after(seen, coordinator.tick(definition, seen, NOW + 90))
    assert seen.steps["second"].started_ms == NOW + 90


def test_a_later_try_is_younger_than_an_earlier_one() -> None:
    """Both have the moment at which the step was begun; what tells them apart would else be a digest."""
    row = StepRun(step="add", state="running", started_ms=NOW)
    assert all(one < other for one, other in pairwise(order(row, attempt) for attempt in range(1, 50)))
