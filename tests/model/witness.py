"""A witness of the walk: drives a pure `Tree` with any traffic and holds it to what its policy promises, step by step.

The invariants carry the numbers of the design. Of every policy: I1 in the walk ⇔ runnable, I2 V never decreases. Of
`tiered`: I3 nobody in the walk lies behind V but for refunds, I4 the bound between any two tenants, I6 no tag at or
behind V, I7 a newcomer is not served twice before those it found ahead of it. (I5, exact shares, is a test of its own.)
Guaranteed minima are on top: they serve whom they must, and what they give counts for none of these.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from queueapp.policies.charge import Charge
from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate
from queueapp.policies.room import Limits
from queueapp.policies.tree import FLOOR_RUN, Tree

TOLERANCE = 1e-9
"""Relative: the witness sums in another order than the tree does."""


@dataclass(slots=True)
class _Service:
    """Normalised service of one tenant, and what its bound is made of."""

    normalised: float = 0.0
    largest: float = 0.0
    """The largest cost over weight of one job."""
    in_flight: int = 0
    most_in_flight: int = 0


@dataclass(slots=True)
class _Spread:
    """The range of the difference between two tenants while both are in the walk and their weights stand."""

    low: float
    high: float


@dataclass(slots=True)
class _Entry:
    """A child that entered: who must be served before it is served twice, and how often it was."""

    ahead: set[str]
    served: int = 0


@dataclass
class Witness:
    """Wraps a tree; `settled` says that costs are corrected after the pick, which widens I3 and I4."""

    tree: Tree
    settled: bool = False
    worst: float = 0.0
    """Largest ratio of an observed difference to its bound."""
    flying: list[Charge] = field(default_factory=list)
    _seq: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _service: dict[str, _Service] = field(default_factory=lambda: defaultdict(_Service))
    _spreads: dict[tuple[str, str], _Spread] = field(default_factory=dict)
    _clocks: dict[int, tuple[Node, float]] = field(default_factory=dict)
    _refunds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _walking: set[str] = field(default_factory=set)

    @property
    def tiered(self) -> bool:
        return self.tree.policy.name == "tiered"

    # -- traffic ------------------------------------------------------------------------------------------------

    def push(self, tenant: str, lane: str, **options: Any) -> Candidate:
        seq = next(self._seq)
        job = Candidate(id=f"{seq:08d}", tenant=tenant, lane=lane, seq=seq, **options)
        self.tree.push(job)
        self.look()
        return job

    def cancel(self, job_id: str) -> None:
        self.tree.remove(job_id)
        self.look()

    def pick(self) -> Charge | None:
        walking = {tenant: self.tree.root.walk.score(tenant) for tenant in self.tree.root.walk}
        below = [(self.tree.root.walk.place(one), one) for one in walking if self.tree.below_minimum(one)]
        run = self.tree.floor_run
        charge = self.tree.pick()
        if charge is None:
            return None
        self._check_minimum(charge, min(below)[1] if below and run < FLOOR_RUN else None, walking)
        self.flying.append(charge)
        service = self._service[charge.tenant]
        service.in_flight += 1
        service.most_in_flight = max(service.most_in_flight, service.in_flight)
        if self.tiered and not charge.for_minimum:
            self._serve(charge.tenant, charge.charged / charge.tenant_weight)
            self._note_turn(charge.tenant, walking)
        self.look()
        return charge

    def settle(self, index: int, actual: float) -> None:
        """Charge the job `index` in flight to `actual`; it stays in flight."""
        charge = self.flying[index]
        if charge.for_minimum:
            self.flying[index] = self.tree.settle(charge, actual)
            self.look()
            return
        moved = (actual - charge.charged) / charge.tenant_weight
        service = self._service[charge.tenant]
        service.largest = max(service.largest, actual / charge.tenant_weight)
        if moved < 0:
            self._refunds[charge.tenant] -= moved
        self.flying[index] = self.tree.settle(charge, actual)
        self._serve(charge.tenant, moved)
        self._entries.clear()
        self.look()

    def finish(self, index: int, actual: float | None = None) -> Charge:
        if actual is not None:
            self.settle(index, actual)
        charge = self.flying.pop(index)
        self._service[charge.tenant].in_flight -= 1
        self.tree.release(charge.id)
        self.look()
        return charge

    def configure(self, tenant: str, lane: str, limits: Limits) -> None:
        before = self.tree.limits(tenant).weight
        self.tree.configure(tenant, lane, limits)
        if not lane and limits.weight != before:
            self._spreads = {pair: spread for pair, spread in self._spreads.items() if tenant not in pair}
        self.look()

    def _check_minimum(self, charge: Charge, first: str | None, walking: dict[str, float | None]) -> None:
        """The first below its minimum is served, and its turn stays where it was; else the policy's turn decides."""
        assert charge.for_minimum == (first is not None)
        assert self.tree.floor_run <= FLOOR_RUN
        if first is not None:
            assert charge.tenant == first
            assert self.tree.policy.ordered or self.tree.root.walk.score(first) in {walking[first], None}

    # -- invariants ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Check I1 and I2; of `tiered` I3 and I6, too, and see who entered or left."""
        self._check_walks()
        self._check_clocks()
        if not self.tiered:
            return
        root, walking = self.tree.root, set(self.tree.root.walk)
        for tenant in walking:
            start = root.walk.score(tenant)
            assert start is not None
            slack = TOLERANCE * max(1.0, root.v)
            if start >= root.v:
                self._refunds.pop(tenant, None)
            else:
                assert start >= root.v - self._refunds[tenant] - slack, f"I3: {tenant} at {start}, V {root.v}"
        for gone in self._walking - walking:
            self._spreads = {pair: spread for pair, spread in self._spreads.items() if gone not in pair}
            self._entries.pop(gone, None)
            for entry in self._entries.values():
                entry.ahead.discard(gone)
        for entered in walking - self._walking:
            start = root.walk.score(entered) or 0.0
            ahead = {other for other in walking if other != entered and (root.walk.score(other) or 0.0) <= start}
            self._entries[entered] = _Entry(ahead)
        self._walking = walking
        for pair in itertools.combinations(sorted(walking), 2):
            if pair not in self._spreads:
                difference = self._difference(pair)
                self._spreads[pair] = _Spread(difference, difference)

    def _check_walks(self) -> None:
        for tenant, node in self.tree.tenants():
            for lane in {*node.walk, *node.tags, "main", "other"}:
                assert (lane in node.walk) == self.tree.lane_runnable(tenant, lane), f"I1: {tenant}|{lane}"
            assert (tenant in self.tree.root.walk) == self.tree.tenant_runnable(tenant), f"I1: {tenant}"

    def _check_clocks(self) -> None:
        nodes = [("root", self.tree.root), *self.tree.tenants()]
        clocks = {}
        for name, node in nodes:
            known, earlier = self._clocks.get(id(node), (node, 0.0))
            if known is node:
                assert node.v >= earlier, f"I2: {name} from {earlier} to {node.v}"
            clocks[id(node)] = (node, node.v)
            for child in node.tags if self.tiered else ():
                assert (node.tags.score(child) or 0.0) > node.v, f"I6: {name}, {child}"
                assert child not in node.walk
        self._clocks = clocks

    def _difference(self, pair: tuple[str, str]) -> float:
        return self._service[pair[0]].normalised - self._service[pair[1]].normalised

    def _serve(self, tenant: str, amount: float) -> None:
        service = self._service[tenant]
        service.normalised += amount
        service.largest = max(service.largest, amount)
        for pair, spread in self._spreads.items():
            if tenant in pair:
                difference = self._difference(pair)
                spread.low, spread.high = min(spread.low, difference), max(spread.high, difference)
                bound = sum(self._share_of_bound(one) for one in pair)
                scale = max(abs(self._service[one].normalised) for one in pair)
                observed = spread.high - spread.low
                assert observed <= bound + TOLERANCE * max(1.0, scale), f"I4: {pair} {observed} > {bound}"
                self.worst = max(self.worst, observed / bound if bound else 0.0)

    def _share_of_bound(self, tenant: str) -> float:
        service = self._service[tenant]
        return service.largest * (1 + service.most_in_flight if self.settled else 1)

    def _note_turn(self, tenant: str, walking: dict[str, float | None]) -> None:
        """I7: between the entry of a child and the first service of one it found ahead, it is served once at most."""
        entry = self._entries.get(tenant)
        if entry is not None:
            entry.served += 1
            assert entry.served <= 1 or not entry.ahead, f"I7: {tenant} twice before {entry.ahead}"
        for other in list(self._entries):
            if tenant in self._entries[other].ahead:
                del self._entries[other]


def lag_bound(costs: tuple[float, float], weights: tuple[float, float], in_flight: tuple[int, int] = (0, 0)) -> float:
    """The bound between two tenants, from their largest costs, weights and (with settlement) jobs in flight."""
    return math.fsum((1 + n) * cost / weight for cost, weight, n in zip(costs, weights, in_flight, strict=True))
