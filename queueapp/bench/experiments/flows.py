"""`bench flows`: what a durable run costs between two steps, what it notices of a flood, and what many items take.

The three parts stand beside this file. The database is the benchmark's own SQLite, in its directory, with its log
(WAL) and no wait for the disk at a commit, as the example project has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import redis
from django.db import connection

from queueapp.bench.experiments import flows_crowd, flows_fan, flows_overhead
from queueapp.bench.experiments.flows_plan import Plan, parts_of
from queueapp.bench.harness import Progress, Report
from queueapp.cli import logs


def run(report: Report, client: redis.Redis, progress: Progress, directory: Path, plan: Plan) -> None:
    """The parts of the plan, one after the other."""
    logs.set_up(None, 1)  # as a worker does: else django.tasks writes a line before each body
    parts = parts_of(plan.parts)
    report.run = {**report.run, "database": _database()}
    progress.say(f"  database: {report.run['database']}")
    if "overhead" in parts:
        flows_overhead.run(report, progress, rounds=plan.rounds, steps=plan.steps)
        flows_overhead.judge(report)
    if "crowd" in parts:
        sizes = flows_crowd.Sizes(runs=plan.runs, steps=plan.steps, flood=plan.flood, slots=plan.slots)
        flows_crowd.run(report, client, progress, directory, sizes)
        flows_crowd.judge(report)
    if "fan" in parts:
        flows_fan.run(report, progress, items=plan.items)
        flows_fan.judge(report)


def _database() -> str:
    """Which one it is, and how it commits."""
    with connection.cursor() as cursor:
        if connection.vendor != "sqlite":
            return str(connection.display_name)
        found: Sequence[object] = [
            cursor.execute(statement).fetchone()[0]
            for statement in ("SELECT sqlite_version()", "PRAGMA journal_mode", "PRAGMA synchronous")
        ]
    version, journal, synchronous = found
    waits = {0: "off", 1: "normal", 2: "full"}.get(int(str(synchronous)), synchronous)
    return f"SQLite {version}, journal {journal}, synchronous {waits}"
