"""The settings of `bench idle`: those of the other benchmarks with one pool, as a project has that names none."""

from __future__ import annotations

from queueapp.bench.settings import *  # noqa: F403  # all but what follows

DUCTOR = {**DUCTOR, "POOLS": {}}  # noqa: F405  # theirs
