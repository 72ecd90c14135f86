"""What `manage.py bench` can do: each experiment with its options, as the command offers them.

The experiments themselves are imported when they run: they bring tasks and models with them, a `--help` does not.
"""

from __future__ import annotations

from queueapp.bench.catalogue import durable, live, pools, results, simulated, speed
from queueapp.bench.catalogue.option import Experiment, Option

__all__ = ["EXPERIMENTS", "Experiment", "Option"]

EXPERIMENTS: dict[str, Experiment] = {
    **speed.EXPERIMENTS,
    **durable.EXPERIMENTS,
    **simulated.EXPERIMENTS,
    **live.EXPERIMENTS,
    **pools.EXPERIMENTS,
    **results.EXPERIMENTS,
}
