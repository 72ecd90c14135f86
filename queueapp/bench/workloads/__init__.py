"""Workloads: who sends which job when, and how long it runs. Pure and seeded, byte-identical on any machine.

`make(name, shape, seed=…, jobs=…, slots=…)` makes one of a kind (`KINDS`), `traces.read(path)` one that was recorded.
Profiles (`queueapp.bench.profiles`) hold shapes under a name.
"""

from __future__ import annotations

from queueapp.bench.workloads.jobs import Job, Workload, digest
from queueapp.bench.workloads.kinds import KINDS, make
from queueapp.bench.workloads.shape import Shape

__all__ = ["KINDS", "Job", "Shape", "Workload", "digest", "make"]
