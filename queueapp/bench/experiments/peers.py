"""`bench throughput --peers`: Ductor and other queues in one run, in turn, on one server, with the same slots.

Each figure is measured in rounds; in each round all arms take their turn, in changing order. The first round is
dropped, and of the others the median counts. How many jobs an arm gets follows from how fast it was in the round
before, so that none takes much longer than another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from queueapp.bench.harness import Progress, Report
from queueapp.bench.peers import roster, table, targets
from queueapp.bench.peers.environments import Environment, Unavailable, prepare
from queueapp.bench.peers.measuring import Measurement, NotMeasured, persist
from queueapp.bench.peers.results import MS, Results, Row, drain_name
from queueapp.bench.peers.roster import OURS, Peer

FIRST_JOBS = 400
MAX_JOBS = 100_000
WAITING_JOBS = 20_000
"""For the memory of a waiting job."""
OURS_ALONE: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("drain, no-op, two workers", "drain_two_workers_per_s", {"workers": 2}),
    ("drain, no-op, coroutines", "drain_async_per_s", {"body": "async"}),
)
"""What is held against Ductor's own drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Whom to measure, and for how long."""

    peers: str = "all"
    aof: str = "both"
    rounds: int = 4
    seconds: float = 2.0
    """How long one measurement should take."""
    prepare: bool = False
    """Only make the environments."""


@dataclass(slots=True)
class _Arm:
    """One way of one peer to do what a figure says, and the jobs that it gets next."""

    measurement: Measurement
    variant: str
    jobs: int = FIRST_JOBS
    values: list[Mapping[str, float]] = field(default_factory=list)
    failed: str | None = None

    @property
    def peer(self) -> Peer:
        return self.measurement.peer


def run(report: Report, client: redis.Redis, progress: Progress, directory: Path, plan: Plan) -> None:
    """Makes the environments, measures, tells, judges."""
    environments: dict[str, Environment] = {}
    unavailable: dict[str, str] = {}
    chosen = roster.chosen(plan.peers)
    for peer in chosen:
        try:
            environments[peer.name] = prepare(peer, roster.home(), progress)
        except Unavailable as error:
            unavailable[peer.name] = str(error)
            progress.say(f"  {peer.title} is not measured: {error}")
    versions = {name: environment.version() for name, environment in environments.items()}
    versions[OURS] = str(report.run.get("ductor") or "")
    if plan.prepare:
        for name, version in versions.items():
            if name != OURS:
                progress.say(f"  {roster.PEERS[name].title} {version} is ready")
        return
    aofs = ["on", "off"] if plan.aof == "both" else [plan.aof]
    measurements = [Measurement(one, client, os.environ["REDIS_URL"], directory) for one in environments.values()]
    for position, aof in enumerate(aofs):
        persist(client, on=aof == "on")
        progress.say(f"\n  append-only file {aof}, {roster.SLOTS} slots, {plan.rounds} rounds")
        results = Results(aof=aof, peers=chosen, versions=versions, unavailable=unavailable)
        _measure(results, measurements, progress, plan)
        rows = results.rows()
        report.rows += rows
        for line in table.lines(rows):
            progress.say(line)
        _judge(report, progress, rows, suffix="" if position == 0 else f"_aof_{aof}")
    persist(client, on=True)


def _measure(results: Results, measurements: Sequence[Measurement], progress: Progress, plan: Plan) -> None:
    for name, measure in _senders(plan):
        arms = [_Arm(measurement, next(iter(measurement.peer.variants))) for measurement in measurements]
        rounds = 1 if name == "memory" else plan.rounds
        _rounds(results, name, arms, measure, progress, rounds, plan.seconds, of_worker=False)
    for name, measure in _workers(plan):
        arms = [_Arm(measurement, variant) for measurement in measurements for variant in measurement.peer.variants]
        if name in {ours for ours, _, _ in OURS_ALONE}:
            arms = [arm for arm in arms if arm.peer.name == OURS]
        _rounds(results, name, arms, measure, progress, plan.rounds, plan.seconds)


Measure = Callable[[_Arm], Mapping[str, float]]


def _senders(plan: Plan) -> Iterator[tuple[str, Measure]]:
    """What a peer's worker has no part in."""

    def enqueue(how: str) -> Measure:
        def measure(arm: _Arm) -> Mapping[str, float]:
            per_s = arm.measurement.enqueue_per_s(how, arm.jobs)
            if per_s is None:
                raise NotMeasured("it has no such call")
            return {f"enqueue_{how}_per_s": per_s}

        return measure

    yield "enqueue, one by one", enqueue("single")
    yield "enqueue, in bulk", enqueue("bulk")
    yield "memory", lambda arm: {"bytes_per_job": arm.measurement.bytes_per_job(WAITING_JOBS)}


def _workers(plan: Plan) -> Iterator[tuple[str, Measure]]:
    """What depends on how the worker is run."""

    def drain(ms: int) -> Measure:
        return lambda arm: {drain_name(ms): arm.measurement.drain_per_s(arm.variant, arm.jobs, ms)}

    def drain_ours(figure: str, how: Mapping[str, Any]) -> Measure:
        return lambda arm: {figure: arm.measurement.drain_per_s(arm.variant, arm.jobs, 0, **how)}

    for ms in MS:
        yield f"drain, {ms} ms" if ms else "drain, no-op", drain(ms)
    for name, figure, how in OURS_ALONE:
        yield name, drain_ours(figure, how)

    def start(arm: _Arm) -> Mapping[str, float]:
        found = arm.measurement.starts(arm.variant, max(20, int(plan.seconds * 50)))
        return {"start_ms_p50": found.p50, "start_ms_p99": found.p99, "start_call_ms_p50": found.call_p50}

    yield "start", start


def _rounds(
    results: Results,
    name: str,
    arms: Sequence[_Arm],
    measure: Measure,
    progress: Progress,
    rounds: int,
    seconds: float,
    *,
    of_worker: bool = True,
) -> None:
    """All rounds of one figure. An arm that fails takes no further part in it; what it had measured is not kept."""
    for number in range(rounds):
        for arm in arms if number % 2 == 0 else reversed(arms):
            if arm.failed is not None:
                continue
            progress.show(f"  {name}: round {number + 1} of {rounds}, {arm.peer.title} ({arm.jobs:,} jobs)")
            try:
                found = measure(arm)
            except NotMeasured as error:
                arm.failed = str(error)
                continue
            arm.values.append(found)
            arm.jobs = next_jobs(arm.jobs, found, seconds)
    for arm in arms:
        results.add(arm.peer, arm.variant, name, arm.values[1:] or arm.values, arm.failed, of_worker=of_worker)


def next_jobs(jobs: int, found: Mapping[str, float], seconds: float) -> int:
    """As many as take `seconds` at the rate that was found, though at most 20 times as many as before."""
    rates = [value for name, value in found.items() if name.endswith("_per_s")]
    return max(100, min(int(rates[0] * seconds), 20 * jobs, MAX_JOBS)) if rates else jobs


def _judge(report: Report, progress: Progress, rows: Sequence[Row], suffix: str) -> None:
    """Figures of this persistence; the first one's are those that the targets are held against."""
    verdicts = targets.judge(rows, os.cpu_count() or 1)
    ours = next(row for row in rows if row["peer"] == OURS)
    for name in targets.OUR_FIGURES:
        report.figures[name + suffix] = ours.get(name)
    for verdict in verdicts:
        report.figures[verdict.figure + suffix] = verdict.value
        progress.say(f"  {verdict.line()}")
        if verdict.met is False and not suffix:
            report.missed.append(verdict.sentence())
