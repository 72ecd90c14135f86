"""`edf`: earliest deadline first over the whole pool (Jackson 1955; Liu and Layland 1973).

`by="deadline"` ranks by the deadline itself, `by="latest_start"` by deadline minus cost: the last moment at which the
job can still start in time. The estimate of that cost is the one of the moment at which the job became pending. Jobs
without a deadline run last, by submission. Bound: on one slot, if any order of the jobs that wait meets all of their
deadlines, this one does. Caveats: a long job that has begun is not put aside for a more urgent one; under overload it
tends to be late for many instead of dropping a few; `expires_after` drops.
"""

from __future__ import annotations

from typing import Literal

from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate

WITHOUT_DEADLINE = 8e15
"""Later than any moment; such jobs follow in the order of submission."""


class Edf(Ordered):
    """Rank = deadline in ms, or the latest start. Costs count as milliseconds."""

    name = "edf"

    def __init__(self, by: Literal["deadline", "latest_start"] = "deadline") -> None:
        self.by = by

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        if not job.deadline_ms:
            return WITHOUT_DEADLINE + job.seq
        return job.deadline_ms - cost if self.by == "latest_start" else float(job.deadline_ms)
