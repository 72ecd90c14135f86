"""The walk: tenants → lanes → jobs, with ceilings and pauses, as one pure object. The reference of the store's scripts.

The parity test and the property tests drive it; nothing of it knows where jobs are kept. `refresh` is the only place
where a child enters or leaves a walk: it makes "in the walk ⇔ runnable" true. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from queueapp.policies.node import Node, Pointers
from queueapp.policies.protocol import Candidate, Policy

BOOST = 10
"""`continue` jobs of a lane in a row that may pass its waiting `start` jobs."""
SMALLEST_CHARGE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is configured for a tenant or for a lane of it. `ceiling` None = no limit, 0 = closed."""

    weight: float = 1.0
    ceiling: int | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What the pick of one job was charged, with the weights it was charged at: all that a settlement needs."""

    id: str
    tenant: str
    lane: str
    charged: float
    tenant_weight: float
    lane_weight: float
    fallback: float
    """Where the tenant stood right after the charge."""
    estimated: bool


@dataclass(slots=True)
class _Lane:
    """The pending jobs of one lane by rank. `boost` counts the `continue` jobs that passed in a row."""

    fresh: Pointers = field(default_factory=Pointers)
    continued: Pointers = field(default_factory=Pointers)
    boost: int = 0

    def __len__(self) -> int:
        return len(self.fresh) + len(self.continued)

    def head(self) -> float:
        """The least rank of the lane, which is not empty."""
        heads = (self.fresh.first(), self.continued.first())
        return min(head[0] for head in heads if head is not None)

    def turn(self) -> Pointers:
        """The queue whose turn it is: 10 continued jobs to one fresh one, while both wait."""
        if len(self.continued) and (not len(self.fresh) or self.boost < BOOST):
            self.boost = self.boost + 1 if len(self.fresh) else 0
            return self.continued
        self.boost = 0
        return self.fresh


@dataclass(slots=True)
class _Tenant:
    """A tenant with waiting jobs, or with a tag at the root. `lanes` are those with pending jobs."""

    node: Node = field(default_factory=Node)
    lanes: dict[str, _Lane] = field(default_factory=dict)
    waiting: int = 0
    """Pending jobs, and those that wait for their time."""


class Tree:
    """The pending jobs of one pool under `policy`. `estimate` gives the cost of a job that declared none."""

    def __init__(self, policy: Policy, *, estimate: Callable[[Candidate], float] = lambda _: SMALLEST_CHARGE) -> None:
        self.policy = policy
        self.root = Node(self._forget)
        self.pool = Limits()
        self._estimate = estimate
        self._limits: dict[tuple[str, str], Limits] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._jobs: dict[str, Candidate] = {}
        self._parked: dict[str, Candidate] = {}
        self._leases: dict[str, tuple[str, str]] = {}
        self._in_flight: dict[tuple[str, str], int] = {}
        self._done: dict[str, None] | None = None

    # -- reading ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Pending jobs."""
        return len(self._jobs)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    @property
    def open(self) -> bool:
        """The pool itself lets a job be leased. Closing it leaves the walk as it is."""
        return not self.pool.paused and (self.pool.ceiling is None or len(self._leases) < self.pool.ceiling)

    def limits(self, tenant: str, lane: str = "") -> Limits:
        return self._limits.get((tenant, lane), Limits())

    def configured(self) -> Iterator[tuple[str, str]]:
        """The scopes that have limits of their own."""
        return iter(self._limits)

    def in_flight(self, tenant: str, lane: str = "") -> int:
        return self._in_flight.get((tenant, lane), 0)

    def tenants(self) -> Iterator[tuple[str, Node]]:
        """Each tenant that is remembered, with its node over lanes."""
        return ((tenant, held.node) for tenant, held in self._tenants.items())

    def lane_runnable(self, tenant: str, lane: str) -> bool:
        held = self._tenants.get(tenant)
        return held is not None and lane in held.lanes and self._has_room(tenant, lane)

    def tenant_runnable(self, tenant: str) -> bool:
        held = self._tenants.get(tenant)
        return held is not None and len(held.node.walk) > 0 and self._has_room(tenant, "")

    # -- changing -----------------------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """Several moves as one call of the store makes them: tenants that are done are forgotten at its end."""
        done = self._done = {}
        try:
            yield
        finally:
            self._done = None
            for tenant in done:
                self._forget(tenant)

    def push(self, job: Candidate) -> None:
        """`job` becomes pending: new, due, or back with its old seq after recovery or a return."""
        tenant = self._tenants.setdefault(job.tenant, _Tenant())
        lane = tenant.lanes.setdefault(job.lane, _Lane())
        self._queue(lane, job).put(job.id, self.policy.rank(job))
        if self._parked.pop(job.id, None) is None:
            tenant.waiting += 1
        self._jobs[job.id] = job
        self.refresh(job.tenant, job.lane)

    def park(self, job: Candidate) -> None:
        """`job` waits for its time. It is nowhere in the walk, but its tenant is not forgotten meanwhile."""
        self._tenants.setdefault(job.tenant, _Tenant()).waiting += 1
        self._parked[job.id] = job

    def remove(self, job_id: str) -> Candidate | None:
        """A waiting job goes without having run: cancelled, expired, moved. No charge."""
        job = self._take(job_id) or self._parked.pop(job_id, None)
        if job is not None:
            self._tenants[job.tenant].waiting -= 1
            self.refresh(job.tenant, job.lane)
        return job

    def pick(self) -> Charge | None:
        """Lease the next job: take it out, charge its lane and its tenant, take its slots."""
        least = self.root.walk.first()
        if least is None or not self.open:
            return None
        tenant = least[1]
        node = self._tenants[tenant].node
        least_lane = node.walk.first()
        assert least_lane is not None, "a tenant in the walk has a runnable lane"
        lane = least_lane[1]
        first = self._tenants[tenant].lanes[lane].turn().first()
        assert first is not None, "a runnable lane has a job"
        job = self._jobs[first[1]]
        declared = job.cost > 0
        cost = max(SMALLEST_CHARGE, job.cost if declared else self._estimate(job))
        tenant_weight, lane_weight = self.limits(tenant).weight, self.limits(tenant, lane).weight
        self.policy.served(node, lane, cost, lane_weight)
        position = self.policy.served(self.root, tenant, cost, tenant_weight)
        self._take(job.id)
        self._tenants[tenant].waiting -= 1
        self._leases[job.id] = (tenant, lane)
        self._count(tenant, lane, 1)
        self.refresh(tenant, lane)
        return Charge(
            id=job.id,
            tenant=tenant,
            lane=lane,
            charged=cost,
            tenant_weight=tenant_weight,
            lane_weight=lane_weight,
            fallback=position,
            estimated=not declared,
        )

    def settle(self, charge: Charge, actual: float) -> Charge:
        """Correct an estimate, or what the handler set, to the true cost; a return unrun settles at 0."""
        if not self.policy.charges:
            return charge
        difference = actual - charge.charged
        if not difference:
            return charge
        self.policy.settled(self.root, charge.tenant, difference, charge.tenant_weight, charge.fallback)
        if self._is_kept(charge.tenant):
            node = self._tenants.setdefault(charge.tenant, _Tenant()).node
            self.policy.settled(node, charge.lane, difference, charge.lane_weight, node.v)
        return replace(charge, charged=actual)

    def release(self, job_id: str) -> None:
        """The lease of `job_id` ended: its slots are free. A second release is a no-op."""
        scope = self._leases.pop(job_id, None)
        if scope is not None:
            self._count(*scope, -1)
            self.refresh(*scope)

    def configure(self, tenant: str, lane: str, limits: Limits) -> None:
        """Weight, ceiling and pause of a tenant (`lane` "") or of one lane; they act at once."""
        self._limits[tenant, lane] = limits
        if lane:
            self.refresh(tenant, lane)
        else:
            self._refresh_tenant(tenant)

    def refresh(self, tenant: str, lane: str) -> None:
        """Make "in the walk ⇔ runnable" true for the lane, then for its tenant; forget a tenant that is done."""
        held = self._tenants.get(tenant)
        if held is None:
            return
        if self.lane_runnable(tenant, lane):
            self._place(held.node, lane, held.lanes[lane].head())
        else:
            self.policy.leave(held.node, lane)
        self._refresh_tenant(tenant)

    # -- parts --------------------------------------------------------------------------------------------------

    def _refresh_tenant(self, tenant: str) -> None:
        held = self._tenants.get(tenant)
        if held is None:
            return
        least = held.node.walk.first()
        if least is not None and self._has_room(tenant, ""):
            self._place(self.root, tenant, least[0])
        else:
            self.policy.leave(self.root, tenant)
        self._forget(tenant)

    def _place(self, node: Node, child: str, head: float) -> None:
        if child in node.walk:
            self.policy.moved(node, child, head)
        else:
            self.policy.enter(node, child, head)

    def _has_room(self, tenant: str, lane: str) -> bool:
        limits = self.limits(tenant, lane)
        return not limits.paused and (limits.ceiling is None or self.in_flight(tenant, lane) < limits.ceiling)

    def _queue(self, lane: _Lane, job: Candidate) -> Pointers:
        return lane.continued if self.policy.tiered and job.tier == "continue" else lane.fresh

    def _take(self, job_id: str) -> Candidate | None:
        """Take a pending job out of its queue; the last of a lane takes the lane with it."""
        job = self._jobs.pop(job_id, None)
        if job is not None:
            lanes = self._tenants[job.tenant].lanes
            self._queue(lanes[job.lane], job).discard(job_id)
            if not len(lanes[job.lane]):
                del lanes[job.lane]
        return job

    def _count(self, tenant: str, lane: str, change: int) -> None:
        for scope in ((tenant, ""), (tenant, lane)):
            left = self._in_flight.get(scope, 0) + change
            if left:
                self._in_flight[scope] = left
            else:
                self._in_flight.pop(scope, None)

    def _is_kept(self, tenant: str) -> bool:
        """The tenant has waiting jobs, or is ahead of the clock."""
        held = self._tenants.get(tenant)
        return (held is not None and held.waiting > 0) or (self.root.tags.score(tenant) or 0.0) > self.root.v

    def _forget(self, tenant: str) -> None:
        """Drop what is kept of a tenant that is done."""
        if self._done is not None:
            self._done[tenant] = None
        elif not self._is_kept(tenant):
            self._tenants.pop(tenant, None)
