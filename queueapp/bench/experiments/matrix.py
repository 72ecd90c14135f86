"""`bench matrix`: policies, workloads and ways of dispatch crossed, in earnest. `bench run` is one cell of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queueapp.bench.harness import Progress, Report
from queueapp.bench.live import laboratory
from queueapp.bench.live.plan import InvalidPlan, plan, why_not


def run(report: Report, progress: Progress, directory: Path, options: Mapping[str, Any]) -> None:
    """Runs what the options cross. What cannot be together is left out, and told."""
    results = Path(options["results"]) if options["results"] else None
    laboratory.run(report, progress, directory, plan(options), results=results, drawn=not options["no_plots"])


def run_one(report: Report, progress: Progress, directory: Path, options: Mapping[str, Any]) -> None:
    """Runs one cell once. Raises InvalidPlan for a policy and a way of dispatch that cannot be together."""
    if reason := why_not(options["scheduler"], options["dispatch"]):
        raise InvalidPlan(f"scheduler and dispatch are {reason}.")
    run(report, progress, directory, {**options, "repetitions": 1})
