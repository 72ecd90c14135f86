"""What is done with results that were written: merged, compared, drawn."""

from __future__ import annotations

from queueapp.bench.catalogue.option import Experiment

EXPERIMENTS: dict[str, Experiment] = {}
