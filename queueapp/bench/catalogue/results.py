"""What is done with results that were written: merged, compared, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queueapp.bench.catalogue.option import Experiment, Option
from queueapp.bench.harness import Progress, Report
from queueapp.cli.command import number


def _merge(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import merge

    merge.run(
        report,
        progress,
        [Path(one) for one in options["directory"]],
        _path(options["output"]),
        allow_revisions=options["allow_revisions"],
    )


def _compare(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import compare

    compare.run(
        report,
        progress,
        Path(options["base"]),
        Path(options["other"]),
        csv=_path(options["csv"]),
        markdown=_path(options["markdown"]),
        fail_on_worse=options["fail_on_worse"],
    )


def _plot(report: Report, options: Mapping[str, Any], progress: Progress, directory: Path | None) -> None:
    from queueapp.bench.experiments import plot

    plot.run(report, progress, [Path(one) for one in options["source"]], _path(options["output"]))


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


EXPERIMENTS: dict[str, Experiment] = {
    "merge": Experiment(
        help="several runs as one, if they were given the same and have no cell in common",
        options=(
            Option(name="directory", default=None, bare=True, several=True, word="DIR", help="what runs have left"),
            Option(
                name="output", default=None, word="DIR", help="where to, a new directory (default: results/merge-…)"
            ),
            Option(
                name="allow-revisions", default=False, help="of different versions or revisions of this package, too"
            ),
        ),
        run=_merge,
        ground=False,
        examples=(
            "results/monday results/tuesday --output results/both",
            "results/broken-off --output results/whole       what a run had that was broken off",
        ),
    ),
    "compare": Experiment(
        help="two runs side by side, seed by seed: which figures differ beyond noise",
        options=(
            Option(name="base", default=None, bare=True, word="A", help="directory of the run that is compared with"),
            Option(name="other", default=None, bare=True, word="B", help="directory of the other one"),
            Option(
                name="fail-on-worse",
                default=None,
                read=number(0, 1_000_000),
                word="PERCENT",
                help="end with 1 if a figure is worse, beyond noise and by more than this",
            ),
            Option(name="csv", default=None, word="FILE", help="write the table there, a row for each figure"),
            Option(name="markdown", default=None, word="FILE", help="write it there as Markdown"),
        ),
        run=_compare,
        ground=False,
        examples=(
            "results/before results/after",
            "results/before results/after --fail-on-worse 10 --csv changes.csv",
        ),
    ),
    "plot": Experiment(
        help="plots of what runs have left, and of files that --json wrote; of a run also its report",
        options=(
            Option(
                name="source", default=None, bare=True, several=True, word="DIR|FILE.json", help="a run, or figures"
            ),
            Option(
                name="output", default=None, word="DIR", help="where plots/ and report.html go (default: beside them)"
            ),
        ),
        run=_plot,
        ground=False,
        examples=(
            "results/matrix-20260301-142233",
            "failover.json ceiling.json --output results/example",
        ),
    ),
}
