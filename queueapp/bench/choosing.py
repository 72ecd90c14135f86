"""Who is next in a simulation: the queue's own tree, or, where it comes to the same, one line. Pure.

Under an ordered policy, where nobody has a limit, tenants, lanes and their pointers decide nothing: the least place of
all is next. A plain heap finds it several times as fast. That both choose alike is a property test's to say
(tests/unit/test_choosing.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Protocol

from queueapp.policies.charge import Charge
from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.room import Limits
from queueapp.policies.tree import SMALLEST_CHARGE, Tree

Estimate = Callable[[Candidate], float]
"""The cost of a job that declared none."""


class Chooser(Protocol):
    """The pending jobs of a pool."""

    def push(self, job: Candidate, rank: float | None = None) -> None:
        """`job` becomes pending; with a `rank`, at the place that it had before."""

    def park(self, job: Candidate) -> None:
        """`job` waits for its time."""

    def pick(self) -> Charge | None:
        """The next job begins; None where none may."""

    def let_go(self, charge: Charge, run_ms: float) -> None:
        """A run is over: the true cost of an estimate is charged, and the slot that it held is free."""


def chooser(policy: Policy, limits: Mapping[str, Limits], estimate: Estimate) -> Chooser:
    """The quickest that chooses as the queue does. `limits`: those of tenants."""
    if isinstance(policy, Ordered) and not limits:
        return Line(policy, estimate)
    return Walk(policy, limits, estimate)


class Walk:
    """The tree, as the queue uses it."""

    def __init__(self, policy: Policy, limits: Mapping[str, Limits], estimate: Estimate) -> None:
        self._tree = Tree(policy, estimate=estimate)
        self.push = self._tree.push
        self.park = self._tree.park
        self.pick = self._tree.pick
        for tenant, own in limits.items():
            self._tree.configure(tenant, "", own)

    def let_go(self, charge: Charge, run_ms: float) -> None:
        with self._tree.together():
            if charge.estimated:
                self._tree.settle(charge, run_ms)
            self._tree.release(charge.id)


class Line:
    """A heap by rank and submission. An ordered policy settles nothing, and without limits no slot is anybody's."""

    def __init__(self, policy: Policy, estimate: Estimate) -> None:
        self._policy = policy
        self._root = Node()
        self._estimate = estimate
        self._pending: list[tuple[float, int, Candidate]] = []

    def push(self, job: Candidate, rank: float | None = None) -> None:
        if rank is None:
            rank = self._policy.rank(self._root, job, self._cost(job), 1.0)
        heapq.heappush(self._pending, (rank, job.seq, job))

    def park(self, job: Candidate) -> None:
        return None

    def pick(self) -> Charge | None:
        if not self._pending:
            return None
        rank, _, job = heapq.heappop(self._pending)
        cost = self._cost(job)
        return Charge(
            id=job.id,
            tenant=job.tenant,
            lane=job.lane,
            rank=rank,
            charged=cost,
            tenant_weight=1.0,
            lane_weight=1.0,
            fallback=self._policy.served(self._root, job.tenant, rank, cost, 1.0),
            estimated=not job.cost,
        )

    def let_go(self, charge: Charge, run_ms: float) -> None:
        return None

    def _cost(self, job: Candidate) -> float:
        return max(SMALLEST_CHARGE, job.cost or self._estimate(job))
