"""What is done with a pool of the project that the command is called from: workloads are sent into it, and recorded."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queueapp.bench.catalogue.option import Experiment, Option, checked
from queueapp.bench.harness import Progress, Report
from queueapp.bench.profiles import NAMES, load
from queueapp.bench.profiles.profile import MOST_JOBS, MOST_SEED
from queueapp.bench.workloads import KINDS
from queueapp.cli.command import names, number, whole
from queueapp.names import TENANT_FORM


def _produce(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import produce

    produce.run(report, progress, produce.Plan(**options))


def _record(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import record

    record.run(report, progress, record.Plan(**options))


def _sendable(text: str) -> str:
    """A kind of workload, or the file of a trace, which is read when it is sent. No kind has a dot in its name."""
    if text not in KINDS and not Path(text).suffix and not Path(text).is_file():
        raise ArgumentTypeError(f"{text!r} is no workload: give one of {', '.join(KINDS)}, or the file of a trace")
    return text


def _tenants(text: str) -> list[str]:
    found = names(text)
    if not found or not all(TENANT_FORM.fullmatch(name) for name in found):
        raise ArgumentTypeError(f"{text!r} is no list of tenants: give names of the form {TENANT_FORM.pattern}")
    return found


EXPERIMENTS: dict[str, Experiment] = {
    "produce": Experiment(
        help="sends a workload into a live pool of this project, each job at its moment, and tells how late it was",
        options=(
            Option(
                name="workload",
                default=None,
                read=_sendable,
                word="WORKLOAD",
                bare=True,
                help=f"who sends what when: {', '.join(KINDS)}, or the file of a trace",
            ),
            Option(name="pool", default=None, word="P", help="where to"),
            Option(name="count", default=None, read=whole(1, MOST_JOBS), help="jobs, instead of the profile's"),
            Option(
                name="rate",
                default=None,
                read=number(0.001, 1_000_000),
                help="jobs a second in the mean, instead of the workload's own rate",
            ),
            Option(name="seed", default=None, read=whole(0, MOST_SEED), help="instead of the profile's"),
            Option(
                name="profile",
                default="quick",
                read=checked(load),
                word="NAME",
                help=f"what the workload is made from: {', '.join(NAMES)}, or a TOML file",
            ),
            Option(
                name="exec",
                default=None,
                choices=("sleep", "cpu"),
                help="what a job does for its duration, instead of what the profile says",
            ),
            Option(
                name="task",
                default="queueapp.bench.live.work.work",
                word="PATH",
                help="a task of your own, which gets number, tenant, service_us and execution, as far as it has them",
            ),
            Option(
                name="tenants",
                default=None,
                read=_tenants,
                word="A,B",
                help="who sends, instead of the workload's own tenants",
            ),
            Option(name="dry-run", default=False, help="show the first jobs and the digest, send nothing"),
            Option(name="yes", default=False, help="do not ask"),
        ),
        run=_produce,
        ground=False,
        examples=(
            "multi_tenant --pool emails --dry-run",
            "multi_tenant --pool emails --count 2000 --rate 100",
            "bursty --pool reports --profile full --exec cpu --yes --json figures.json",
            "uniform --pool emails --task shop.tasks.render --tenants acme,globex",
            "recorded.jsonl --pool staging --rate 50",
        ),
    ),
    "record": Experiment(
        help="makes a trace of what goes through a live pool of this project, for `simulate --trace` and `produce`",
        options=(
            Option(name="pool", default=None, word="P", help="of what"),
            Option(name="output", default=None, word="FILE", help="where the trace goes, as JSON lines"),
            Option(name="seconds", default=60.0, read=number(0.1, 86_400), help="how long: jobs that arrive meanwhile"),
            Option(
                name="wait",
                default=30.0,
                read=number(0, 86_400),
                help="seconds after that in which the last of them may end",
            ),
            Option(name="every", default=20, read=whole(5, 10_000), help="milliseconds from look to look"),
            Option(name="anonymous", default=False, help="call tenants t1, t2 …, and lanes l1, l2 …"),
            Option(name="force", default=False, help="write over a file that is there"),
        ),
        run=_record,
        ground=False,
        examples=(
            "--pool emails --seconds 600 --output emails.jsonl",
            "--pool emails --seconds 600 --output emails.jsonl --anonymous --force",
        ),
    ),
}
