"""What the tests of results share: cells by hand, and a run of them on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from queueapp.bench.failures import Failures
from queueapp.bench.outcomes import Outcome
from queueapp.bench.profiles import Profile
from queueapp.bench.results.cells import Cell, Setting
from queueapp.bench.results.writing import Writer

IDENTITY: dict[str, object] = {
    "at": "2026-03-01T14:22:33+00:00",
    "command": "manage.py bench matrix",
    "ductor": "0.1.0",
    "revision": "abc1234",
    "python": "3.12.1",
    "server": "valkey 9.1",
    "cpus": 2,
    "processor": "one",
    "machine": "x86_64",
    "platform": "Linux",
    "policy": "fifo,wfq",
}
PROFILE = Profile(name="by-hand")


def outcome(number: int, **more: Any) -> Outcome:
    """A job that comes each 10 ms, waits 5 ms, and runs 50."""
    planned_us = number * 10_000
    fields: dict[str, Any] = {
        "tenant": ("acme", "globex")[number % 2],
        "priority": number % 3,
        "planned_us": planned_us,
        "sent_us": planned_us + 100,
        "started_us": planned_us + 5_000,
        "ended_us": planned_us + 55_000,
        "busy_us": 50_000,
        "deadline_us": planned_us + 60_000,
    }
    return Outcome(number=number, **(fields | more))


def cell(outcomes: Sequence[Outcome] | None = None, *, setting: Any = None, **more: Any) -> Cell:
    """40 jobs of two tenants, and a third that sent nothing; `setting`: what is to be other there."""
    known = [outcome(number) for number in range(1, 41)] if outcomes is None else list(outcomes)
    plain = Setting(
        policy="wfq",
        dispatch="direct",
        workload="uniform",
        profile="by-hand",
        seed=42,
        repetition=1,
        jobs=len(known),
        load=1.25,
        slots=8,
        workers=2,
        execution="sleep",
        starving_ms=5_000,
        tenants=("acme", "globex", "hush"),
        big=None,
        workload_digest="d42",
        failures=Failures(),
        limits={},
    )
    return Cell(setting=replace(plain, **(setting or {})), outcomes=known, **more)


def write_run(
    directory: Path, cells: Iterable[Cell], profile: Profile = PROFILE, identity: Mapping[str, object] | None = None
) -> Path:
    """A finished run of these cells; `identity`: what is to be other there."""
    with Writer(directory, "matrix", {**IDENTITY, **(identity or {})}, profile=profile) as writer:
        for one in cells:
            writer.add(one)
    return directory
