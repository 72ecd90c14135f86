"""Maps: a million items stay small in every tick, parallelism is bounded, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.coordinator import tick
from flows.definition import Definition, OnFailure, StepDefinition
from flows.fanout import LOSSES_MAX
from flows.operations import cancel, resume, start
from flows.snapshot import (
    ITEMS_PER_PAGE,
    ITEMS_PER_TICK,
    NOTHING,
    Ending,
    IssueItems,
    ItemReport,
    ListItems,
    Recount,
    Report,
    Snapshot,
    StepRun,
    Wake,
)
from flows.values import Json
from tests.flows.world import Body, World

MILLION = 1_000_000


def mapped(
    max_parallel: int | None = None, on_failure: OnFailure = "stop", may_fail: bool = False, undo: str = ""
) -> Definition:
    chunks = StepDefinition(
        name="chunks",
        kind="map",
        target="shop.tasks.import_chunk",
        items=["value", []],
        max_parallel=max_parallel,
        may_fail=may_fail,
        undo=undo,
    )
    counts = StepDefinition(name="report", kind="task", target="t", args=(["ref", "chunks", "counts", []],))
    return Definition(
        name="f",
        parameters=(),
        defaults={},
        steps=(chunks, counts),
        result=["value", None],
        on_failure=on_failure,
    )


def completing(step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
    return "completed", None


class Counting:
    """A runtime that keeps no row for an item: it lists by numbers and completes in order."""

    def __init__(self, definition: Definition, total: int) -> None:
        self.definition, self.total = definition, total
        self.run, decision = start(definition, run_id="r1", input={}, tenant=None, now_ms=0)
        self.steps: dict[str, StepRun] = {}
        self.issued = self.counted = 0
        self.started: list[str] = []
        self.ticks = self.most_open = self.most_written = self.most_commands = 0
        self.write(decision)

    def write(self, decision: object) -> None:
        changes = getattr(decision, "changes", None)
        assert changes is not None
        self.run = changes.run
        self.steps |= {row.step: row for row in changes.steps}
        for counted in changes.counted:
            assert counted.ended == tuple(range(self.counted, self.counted + len(counted.ended)))
            self.counted += len(counted.ended)
        commands = getattr(decision, "commands", ())
        self.most_commands = max(self.most_commands, len(commands))
        if self.ticks % 97 == 0:
            self.most_written = max(self.most_written, len(repr(decision)))
        for command in commands:
            if isinstance(command, ListItems):
                row = self.steps["chunks"]
                listed = min(command.start + ITEMS_PER_PAGE, self.total)
                total = listed if listed == self.total else None
                self.steps["chunks"] = replace(row, listed=listed, total=total)
            elif isinstance(command, IssueItems):
                issued = self.steps["chunks"].issued
                assert 0 < issued - self.issued <= ITEMS_PER_PAGE
                self.issued = issued
            elif hasattr(command, "tier"):
                self.started.append(command.step)

    def turns(self) -> Iterator[Snapshot]:
        while not self.started:
            open_items = range(self.counted, min(self.issued, self.counted + ITEMS_PER_TICK))
            self.most_open = max(self.most_open, self.issued - self.counted)
            reports = tuple(ItemReport(index=index, attempt=1, ending="completed") for index in open_items)
            more = self.issued > self.counted + len(reports)
            yield Snapshot(run=self.run, steps=dict(self.steps), items={"chunks": reports}, more=more)
            self.ticks += 1


@pytest.mark.parametrize(("total", "max_parallel"), [(MILLION, None), (20_001, 499)])
def test_a_million_items_stay_small_in_every_tick(total: int, max_parallel: int | None) -> None:
    """No tick is shown, writes or orders more than one page, however many items there are; fan-in comes once."""
    definition = mapped(max_parallel)
    run = Counting(definition, total)
    for snapshot in run.turns():
        decision = tick(definition, snapshot, 0)
        assert snapshot.more <= (Wake() in decision.commands), "what is left to count is counted at once"
        run.write(decision)
    row = run.steps["chunks"]
    assert (row.state, row.total, row.completed, row.failed) == ("completed", total, total, 0)
    assert run.started == ["report"]
    assert run.most_open <= (max_parallel or 1_000)
    assert run.ticks <= 2 * total // ITEMS_PER_TICK + 10
    assert run.most_commands <= 4
    assert run.most_written < 12 * ITEMS_PER_TICK + 5_000
    assert len(repr(row)) < 1_000


def test_a_page_at_a_time_is_handed_over_and_the_next_one_at_once() -> None:
    definition = mapped(2_500)
    run, _ = start(definition, run_id="r1", input={}, tenant=None, now_ms=0)
    row = StepRun(step="chunks", state="running", attempt=1, recounted=1, listed=2_400, total=2_400)
    issued = []
    for _ in range(3):
        decision = tick(definition, Snapshot(run=run, steps={"chunks": row}), 0)
        assert decision.changes is not None
        (row,) = decision.changes.steps
        issued.append((row.issued, Wake() in decision.commands))
    assert issued == [(1_000, True), (2_000, True), (2_400, False)]


def test_a_tick_refuses_more_items_than_it_promises_to_look_at() -> None:
    definition = mapped()
    run, _ = start(definition, run_id="r1", input={}, tenant=None, now_ms=0)
    reports = tuple(ItemReport(index=index, attempt=1, ending="completed") for index in range(ITEMS_PER_TICK + 1))
    with pytest.raises(ValueError, match="A tick looks at 500 ended items at most"):
        tick(definition, Snapshot(run=run, items={"chunks": reports}), 0)


@given(
    size=st.integers(0, 12),
    max_parallel=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 2**32),
    losses=st.sampled_from([0.0, 0.3]),
    lost=st.sets(st.integers(0, 11)),
)
@settings(deadline=None)
def test_no_more_items_than_allowed_are_with_the_queue(
    size: int, max_parallel: int | None, seed: int, losses: float, lost: set[int]
) -> None:
    def body(step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        return ("lost" if index in lost and attempt == 1 else "completed"), None

    run = World(mapped(max_parallel), body, lambda step: size, seed, losses)
    for _ in range(1_000):
        if run.run.state == "completed":
            break
        if not run.step():
            run.pass_time()
        with_queue = sum(item.state == "issued" and item.ending is None for item in run.items.get("chunks", ()))
        assert with_queue <= (max_parallel or size)
    assert run.run.state == "completed"
    assert run.recorded["report", None] == 1
    assert sum(run.recorded["chunks", index] for index in range(size)) == size


def failing(*indices: int) -> Body:
    def body(step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        return ("failed" if step == "chunks" and index in indices and attempt == 1 else "completed"), index

    return body


@pytest.mark.parametrize("seed", range(5))
def test_the_failure_of_an_item(seed: int) -> None:
    """It stops further ones, or lets them go on, by the rule of the flow; or it is none of the run's."""
    body = failing(2)
    run = World(mapped(1), body, lambda step: 6, seed)
    assert (run.finish().state, run.run.cause) == ("failed", "chunks")
    assert [index for _, index, _ in run.ran] == [0, 1, 2]
    assert run.steps["chunks"].error == "item 2: it failed"

    run = World(mapped(1, "continue"), body, lambda step: 6, seed)
    assert run.finish().state == "failed"
    assert [index for _, index, _ in run.ran] == [0, 1, 2, 3, 4, 5]
    assert run.states() == {"chunks": "failed", "report": "skipped"}

    run = World(mapped(1, may_fail=True), body, lambda step: 6, seed)
    assert run.finish().state == "completed"
    row = run.steps["chunks"]
    assert (row.completed, row.failed, run.states()["report"]) == (5, 1, "completed")


@pytest.mark.parametrize("seed", range(5))
def test_a_resumed_map_runs_what_has_not_completed_and_nothing_else(seed: int) -> None:
    run = World(mapped(2, "continue"), failing(1, 4), lambda step: 6, seed, 0.2)
    assert run.finish().state == "failed"
    assert run.apply(resume(run.definition, run.snapshot(), run.now_ms))
    run.wake()
    assert run.finish().state == "completed"
    assert sorted((index, attempt) for step, index, attempt in run.ran if attempt == 2) == [(1, 2), (4, 2)]
    assert (run.steps["chunks"].completed, run.steps["chunks"].failed) == (6, 0)


@pytest.mark.parametrize("seed", range(20))
def test_C121_a_cancel_in_the_middle_of_a_fan_out_starts_nothing_more(seed: int) -> None:
    """And what was under way then is finished by a resumed run, whether its end was recorded meanwhile or not."""
    run = World(mapped(3), completing, lambda step: 8, seed, 0.1)
    for _ in range(6 + seed):
        run.step()
    assert "running" in run.states().values()
    assert run.apply(cancel(run.definition, run.snapshot(), run.now_ms))
    issued = sum(item.state == "issued" for item in run.items.get("chunks", ()))
    while run.step():
        pass
    assert run.finished[-1].state == "cancelled"
    assert sum(item.state == "issued" for item in run.items.get("chunks", ())) == issued
    assert run.apply(resume(run.definition, run.snapshot(), run.now_ms))
    run.wake()
    assert run.finish().state == "completed"


def test_a_resumed_map_does_nothing_before_its_items_are_counted_anew() -> None:
    """Failures of the round before, of which no tick has heard, are none of this round."""
    run = World(mapped(2), failing(0, 1), lambda step: 5)
    while len(run.jobs) < 2:
        run.step()
    run.outbox.clear()
    assert run.apply(cancel(run.definition, run.snapshot(), run.now_ms))
    run.outbox.clear()
    for job in run.pending():
        run.work(job)
    assert run.apply(resume(run.definition, run.snapshot(), run.now_ms))
    assert Recount(step="chunks", attempt=2) in run.outbox
    assert run.tick() == NOTHING
    assert run.finish().state == "completed"


def test_a_resumed_map_is_not_judged_by_the_counts_of_the_round_before() -> None:
    """One of two items failed, and another step did: both are tried again, and nothing is taken back."""
    chunks, counts = mapped(2).steps
    other = StepDefinition(name="other", kind="task", target="t")
    definition = Definition(name="f", parameters=(), defaults={}, steps=(chunks, counts, other), result=["value", 0])

    def body(step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        return ("failed" if attempt == 1 and (step == "other" or index == 0) else "completed"), None

    run = World(definition, body, lambda step: 5)
    while len(run.jobs) < 3:
        if run.outbox:
            run.carry_out(run.outbox.pop(0))
        run.tick()
    for job in run.pending():
        run.work(job)
    assert run.finish().state == "failed"
    assert (run.steps["chunks"].completed, run.steps["chunks"].failed, run.states()["other"]) == (1, 1, "failed")
    assert run.apply(resume(definition, run.snapshot(), run.now_ms))
    assert run.tick() == NOTHING
    assert run.finish().state == "completed"


def test_what_a_map_has_done_is_undone_also_where_it_did_not_get_to_its_end() -> None:
    run = World(mapped(1, "compensate", undo="shop.tasks.x"), failing(3), lambda step: 6)
    assert run.finish().state == "compensated"
    assert [key[:2] for key in run.ran][4:] == [("undo:chunks", 0), ("undo:chunks", 1), ("undo:chunks", 2)]


def test_an_item_whose_job_is_lost_over_and_over_has_failed() -> None:
    def body(step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        return ("lost" if index == 1 else "completed"), None

    run = World(mapped(1), body, lambda step: 2)
    assert run.finish().state == "failed"
    assert run.steps["chunks"].error == f"item 1: its job was lost {LOSSES_MAX + 1} times"
    run = World(mapped(1), lambda step, index, attempt: ("cancelled", None), lambda step: 2)
    assert run.finish().state == "failed"
    assert run.steps["chunks"].error == "item 0: its job was cancelled"


def test_a_map_whose_items_may_fail_is_cut_off_by_the_failure_of_another_step() -> None:
    """It has not failed itself: the run was decided by the other one."""
    chunks, counts = mapped(1, may_fail=True).steps
    other = StepDefinition(name="other", kind="task", target="t")
    definition = Definition(name="f", parameters=(), defaults={}, steps=(chunks, other, counts), result=["value", None])

    def body(step: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        return ("failed" if step == "other" or index == 0 else "completed"), None

    run = World(definition, body, lambda step: 5)
    while not run.steps["chunks"].failed:
        job = next((job for job in run.pending() if job.step == "chunks"), None)
        if run.outbox:
            run.carry_out(run.outbox.pop(0))
        elif job is not None:
            run.work(job)
        run.tick()
    assert (run.finish().state, run.run.cause) == ("failed", "other")
    assert run.states() == {"chunks": "cancelled", "other": "failed", "report": "waiting"}


@pytest.mark.parametrize("with_queue", [0, 2])
def test_a_list_that_cannot_be_read_on_fails_the_map_once_nothing_of_it_is_with_the_queue(with_queue: int) -> None:
    run = World(mapped(2), completing, lambda step: 3)
    while len(run.jobs) < with_queue:
        run.step()
    said = Report(attempt=1, ending="failed", error="items is of the type str: a map runs over a list.")
    run.steps["chunks"] = replace(run.steps["chunks"], report=said)
    for job in run.pending()[:1]:
        run.work(job)
    run.tick()
    assert run.states()["chunks"] == ("running" if with_queue else "failed")
    assert run.finish().state == "failed"
    assert (run.steps["chunks"].error, len(run.ran)) == (said.error, with_queue)


def test_an_empty_list_is_done_at_once() -> None:
    run = World(mapped(), completing, lambda step: 0)
    assert run.finish().state == "completed"
    assert run.ran == [("report", None, 1)]
    assert run.tick() == NOTHING
