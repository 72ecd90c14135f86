"""What `manage.py bench` can do: each experiment with its options, as the command offers them.

The experiments themselves are imported when they run: they bring tasks and models with them, a `--help` does not.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queueapp.bench.harness import Progress, Report
from queueapp.bench.peers.roster import chosen
from queueapp.bench.profiles import NAMES, InvalidProfile, load
from queueapp.bench.workloads import KINDS
from queueapp.cli.command import number, whole
from queueapp.names import TENANT_FORM
from queueapp.policies.registry import DIRECT, POLICIES
from queueapp.store import connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of an experiment."""

    name: str
    default: Any
    help: str
    read: Callable[[str], Any] = str
    choices: Sequence[str] | None = None
    alone: Any = None
    """What the option means without a value; with False as default it takes none."""
    word: str = "N"
    """What stands for the value in `--help`."""

    def words(self, value: Any) -> list[str]:
        """The words of a command line that give it this value."""
        if value is None or value is False:
            return []
        return [f"--{self.name}"] if value is True else [f"--{self.name}", str(value)]

    def reading(self) -> dict[str, Any]:
        """How argparse is to read it."""
        if self.default is False:
            return {"action": "store_true", "help": self.help}
        told = "" if self.default is None else f" (default: {self.default})"
        return {
            "type": self.read,
            "default": self.default,
            "choices": self.choices,
            "metavar": None if self.choices else self.word,
            "help": self.help + told,
            **({} if self.alone is None else {"nargs": "?", "const": self.alone}),
        }


Run = Callable[[Report, Mapping[str, Any], Progress, Path | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment. With `ground` it gets a directory with a server and a database of its own."""

    help: str
    options: Sequence[Option]
    run: Run
    ground: bool = True


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


def _peers(text: str) -> str:
    try:
        chosen(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    return text


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


def _failover(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import failover

    assert directory is not None
    failover.run(report, connection.commands(), progress, directory, **options)


def _idle(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import idle

    assert directory is not None
    idle.run(report, connection.commands(), progress, directory, **options)


def _syncmatch(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import syncmatch

    syncmatch.run(report, progress, **options)


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
                read=_peers,
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
        ),
        run=_ceiling,
    ),
    "failover": Experiment(
        help="how long nothing is dispatched when the leader dies, stops or freezes; jobs of a dead worker",
        options=(
            Option(
                name="arm",
                default="all",
                choices=("all", "crash", "clean", "freeze", "alone", "direct", "worker"),
                help="what happens to the leader; worker: to a worker",
            ),
            Option(name="trials", default=10, read=whole(1, 1_000), help="trials of each arm"),
        ),
        run=_failover,
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
