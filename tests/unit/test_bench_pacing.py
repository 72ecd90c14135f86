"""The sender of the laboratory keeps to its plan: on a clock of the test's own, so that nothing takes real time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from queueapp.bench.live.pacing import SLEEP_S, Sent, at_rate, send
from queueapp.bench.workloads import Job, Workload
from queueapp.errors import InvalidOption

BEGIN_S = 1_000.0


@dataclass(frozen=True)
class Answer:
    """What a queue says of one job."""

    word: str = "enqueued"
    id: str | None = "some-id"

    @property
    def ok(self) -> bool:
        return self.id is not None


@dataclass
class Ground:
    """A clock, and a queue whose calls take their time on it."""

    now_s: float = BEGIN_S
    call_s: Sequence[float] = ()
    """How long each call takes; 0 for those behind."""
    calls: list[tuple[float, list[int]]] = field(default_factory=list)
    """When each call began, and the numbers of its jobs."""
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now_s += seconds

    def enqueue(self, jobs: Sequence[Job]) -> list[Answer]:
        self.calls.append((self.now_s - BEGIN_S, [job.number for job in jobs]))
        self.now_s += self.call_s[len(self.calls) - 1] if len(self.calls) <= len(self.call_s) else 0
        return [Answer() for _ in jobs]


def plan(*moments_s: float) -> list[Job]:
    return [
        Job(number=number, at_us=round(at_s * 1_000_000), tenant="ant", service_us=10)
        for number, at_s in enumerate(moments_s, start=1)
    ]


def run(ground: Ground, jobs: Sequence[Job], batch: int = 250) -> list[Sent]:
    return send(jobs, ground.enqueue, begin_s=BEGIN_S, clock=ground.clock, sleep=ground.sleep, batch=batch)


def test_each_job_is_sent_at_its_moment_and_those_of_one_moment_together() -> None:
    ground = Ground()
    sent = run(ground, plan(0, 0.05, 0.05, 0.5))
    assert ground.calls == [(0, [1]), (pytest.approx(0.05), [2, 3]), (pytest.approx(0.5), [4])]
    assert [one.number for one in sent] == [1, 2, 3, 4]
    assert sent[1] == Sent(number=2, id="some-id", planned_us=1_000_050_000, sent_us=1_000_050_000)


def test_none_is_sent_ahead_of_its_moment_however_short_a_sleep_was() -> None:
    ground = Ground()

    def half(seconds: float) -> None:
        ground.now_s += max(seconds / 2, 0.000_001)

    sent = send(plan(0.01, 0.02), ground.enqueue, begin_s=BEGIN_S, clock=ground.clock, sleep=half)
    assert all(one.sent_us >= one.planned_us for one in sent)


def test_what_became_due_during_a_slow_call_goes_out_at_once_and_each_job_keeps_its_planned_moment() -> None:
    ground = Ground(call_s=[0.25])
    sent = run(ground, plan(0, 0.1, 0.2, 0.3))
    assert ground.calls == [(0, [1]), (pytest.approx(0.25), [2, 3]), (pytest.approx(0.3), [4])]
    assert [one.planned_us - 1_000_000_000 for one in sent] == [0, 100_000, 200_000, 300_000]
    assert [one.lag_ms for one in sent] == pytest.approx([0, 150, 50, 0], abs=0.01)


def test_a_queue_that_is_always_too_slow_gets_all_jobs_all_the_same() -> None:
    ground = Ground(call_s=[0.1] * 10)
    sent = run(ground, plan(*(number / 1000 for number in range(100))), batch=30)
    assert [len(numbers) for _, numbers in ground.calls] == [1, 30, 30, 30, 9]
    assert not ground.slept
    assert len(sent) == 100


def test_a_sender_that_is_late_sends_no_more_than_a_batch_with_a_call() -> None:
    ground = Ground(now_s=BEGIN_S + 10)
    run(ground, plan(*range(7)), batch=3)
    assert [numbers for _, numbers in ground.calls] == [[1, 2, 3], [4, 5, 6], [7]]


def test_a_job_that_is_refused_says_why() -> None:
    sent = send(plan(0), lambda jobs: [Answer("backlog_full", None)], begin_s=BEGIN_S, clock=lambda: BEGIN_S)
    assert (sent[0].id, sent[0].error) == (None, "backlog_full")


def test_it_hears_soon_that_it_is_to_stop_and_leaves_the_rest() -> None:
    ground, heard = Ground(), list[int]()

    def told(latest: Sequence[Sent]) -> None:
        heard.extend(one.number for one in latest)

    sent = send(
        plan(0, 60),
        ground.enqueue,
        begin_s=BEGIN_S,
        clock=ground.clock,
        sleep=ground.sleep,
        told=told,
        goes_on=lambda: ground.now_s < BEGIN_S + 1,
    )
    assert [one.number for one in sent] == heard == [1]
    assert ground.now_s <= BEGIN_S + 1 + SLEEP_S + 0.001


def test_an_answer_too_few_is_no_answer() -> None:
    with pytest.raises(ValueError, match="shorter"):
        send(plan(0, 0), lambda jobs: [Answer()], begin_s=BEGIN_S, clock=lambda: BEGIN_S)


def test_another_rate_stretches_the_gaps_and_nothing_else() -> None:
    jobs = [
        Job(number=1, at_us=100_000, tenant="ant", service_us=10, deadline_us=150_000),
        Job(number=2, at_us=1_000_000, tenant="bee", service_us=20, priority=3),
    ]
    found = at_rate(Workload(name="trace", seed=1, slots=2, load=0.5, jobs=jobs), 1.0)
    assert found.jobs == [
        Job(number=1, at_us=200_000, tenant="ant", service_us=10, deadline_us=250_000),
        Job(number=2, at_us=2_000_000, tenant="bee", service_us=20, priority=3),
    ]
    assert found.load == 0.25


def test_jobs_of_one_moment_have_no_rate() -> None:
    burst = Workload(name="trace", seed=1, slots=2, load=1, jobs=plan(0, 0))
    with pytest.raises(InvalidOption, match="rate is 5, but all jobs of trace arrive at the beginning"):
        at_rate(burst, 5)
