"""What a job of a workload does where it really runs.

The module is no app's `tasks`, and its task names no pool, which a host would have to know: the workers of any host
find it by its path.
"""

from __future__ import annotations

import time
from typing import Literal

from queueapp import task
from queueapp.worker.faults import StandIn


@task
def work(service_us: int, execution: Literal["sleep", "cpu"] = "sleep") -> tuple[int, int]:
    """Sleeps or computes for so long; when it began and when it ended, in microseconds of its machine's clock."""
    began_us = time.time_ns() // 1000
    StandIn(execution, service_us / 1000).spend()
    return began_us, time.time_ns() // 1000
