"""The laboratory in virtual time: workloads under policies, who waits how long."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from queueapp.bench.arms import named
from queueapp.bench.catalogue.option import Experiment, Option, checked
from queueapp.bench.experiments.simulation_plan import COSTS, kinds
from queueapp.bench.harness import Progress, Report
from queueapp.bench.profiles import NAMES, load
from queueapp.bench.workloads import KINDS
from queueapp.cli.command import number, whole
from queueapp.names import TENANT_FORM
from queueapp.policies.registry import POLICIES


def _simulate(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import simulation
    from queueapp.bench.experiments.simulation_plan import Plan

    simulation.run(report, progress, Plan(**options))


def _by_tenant(read: Callable[[str], Any]) -> Callable[[str], dict[str, Any]]:
    """`TENANT=N,TENANT=N` as a dictionary."""

    def pairs(text: str) -> dict[str, Any]:
        found = {}
        for part in text.split(","):
            tenant, equals, value = part.strip().rpartition("=")
            if not equals or TENANT_FORM.fullmatch(tenant) is None:
                raise ArgumentTypeError(f"{part!r} is no TENANT=N, such as acme=2")
            found[tenant] = read(value)
        return found

    return pairs


def _loads(text: str) -> tuple[float, ...]:
    """`A,B` as numbers."""
    return tuple(dict.fromkeys(number(0.01, 100)(part.strip()) for part in text.split(",")))


EXPERIMENTS: dict[str, Experiment] = {
    "simulate": Experiment(
        help="workloads under policies in virtual time, beside fifo: who waits how long; the same on any machine",
        options=(
            Option(
                name="policy",
                default="tiered",
                read=checked(named),
                word="A,B",
                help=f"policies, or all: {', '.join(sorted(POLICIES))}; edf:latest_start, aging:SECONDS",
            ),
            Option(
                name="workload",
                default="multi_tenant",
                read=checked(kinds),
                word="A,B",
                help=f"who sends what when, or all: {', '.join(KINDS)}",
            ),
            Option(
                name="profile",
                default="flood",
                read=checked(load),
                word="NAME",
                help=f"the workload's shape, failures and limits: {', '.join(NAMES)}, or a TOML file",
            ),
            Option(name="trace", default=None, word="FILE", help="a recorded workload instead, in JSON lines"),
            Option(
                name="load",
                default=None,
                read=_loads,
                word="A,B",
                help="arrivals, in multiples of what is served, instead of the profile's",
            ),
            Option(name="slots", default=None, read=whole(1, 100_000), help="jobs that run at once, likewise"),
            Option(name="jobs", default=None, read=whole(1, 10_000_000), help="jobs of one run, likewise"),
            Option(name="seed", default=None, read=whole(0, 2**31), help="the first seed, likewise"),
            Option(name="seeds", default=None, read=whole(1, 1_000), help="runs, each with the next seed, likewise"),
            Option(
                name="weight",
                default=None,
                read=_by_tenant(number(0.001, 1_000_000)),
                word="TENANT=N",
                help="weights of tenants, instead of 1 or the profile's",
            ),
            Option(
                name="ceiling",
                default=None,
                read=_by_tenant(whole(1, 100_000)),
                word="TENANT=N",
                help="most jobs of tenants that run at once, instead of any number or the profile's",
            ),
            Option(
                name="costs",
                default="declared",
                choices=COSTS,
                help="declared: as the workload has it; estimated: no job declares any; exact: each its run time",
            ),
            Option(
                name="shards",
                default=1,
                read=whole(1, 1_000),
                help="simulate each policy also with the tenants spread over so many shards",
            ),
            Option(
                name="shard-slots",
                default="shared",
                choices=("shared", "split"),
                help="whose the slots are: of all shards, which are asked in turn, or each shard has its part",
            ),
            Option(name="results", default=None, word="DIR", help="write each cell with all its jobs there"),
        ),
        run=_simulate,
        ground=False,
        examples=(
            "",
            "--policy all --workload heavy_tailed --profile full",
            "--policy priority,aging:1 --workload uniform --profile full",
            "--policy all --workload uniform,bursty --profile full --load 0.5,1,3 --results results/loads",
            "--policy tiered --shards 4 --shard-slots split",
        ),
    ),
}
