"""The laboratory in earnest: workloads sent to real workers, and recorded from live pools."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from queueapp.bench.catalogue.option import Experiment, Option, checked
from queueapp.bench.harness import Progress, Report
from queueapp.bench.live.plan import DISPATCHES, MOST_WORKERS, parted, rates
from queueapp.bench.profiles import NAMES, load
from queueapp.bench.workloads import KINDS
from queueapp.cli.command import number, whole
from queueapp.policies.registry import POLICIES

FOUR = "uniform,bursty,heavy_tailed,multi_tenant"
LOADS = "0.5,0.75,1,1.25,1.5,2,3"


def _run_one(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import matrix

    assert directory is not None
    matrix.run_one(report, progress, directory, options)


def _matrix(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import matrix

    assert directory is not None
    matrix.run(report, progress, directory, options)


def _sweep(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import sweep

    assert directory is not None
    sweep.run(report, progress, directory, options)


ONE = (
    Option(name="scheduler", default="tiered", choices=tuple(sorted(POLICIES)), help="the pool's policy"),
    Option(name="workload", default="multi_tenant", choices=tuple(KINDS), help="who sends what when"),
    Option(
        name="dispatch",
        default="direct",
        choices=DISPATCHES,
        help="who chooses: the store, a leader, or nobody (jobs run as they come: the control arm)",
    ),
)
CROSSED = (
    Option(
        name="scheduler",
        default="all",
        read=checked(partial(parted, "scheduler", known=sorted(POLICIES))),
        word="A,B",
        help=f"policies, or all: {', '.join(sorted(POLICIES))}",
    ),
    Option(
        name="workload",
        default=FOUR,
        read=checked(partial(parted, "workload", known=list(KINDS))),
        word="A,B",
        help=f"who sends what when; some of {', '.join(KINDS)}, or all",
    ),
    Option(
        name="dispatch",
        default="direct",
        read=checked(partial(parted, "dispatch", known=DISPATCHES)),
        word="A,B",
        help="who chooses: direct (the store), scheduled (a leader), none (nobody: the control arm, fifo only), or all",
    ),
    Option(
        name="repetitions",
        default=None,
        read=whole(1, 1_000),
        help="runs of each cell, each with the next seed, instead of the profile's",
    ),
)
LOAD = Option(
    name="load",
    default=None,
    read=number(0.01, 100),
    help="arrivals, in multiples of what is served, instead of the profile's",
)
OFFERED = Option(name="loads", default=LOADS, read=checked(rates), word="N,N", help="the same, one after another")
COMMON = (
    Option(
        name="profile",
        default="quick",
        read=checked(load),
        word="NAME",
        help=f"the workload's shape, failures and limits: {', '.join(NAMES)}, or a TOML file",
    ),
    Option(name="jobs", default=None, read=whole(1, 10_000_000), help="jobs of a cell, instead of the profile's"),
    Option(
        name="workers", default=None, read=whole(1, MOST_WORKERS), help="worker processes; 2 where the slots divide"
    ),
    Option(
        name="slots",
        default=None,
        read=whole(1, 1_000),
        help="jobs that each of them runs at once; the profile's slots, spread over them",
    ),
    Option(name="seed", default=None, read=whole(0, 2**31), help="the first seed, instead of the profile's"),
    Option(
        name="exec",
        default=None,
        choices=("sleep", "cpu"),
        help="what a job does for its duration, instead of the profile's: it sleeps, or it computes",
    ),
    Option(
        name="fail-rate",
        default=None,
        read=number(0, 1),
        word="RATE",
        help="part of the runs that fail, instead of the profile's",
    ),
    Option(
        name="fail-before-ack-rate",
        default=None,
        read=number(0, 1),
        word="RATE",
        help="part of the runs that end and are never reported, as if the worker had died, likewise",
    ),
    Option(
        name="fail-seed",
        default=None,
        read=whole(0, 2**31),
        help="seed of the dice that say which; without it the workload's",
    ),
    Option(
        name="timeout",
        default=None,
        read=number(1, 86_400),
        word="SECONDS",
        help="most of a cell's time from its first job on; then it is marked (a minute and three times what it needs)",
    ),
    Option(
        name="results",
        default=None,
        word="DIR",
        help="where the results go; it must not exist yet, or be empty (results/NAME-DATE-TIME)",
    ),
    Option(name="no-plots", default=False, help="only the tables and the report"),
)

EXPERIMENTS: dict[str, Experiment] = {
    "run": Experiment(
        help="one workload once through real processes, under one policy",
        options=(*ONE, LOAD, *COMMON),
        run=_run_one,
        examples=(
            "--scheduler wfq --workload bursty",
            "--exec cpu --profile realwork --dispatch scheduled",
            "--fail-before-ack-rate 0.2 --jobs 200",
        ),
    ),
    "matrix": Experiment(
        help="policies, workloads and ways of dispatch crossed, each cell with real processes and a pool of its own",
        options=(*CROSSED, LOAD, *COMMON),
        run=_matrix,
        examples=(
            "--scheduler fifo,priority,edf,wfq,tiered --repetitions 1",
            "--scheduler fifo --dispatch direct,scheduled,none            what central scheduling costs",
            "--scheduler all --dispatch all --profile full --workers 4 --slots 4",
        ),
    ),
    "sweep": Experiment(
        help="the same at several loads, from half of what the slots serve to three times of it",
        options=(*CROSSED, OFFERED, *COMMON),
        run=_sweep,
        examples=("--scheduler fifo,tiered --workload multi_tenant", "--loads 0.9,1,1.1 --repetitions 5"),
    ),
}
