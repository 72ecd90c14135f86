"""Benchmarks: `manage.py bench`. They may import anything; only the demonstration imports anything of theirs."""

MARK = "DUCTOR_GROUND"
"""Environment variable that names the directory of a run on a ground of its own (`ground`); settings read it."""
SETTINGS = "queueapp.bench.settings"
"""The settings of a benchmark's processes, unless it has others."""
OWN = "DUCTOR_BENCH_OWN"
"""Environment variable with what one process has in DUCTOR beside what all of a benchmark have, as JSON."""
