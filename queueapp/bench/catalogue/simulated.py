"""The laboratory in virtual time: workloads under policies, who waits how long."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from queueapp.bench.catalogue.option import Experiment, Option
from queueapp.bench.harness import Progress, Report
from queueapp.bench.profiles import NAMES, InvalidProfile, load
from queueapp.bench.workloads import KINDS
from queueapp.cli.command import number, whole
from queueapp.names import TENANT_FORM
from queueapp.policies.registry import POLICIES


def _simulate(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import simulation

    simulation.run(report, progress, simulation.Plan(**options))


def _policies(text: str) -> str:
    from queueapp.bench.experiments.simulation import named

    try:
        named(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    return text


def _profile(text: str) -> str:
    try:
        load(text)
    except InvalidProfile as error:
        raise ArgumentTypeError(str(error)) from error
    return text


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


EXPERIMENTS: dict[str, Experiment] = {
    "simulate": Experiment(
        help="workloads under policies in virtual time, beside fifo: who waits how long; the same on any machine",
        options=(
            Option(
                name="policy",
                default="tiered",
                read=_policies,
                word="A,B",
                help=f"policies, or all: {', '.join(sorted(POLICIES))}",
            ),
            Option(name="workload", default="multi_tenant", choices=tuple(KINDS), help="who sends what when"),
            Option(
                name="profile",
                default="flood",
                read=_profile,
                word="NAME",
                help=f"the workload's shape, failures and limits: {', '.join(NAMES)}, or a TOML file",
            ),
            Option(name="trace", default=None, word="FILE", help="a recorded workload instead, in JSON lines"),
            Option(
                name="load",
                default=None,
                read=number(0.01, 100),
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
        ),
        run=_simulate,
        ground=False,
    ),
}
