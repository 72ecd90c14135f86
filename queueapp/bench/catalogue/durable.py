"""The experiment that measures flows, on settings that have their app."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queueapp.bench.catalogue.option import Experiment, Option, checked
from queueapp.bench.experiments.flows_plan import ALL, Plan, parts_of
from queueapp.bench.harness import Progress, Report
from queueapp.cli.command import whole
from queueapp.store import connection


def _flows(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import flows

    assert directory is not None
    flows.run(report, connection.commands(), progress, directory, Plan(**options))


EXPERIMENTS: dict[str, Experiment] = {
    "flows": Experiment(
        help="durable runs: what a step costs beside its body, what a flood does to runs in flight, very many items",
        options=(
            Option(
                name="parts",
                default=ALL,
                read=checked(parts_of),
                word="A,B",
                help="some of overhead, crowd and fan, or all",
            ),
            Option(name="rounds", default=50, read=whole(2, 10_000), help="overhead: runs of each kind, in turn"),
            Option(name="steps", default=20, read=whole(2, 500), help="overhead and crowd: steps of a run"),
            Option(name="runs", default=200, read=whole(1, 10_000), help="crowd: runs in flight"),
            Option(
                name="flood", default=2_000, read=whole(1, 1_000_000), help="crowd: fresh jobs that wait all the time"
            ),
            Option(name="slots", default=16, read=whole(1, 1_000), help="crowd: slots of each of two workers"),
            Option(name="items", default=20_000, read=whole(1, 1_000_000), help="fan: items of one map"),
        ),
        run=_flows,
        settings="queueapp.bench.flow_settings",
        examples=(
            "--json figures.json",
            "--parts overhead --rounds 200",
            "--parts crowd --runs 50 --flood 10000",
            "--parts fan --items 1000000                  takes long",
        ),
    ),
}
