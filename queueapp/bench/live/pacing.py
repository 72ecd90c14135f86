"""A sender that keeps to its plan: each job at its moment, never before, and never fewer because it is late. Pure.

Whoever waits for an answer before it sends more is slowed down by the very queue that it measures, and leaves out the
jobs that would have had the longest waits (coordinated omission). Here the plan is fixed: what has become due while a
call took its time goes out with the next one, and how late that was is kept for each job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from queueapp.bench.workloads import Job, Workload
from queueapp.errors import InvalidOption

BATCH = 250
"""Jobs of one call at most, so that a sender that is late holds up nobody else at the store."""
SLEEP_S = 0.1
"""The longest sleep: so soon a sender hears that it is to stop."""


class Answer(Protocol):
    """What became of one job of a call: `queueapp.Outcome`."""

    @property
    def ok(self) -> bool: ...
    @property
    def word(self) -> str: ...
    @property
    def id(self) -> str | None: ...


Enqueue = Callable[[Sequence[Job]], Sequence[Answer]]
"""Sends jobs, one answer each, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One job of the plan that was given to the queue. Moments are whole microseconds on the sender's clock."""

    number: int
    """The job's, in its workload."""
    id: str | None
    """The queue's id of it; None where it was refused."""
    planned_us: int
    sent_us: int
    """When the call that sent it began: what the call took is the queue's time, not the sender's."""
    error: str = ""
    """Why it was refused (`queueapp.Outcome.word`); "" for a job that is there."""

    @property
    def lag_ms(self) -> float:
        """How late it was sent."""
        return (self.sent_us - self.planned_us) / 1000


def send(
    jobs: Iterable[Job],
    enqueue: Enqueue,
    *,
    begin_s: float,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
    batch: int = BATCH,
    told: Callable[[Sequence[Sent]], object] = lambda _: None,
    goes_on: Callable[[], bool] = lambda: True,
) -> list[Sent]:
    """Sends `jobs`, in order of arrival, each as soon as it is due and all that are due together, `batch` at most.

    `begin_s` is the beginning of the plan on `clock` (seconds; the default is the one that the store's moments are on,
    where both are one machine). `told` hears of each call's jobs. `goes_on` is asked before each call and each sleep;
    what is left when it says no is not sent. What `enqueue` raises ends it.
    """
    begin_us = _us(begin_s)
    sent: list[Sent] = []
    coming = iter(jobs)
    following = next(coming, None)
    while following is not None and goes_on():
        due: list[Job] = []
        now_us = _us(clock())
        while following is not None and len(due) < batch and begin_us + following.at_us <= now_us:
            due.append(following)
            following = next(coming, None)
        if due:
            answers = zip(due, enqueue(due), strict=True)
            latest = [_sent(job, answer, begin_us, now_us) for job, answer in answers]
            sent += latest
            told(latest)
        elif following is not None:
            sleep(min(SLEEP_S, (begin_us + following.at_us - now_us) / 1_000_000))
    return sent


def at_rate(workload: Workload, rate_per_s: float) -> Workload:
    """The same jobs in the same order at another mean rate: their gaps are stretched, what they ask for stays.

    A deadline stays as far from its job's arrival as it was. Raises InvalidOption where all jobs arrive at one moment,
    the beginning: there is nothing to stretch.
    """
    span_us = workload.jobs[-1].at_us
    if not span_us:
        raise InvalidOption(
            f"rate is {rate_per_s:g}, but all jobs of {workload.name} arrive at the beginning: leave the rate out."
        )
    stretch = len(workload.jobs) * 1_000_000 / rate_per_s / span_us
    return replace(workload, load=workload.load / stretch, jobs=[_stretched(job, stretch) for job in workload.jobs])


def _stretched(job: Job, stretch: float) -> Job:
    at_us = round(job.at_us * stretch)
    # Whoever records jobs may have met one whose deadline was over when it came; 0 would be none.
    deadline_us = max(1, job.deadline_us + at_us - job.at_us) if job.deadline_us else 0
    return replace(job, at_us=at_us, deadline_us=deadline_us)


def _sent(job: Job, answer: Answer, begin_us: int, now_us: int) -> Sent:
    return Sent(
        number=job.number,
        id=answer.id if answer.ok else None,
        planned_us=begin_us + job.at_us,
        sent_us=now_us,
        error="" if answer.ok else answer.word,
    )


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
