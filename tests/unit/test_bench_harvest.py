"""What becomes of the records of a cell's jobs: outcomes, dead letters, and whether all is accounted for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queueapp.bench.experiments.sweep import table
from queueapp.bench.harness import Report
from queueapp.bench.live.harvest import Harvest, harvest
from queueapp.bench.live.laboratory import judge, outcome, row
from queueapp.bench.live.pacing import Sent
from queueapp.bench.results import columns
from queueapp.bench.workloads import Job
from queueapp.states import Outcome as Ended
from queueapp.states import State
from queueapp.store.views import ErrorRecord, JobRecord
from tests.cells import cell
from tests.cells import outcome as made

BEGIN_MS = 1_700_000_000_000
BEGIN_US = BEGIN_MS * 1000


def job(number: int = 1, **more: Any) -> Job:
    return Job(number=number, at_us=number * 10_000, tenant="acme", service_us=50_000, **more)


def record(**more: Any) -> JobRecord:
    return JobRecord(id="i" * 22, task="t", tenant="acme", lane="main", **more)


def completed(began_us: int, ended_us: int, **more: Any) -> JobRecord:
    result = json.dumps([BEGIN_US + began_us, BEGIN_US + ended_us]).encode()
    return record(state=State.ENDED, outcome=Ended.COMPLETED, result=result, **more)


def missed(kind: str, attempt: int, **detail: object) -> ErrorRecord:
    return ErrorRecord(kind=kind, attempt=attempt, worker="w", at_ms=BEGIN_MS + 90, detail=detail)


def reap(records: dict[int, JobRecord | None], stats: dict[str, int], *jobs: Job) -> Harvest:
    known = jobs or tuple(job(number) for number in records)
    sent = {
        number: Sent(
            number=number, id="x", planned_us=BEGIN_US + number * 10_000, sent_us=BEGIN_US + number * 10_000 + 300
        )
        for number in records
    }
    return harvest(known, sent, records, stats, begin_us=BEGIN_US)


def test_a_body_says_when_it_began_and_ended() -> None:
    own = job(priority=3, lane="mail", deadline_us=99_000)
    lease = {"first_leased_ms": BEGIN_MS + 12, "ended_ms": BEGIN_MS + 71, "attempts": 1}
    [one] = reap({1: completed(12_345, 62_400, **lease)}, {"completed": 1}, own).outcomes
    assert (one.planned_us, one.sent_us, one.started_us, one.ended_us) == (10_000, 10_300, 12_345, 62_400)
    assert (one.busy_us, one.attempts, one.completed) == (62_400 - 12_345, 1, True)
    assert (one.number, one.tenant, one.lane, one.priority, one.deadline_us) == (1, "acme", "mail", 3, 99_000)


def test_runs_that_were_lost_count_with_their_whole_time_and_runs_that_failed_with_none() -> None:
    errors = [missed("lost", 1), missed("error", 2)]
    known = completed(500_000, 551_000, errors=errors, error_count=1, crashes=1, first_leased_ms=BEGIN_MS + 11)
    [one] = reap({1: known}, {"completed": 1}).outcomes
    assert one.started_us == 11_000, "the first of the three runs"
    assert one.ended_us == 551_000
    assert one.busy_us == 51_000 + 50_000
    assert one.attempts == 3


def test_a_lease_that_was_given_back_unrun_is_no_attempt() -> None:
    [one] = reap({1: completed(40_000, 90_000, attempts=3, first_leased_ms=BEGIN_MS + 11)}, {"completed": 1}).outcomes
    assert (one.attempts, one.started_us) == (1, 40_000)


def test_dead_letters_are_kept_apart_with_their_reason() -> None:
    dead = record(
        state=State.DEAD,
        reason="worker_lost",
        attempts=2,
        crashes=2,
        errors=[missed("error", 1, **{"class": "InjectedFault", "message": "by order"}), missed("lost", 2)],
        error_count=1,
        first_leased_ms=BEGIN_MS + 20,
        ended_ms=BEGIN_MS + 2_000,
    )
    found = reap({1: dead, 2: completed(20_000, 70_000)}, {"completed": 1, "dead": 1})
    [gone, there] = found.outcomes
    assert (gone.completed, gone.started_us, gone.ended_us, gone.busy_us) == (False, 20_000, 2_000_000, 50_000)
    assert there.completed
    [letter] = found.dead_letters
    assert {
        "id": "i" * 22,
        "number": 1,
        "tenant": "acme",
        "attempts": 2,
        "reason": "worker_lost",
    }.items() <= letter.items()
    failed = reap({1: record(state=State.DEAD, reason="error", errors=[dead.errors[0]])}, {"dead": 1})
    assert failed.dead_letters[0]["error"] == "InjectedFault: by order"


def test_no_run_begins_before_its_job_was_sent() -> None:
    """The store's moments are whole milliseconds, and such a one may have begun before the job came."""
    dead = record(state=State.DEAD, reason="error", first_leased_ms=BEGIN_MS + 10, ended_ms=BEGIN_MS + 10)
    [one] = reap({1: dead}, {"dead": 1}).outcomes
    assert one.planned_us <= one.sent_us == one.started_us == one.ended_us


@pytest.mark.parametrize("state", [State.PENDING, State.ACTIVE, State.SCHEDULED, State.INGRESS, State.READY])
def test_what_has_not_ended_is_neither_an_outcome_nor_lost(state: State) -> None:
    found = reap({1: record(state=state), 2: completed(20_000, 70_000)}, {"completed": 1})
    assert ([one.number for one in found.outcomes], found.lost, found.recorded_twice) == ([2], 0, 0)


def test_a_job_that_nobody_knows_is_lost_and_an_end_too_many_is_counted() -> None:
    found = reap({1: None, 2: completed(20_000, 70_000)}, {"completed": 1})
    assert (found.lost, found.recorded_twice) == (1, 0)
    twice = reap({1: completed(20_000, 70_000)}, {"completed": 2})
    assert (twice.lost, twice.recorded_twice) == (0, 1)
    ended = reap({1: None}, {"completed": 1})
    assert (ended.lost, ended.recorded_twice) == (1, 0), "its end was counted once"


def test_a_job_that_was_never_sent_is_unfinished_alone() -> None:
    found = reap({1: completed(20_000, 70_000)}, {"completed": 1}, job(1), job(2))
    assert (len(found.outcomes), found.lost) == (1, 0)


# -- what is told ----------------------------------------------------------------------------------------------------


def test_a_row_is_what_the_table_has() -> None:
    found = row("run-1", cell())
    assert list(found) == list(columns.AGGREGATE)
    assert (found["run"], found["cell"], found["completed"], found["jobs"]) == (
        "run-1",
        "wfq-direct-uniform-1.25x-1",
        40,
        40,
    )
    empty = row("run-1", cell([], setting={"jobs": 5}, timed_out=True))
    assert (empty["unfinished"], empty["completed"], empty["timed_out"]) == (5, 0, True)


def test_every_job_is_accounted_for_or_a_sentence_says_where_not() -> None:
    report = Report(bench="matrix", run={})
    report.rows += [row("r", cell()), row("r", cell(setting={"repetition": 2}))]
    judge(report)
    assert report.missed == []
    assert report.figures["producer_lag_ms_max"] == pytest.approx(0.1)
    report.rows += [
        row("r", cell(setting={"repetition": 3, "jobs": 43}, timed_out=True, lost=2)),
        row("r", cell([], setting={"repetition": 4, "jobs": 1})),
        row("r", cell(setting={"repetition": 5}, recorded_twice=1)),
    ]
    judge(report)
    assert report.figures == {
        "cells": 5,
        "timed_out": 1,
        "unfinished": 4,
        "lost": 2,
        "recorded_twice": 1,
        "producer_lag_ms_max": pytest.approx(0.1),
    }
    assert [sentence.partition(":")[2] for sentence in report.missed] == [
        " of 43 jobs 3 had not ended when its time was over, 2 were lost, 0 recorded twice.",
        " of 1 jobs 1 had not ended, 0 were lost, 0 recorded twice.",
        " of 40 jobs 0 had not ended, 0 were lost, 1 recorded twice.",
    ]


def test_a_line_says_what_came_of_a_cell() -> None:
    assert outcome(cell()) == "40 of 40 jobs ended, p50 55, p95 55 ms, sender at most 0 ms late"
    dead = cell([made(1, completed=False)], setting={"jobs": 2}, dead_letters=[{}], timed_out=True)
    assert outcome(dead).endswith("1 dead, TIMED OUT")
    assert outcome(cell([], setting={"jobs": 2})) == "0 of 2 jobs ended, sender at most 0 ms late"


def test_a_sweep_tells_how_latencies_grow_with_the_load() -> None:
    known = [row("r", cell(setting={"load": load, "repetition": number})) for load in (2.0, 0.5) for number in (1, 2)]
    known.append(row("r", cell([made(1)], setting={"load": 0.5, "policy": "fifo"})))
    assert list(table(known)) == [
        "  p95 ms at load           0.5        2",
        "  wfq direct uniform        55       55",
        "  fifo direct uniform        -        -",
    ]
