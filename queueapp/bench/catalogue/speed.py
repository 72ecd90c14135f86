"""The experiments that measure the queue: its speed, its memory, its idle cost, its recovery."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queueapp.bench.catalogue.option import Experiment, Option, checked
from queueapp.bench.experiments.failover_trials import ALL, ARMS, arms_of, ttls_of
from queueapp.bench.harness import Progress, Report
from queueapp.bench.peers.roster import chosen
from queueapp.cli.command import number, whole
from queueapp.policies.registry import DIRECT
from queueapp.store import connection


def _memory(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import memory

    memory.run(report, connection.commands(), progress, count=options["jobs"], tenants=options["tenants"])


def _throughput(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import peers, throughput

    assert directory is not None
    client = connection.commands()
    if options["peers"] or options["prepare"]:
        plan = peers.Plan(
            peers=options["peers"] or "all",
            aof=options["aof"],
            rounds=options["rounds"],
            seconds=options["seconds"],
            prepare=options["prepare"],
        )
        peers.run(report, client, progress, directory, plan)
        return
    throughput.run(
        report,
        client,
        progress,
        directory,
        count=options["jobs"],
        starts=options["starts"],
        dispatch=options["dispatch"],
    )


def _coroutines(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import coroutines

    assert directory is not None
    coroutines.run(report, connection.commands(), progress, directory, **options)


def _walk(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import walk

    walk.run(report, connection.commands(), progress, walk.Sizes(**options))


def _ceiling(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import ceiling

    assert directory is not None
    ceiling.run(report, connection.commands(), progress, directory, **options)


def _batches(text: str) -> object:
    from queueapp.bench.experiments.ceiling import batches_of

    return batches_of(text)


def _failover(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import failover

    assert directory is not None
    failover.run(report, connection.commands(), progress, directory, failover.Plan(**options))


def _idle(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import idle

    assert directory is not None
    idle.run(report, connection.commands(), progress, directory, **options)


def _syncmatch(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import syncmatch

    syncmatch.run(report, progress, **options)


EXPERIMENTS: dict[str, Experiment] = {
    "memory": Experiment(
        help="server memory of a waiting job",
        options=(
            Option(name="jobs", default=100_000, read=whole(100, 10_000_000), help="jobs that wait"),
            Option(name="tenants", default=50, read=whole(1, 100_000), help="tenants whose they are"),
        ),
        run=_memory,
    ),
    "throughput": Experiment(
        help="enqueue one by one and in bulk, drain by a real worker, start of a job in an idle one, cost of a job",
        options=(
            Option(name="jobs", default=50_000, read=whole(100, 10_000_000), help="jobs that go through the pool"),
            Option(name="starts", default=500, read=whole(10, 100_000), help="single jobs that an idle worker starts"),
            Option(
                name="dispatch",
                default="direct",
                choices=("direct", "scheduled", "none"),
                help="who chooses: the store, a leader, or nobody (jobs run as they come: the control arm)",
            ),
            Option(
                name="peers",
                default=None,
                alone="all",
                read=checked(chosen),
                word="A,B",
                help="measure other queues beside it instead, in turn: all that are known, or those named",
            ),
            Option(
                name="prepare", default=False, help="only install the peers, in environments of their own in .bench"
            ),
            Option(
                name="aof",
                default="both",
                choices=("on", "off", "both"),
                help="with --peers: the server's append-only file",
            ),
            Option(
                name="rounds",
                default=4,
                read=whole(1, 100),
                help="with --peers: measurements of a figure; the first is dropped",
            ),
            Option(
                name="seconds",
                default=2.0,
                read=number(0.1, 60),
                help="with --peers: how long one of them should take, about",
            ),
        ),
        run=_throughput,
    ),
    "coroutines": Experiment(
        help="asynchronous bodies beside functions in threads, and thousands that wait at once",
        options=(
            Option(name="jobs", default=20_000, read=whole(100, 10_000_000), help="no-op jobs of a round"),
            Option(name="sleeping", default=2_000, read=whole(1, 100_000), help="jobs that sleep for a second at once"),
            Option(name="rounds", default=3, read=whole(1, 100), help="rounds of each kind, in turn"),
        ),
        run=_coroutines,
    ),
    "walk": Experiment(
        help="time of a dispatch: few and many tenants, few and many waiting jobs, no and many blocked tenants",
        options=(
            Option(name="policy", default="tiered", choices=tuple(sorted(DIRECT)), help="the pools' policy"),
            Option(name="tenants", default=100_000, read=whole(11, 1_000_000), help="many tenants; compared with 10"),
            Option(name="jobs", default=1_000_000, read=whole(1_001, 10_000_000), help="many jobs; compared with 1000"),
            Option(name="blocked", default=10_000, read=whole(1, 1_000_000), help="blocked tenants; compared with 0"),
            Option(name="rounds", default=60, read=whole(1, 10_000), help="measurements of each side"),
            Option(name="want", default=10, read=whole(1, 100), help="jobs that one call leases at most"),
        ),
        run=_walk,
    ),
    "ceiling": Experiment(
        help="how fast a leader admits and dispatches, alone and with processes around it, and what the fence costs",
        options=(
            Option(name="jobs", default=10_000, read=whole(100, 500_000), help="jobs of one measurement"),
            Option(name="rounds", default=16, read=whole(1, 1_000), help="rounds, each with the fence and without it"),
            Option(name="policy", default="tiered", choices=tuple(sorted(DIRECT)), help="the pool's policy"),
            Option(
                name="batches",
                default="250",
                read=checked(_batches),
                word="A,B",
                help="most jobs of one call, each in turn; 250, as many as a leader takes, is what is promised",
            ),
        ),
        run=_ceiling,
        examples=(
            "--json figures.json",
            "--batches 25,100,250 --rounds 4      smaller calls beside those of the product",
            "--policy wfq --jobs 50000 --rounds 5",
        ),
    ),
    "failover": Experiment(
        help="how long nothing is dispatched when the leader dies, stops or freezes; jobs of a dead worker",
        options=(
            Option(
                name="arms",
                default=ALL,
                read=checked(arms_of),
                word="A,B",
                help=f"what happens to the leader (worker: to a worker), some of {', '.join(ARMS)}, or {ALL}",
            ),
            Option(name="trials", default=10, read=whole(1, 1_000), help="trials of each arm, under each lease"),
            Option(
                name="ttls",
                default=None,
                read=checked(ttls_of),
                word="A,B",
                help="lengths of the leader's lease in seconds, in turn, instead of the one in force",
            ),
            Option(
                name="presence",
                default="auto",
                choices=("auto", "off"),
                help="off: the death of a leader shows by the end of its lease alone",
            ),
        ),
        run=_failover,
        examples=(
            "--json figures.json",
            "--trials 3 --arms graceful,crash",
            "--trials 5 --ttls 2,5,10                     beside what each lease predicts: about a quarter of an hour",
            "--trials 5 --ttls 2,5 --arms crash --presence off",
        ),
    ),
    "idle": Experiment(
        help="processor time and commands of a worker and a scheduler that have nothing to do",
        options=(
            Option(name="seconds", default=30.0, read=number(0.1, 3_600), help="how long is measured"),
            Option(name="settle", default=5.0, read=number(0, 3_600), help="how long both may settle before"),
        ),
        run=_idle,
    ),
    "syncmatch": Experiment(
        help="start of a job that a worker's own process enqueues, at once and through the store",
        options=(
            Option(name="jobs", default=2_000, read=whole(10, 1_000_000), help="jobs of each kind, in turn"),
            Option(name="slots", default=4, read=whole(1, 1_000), help="slots of the worker"),
        ),
        run=_syncmatch,
    ),
}
