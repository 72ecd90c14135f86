"""The laboratory in earnest: workloads sent to real workers, and recorded from live pools."""

from __future__ import annotations

from queueapp.bench.catalogue.option import Experiment

EXPERIMENTS: dict[str, Experiment] = {}
