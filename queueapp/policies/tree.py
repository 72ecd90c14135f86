"""The walk: tenants → lanes → jobs, with ceilings and pauses, as one pure object. The reference of the store's scripts.

The parity test and the property tests drive it; nothing of it knows where jobs are kept. `refresh` is the only place
where a child enters or leaves a walk: it makes "in the walk ⇔ runnable" true. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queueapp.policies.charge import Charge
from queueapp.policies.keyed import POINTER, Keyed, SubLane
from queueapp.policies.lanes import Lane, TenantWork
from queueapp.policies.node import Node, Pointers
from queueapp.policies.protocol import Candidate, Place, Policy
from queueapp.policies.room import Limits, Room

SMALLEST_CHARGE = 1.0
FLOOR_RUN = 9
"""Jobs in a row that guaranteed minima may give: the tenth goes by the policy's turn."""


class Tree:
    """The pending jobs of one pool under `policy`. `estimate` gives the cost of a job that declared none."""

    def __init__(self, policy: Policy, *, estimate: Callable[[Candidate], float] = lambda _: SMALLEST_CHARGE) -> None:
        self.policy = policy
        self.root = Node(self._forget)
        self.pool = Limits()
        self._estimate = estimate
        self.floor_run = 0
        """Jobs in a row that guaranteed minima gave."""
        self._room = Room()
        self._tenants: dict[str, TenantWork] = {}
        self._jobs: dict[str, Candidate] = {}
        self._parked: dict[str, Candidate] = {}
        self._done: dict[str, None] | None = None
        self._touched: dict[tuple[str, str], None] = {}
        self._freed: dict[tuple[str, str], None] = {}
        self.keyed = Keyed(self, turns=not policy.ordered, tokens=self._room.tokens)
        """Jobs with concurrency keys. It has the clock."""

    # -- reading ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Pending jobs."""
        return len(self._jobs)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    @property
    def open(self) -> bool:
        """The pool itself lets a job be leased. Closing it leaves the walk as it is."""
        return not self.pool.paused and (self.pool.ceiling is None or len(self._room.slots) < self.pool.ceiling)

    def limits(self, tenant: str, lane: str = "") -> Limits:
        return self._room.limits(tenant, lane)

    def configured(self) -> Iterator[tuple[str, str]]:
        """The scopes that have limits of their own."""
        return self._room.configured()

    def in_flight(self, tenant: str, lane: str = "") -> int:
        return self._room.slots.used(tenant, lane)

    def tenants(self) -> Iterator[tuple[str, Node]]:
        """Each tenant that is remembered, with its node over lanes."""
        return ((tenant, held.node) for tenant, held in self._tenants.items())

    def lane_runnable(self, tenant: str, lane: str) -> bool:
        held = self._tenants.get(tenant)
        return held is not None and len(held.lanes.get(lane, ())) > 0 and self._has_room(tenant, lane)

    def tenant_runnable(self, tenant: str) -> bool:
        held = self._tenants.get(tenant)
        return held is not None and len(held.node.walk) > 0 and self._has_room(tenant, "")

    def below_minimum(self, tenant: str) -> bool:
        """It may run, and holds fewer slots than it is to have before others."""
        return tenant in self.root.walk and self.in_flight(tenant) < self._room.minima.get(tenant, 0)

    # -- changing -----------------------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """Several moves as one call of the store makes them.

        At its end the lanes are put right in one order, which decides who goes first among those that enter together:
        those that jobs without keys came to or left, in the order of the first; then those that only got a slot back;
        then jobs with keys find their places. Tenants that are done are forgotten.
        """
        done = self._done = {}
        try:
            yield
        finally:
            for scope in self._touched | self._freed:
                self.refresh(*scope)
            self._touched, self._freed = {}, {}
            self.keyed.flush()
            self._done = None
            for tenant in done:
                self._forget(tenant)

    def push(self, job: Candidate, rank: float | None = None) -> None:
        """`job` becomes pending: new, due, or back with its old seq and `rank` after recovery or a return."""
        tenant = self._tenant(job.tenant)
        lane = tenant.lanes.setdefault(job.lane, Lane())
        if rank is None:
            rank = self.policy.rank(self.root, job, self._cost(job), self.limits(job.tenant).weight)
        if self._parked.pop(job.id, None) is None:
            tenant.waiting += 1
        self._jobs[job.id] = job
        if job.keys is not None:
            continued = self._is_continued(job)
            sub = self.keyed.put(self._sub_lane(job), job.keys, job.tenant, job.lane, continued=continued)
            sub.jobs.put(job.id, rank, job.seq)
            self.flush()
        else:
            self._queue(lane, job).put(job.id, rank, job.seq)
            self._touch(job.tenant, job.lane)

    def park(self, job: Candidate) -> None:
        """`job` waits for its time. It is nowhere in the walk, but its tenant is not forgotten meanwhile."""
        self._tenant(job.tenant).waiting += 1
        self._parked[job.id] = job

    def remove(self, job_id: str) -> Candidate | None:
        """A waiting job goes without having run: cancelled, expired, moved. No charge."""
        job = self._take(job_id)
        if job is None:
            job = self._parked.pop(job_id, None)
        elif job.keys is not None:
            self.keyed.drop(self._sub_lane(job), job_id)
        if job is not None:
            self._tenants[job.tenant].waiting -= 1
            if job.keys is None:
                self._touch(job.tenant, job.lane)
            else:
                self.flush()
                self._forget(job.tenant)
        return job

    def pick(self) -> Charge | None:
        """Lease the next job: take it out, charge its lane and its tenant, take its slots."""
        found = self._head() if self.open else None
        while found is None and self.keyed.unsettled and self._done is None:
            self.flush()  # who stepped aside may have let another one go
            found = self._head()
        if found is None:
            return None
        tenant, lane, rank, job, for_minimum = found
        held, cost = self._tenants[tenant], self._cost(job)
        tenant_weight, lane_weight = self.limits(tenant).weight, self.limits(tenant, lane).weight
        self.policy.served(held.node, lane, rank, cost, lane_weight)
        if for_minimum:
            position, self.floor_run = self.root.walk.score(tenant) or 0.0, self.floor_run + 1
        else:
            position, self.floor_run = self.policy.served(self.root, tenant, rank, cost, tenant_weight), 0
        self._take(job.id)
        if job.keys is not None:
            turn = cost / tenant_weight if self.policy.charges else 1.0
            self.keyed.lease(self.keyed.sub_lane(self._sub_lane(job)), job.id, turn)
        held.waiting -= 1
        self._room.lease(job.id, tenant, lane, self.keyed.now_ms)
        self.refresh(tenant, lane)
        self.flush()
        return Charge(
            id=job.id,
            tenant=tenant,
            lane=lane,
            rank=rank,
            charged=cost,
            tenant_weight=tenant_weight,
            lane_weight=lane_weight,
            fallback=position,
            estimated=not job.cost,
            for_minimum=for_minimum,
        )

    def settle(self, charge: Charge, actual: float) -> Charge:
        """Correct an estimate, or what the handler set, to the true cost; a return unrun settles at 0."""
        if not self.policy.charges:
            return charge
        difference = actual - charge.charged
        if not difference:
            return charge
        if not charge.for_minimum:
            self.policy.settled(self.root, charge.tenant, difference, charge.tenant_weight, charge.fallback)
        if self._is_kept(charge.tenant):
            node = self._tenant(charge.tenant).node
            self.policy.settled(node, charge.lane, difference, charge.lane_weight, node.v)
        return charge.corrected(actual)

    def release(self, job_id: str) -> None:
        """The lease of `job_id` ended: its slots are free. A second release is a no-op."""
        scope = self._room.slots.give_back(job_id)
        if scope is not None:
            if self._counts_slots(*scope):
                self._touch(*scope, freed=True)
            else:
                self._forget(scope[0])
            self.keyed.release(job_id)
            self.flush()

    def configure(self, tenant: str, lane: str, limits: Limits) -> None:
        """Weight, ceiling and pause of a tenant (`lane` "") or of one lane; they act at once."""
        before = self.limits(tenant, lane).weight
        self._room.configure(tenant, lane, limits, self.keyed.now_ms)
        if limits.weight != before:
            self._reweigh(tenant, lane, limits.weight)
        if lane:
            self.refresh(tenant, lane)
        else:
            self._refresh_tenant(tenant)

    def sweep_timers(self, most: int) -> bool:
        """Who has a token again enters the walk; whether there was anybody to look at."""
        due = self._room.due(most, self.keyed.now_ms)
        for tenant, lane in due:
            if lane:
                self.refresh(tenant, lane)
            else:
                self._refresh_tenant(tenant)
        return bool(due)

    def refresh(self, tenant: str, lane: str) -> None:
        """Make "in the walk ⇔ runnable" true for the lane, then for its tenant; forget a tenant that is done."""
        held = self._tenants.get(tenant)
        if held is None:
            return
        pending = held.lanes.get(lane)
        if pending is not None and not len(pending):
            del held.lanes[lane]
            pending = None
        if pending is not None and self._has_room(tenant, lane):
            self._place(held.node, lane, pending.head(), self.limits(tenant, lane).weight)
        else:
            self.policy.leave(held.node, lane)
        self._refresh_tenant(tenant)

    def flush(self) -> None:
        """What was done to jobs with keys takes effect, unless a call goes on."""
        if self._done is None and self.keyed:
            with self.together():
                pass

    def queue_of(self, tenant: str, lane: str, *, continued: bool) -> Pointers:
        held = self._tenant(tenant).lanes.setdefault(lane, Lane())
        return held.continued if continued else held.fresh

    def admits(self, tenant: str, lane: str) -> bool:
        """Tenant and lane themselves let a job run."""
        return self._has_room(tenant, "") and self._has_room(tenant, lane)

    # -- parts --------------------------------------------------------------------------------------------------

    def _turn(self) -> tuple[str, bool] | None:
        """Whose turn it is, and whether its guaranteed minimum gives it."""
        if self.floor_run < FLOOR_RUN and self._room.minima:
            names = [name for name in self._room.minima if self.below_minimum(name) and name not in self.root.passed]
            below = [(self.root.walk.place(name), name) for name in names]
            if below:
                return min(below)[1], True
        least = self.root.turn()
        return None if least is None else (least[2], False)

    def _head(self) -> tuple[str, str, float, Candidate, bool] | None:
        """Whose turn it is, with the job; sub-lanes with a full key step aside on the way."""
        while (turn := self._turn()) is not None:
            tenant, for_minimum = turn
            least_lane = self._tenants[tenant].node.turn()
            assert least_lane is not None, "a tenant whose turn it is has a lane that may run"
            lane = self._tenants[tenant].lanes[least_lane[2]]
            queue = lane.turn()
            first = queue.first()
            assert first is not None, "a runnable lane has a job"
            rank, _, member = first
            if member.startswith(POINTER):
                sub = self.keyed.of_pointer(member)
                if self.keyed.full(sub) is not None:
                    self._step_aside(sub)
                    continue
                head = sub.jobs.first()
                assert head is not None, "a sub-lane that stands in its lane has a job"
                rank, _, member = head
            lane.served(queue)
            return tenant, least_lane[2], rank, self._jobs[member], for_minimum
        return None

    def _step_aside(self, sub: SubLane) -> None:
        """Or its lane is passed over: with it its tenant, whose last lane it is or whose place under an order it is."""
        if self.keyed.may_step_aside:
            self.keyed.step_aside(sub)
            self.refresh(sub.tenant, sub.lane)
            return
        node = self._tenants[sub.tenant].node
        self.keyed.pass_over(node, sub.lane)
        if self.policy.ordered or node.turn() is None:
            self.keyed.pass_over(self.root, sub.tenant)

    def _touch(self, tenant: str, lane: str, *, freed: bool = False) -> None:
        """Put the lane right, now or at the end of `together`. `freed`: it got a slot back."""
        if self._done is None:
            self.refresh(tenant, lane)
        else:
            (self._freed if freed else self._touched)[tenant, lane] = None

    def _tenant(self, name: str) -> TenantWork:
        held = self._tenants.get(name)
        if held is None:
            held = self._tenants[name] = TenantWork(node=Node(root=self.root))
        return held

    def _refresh_tenant(self, tenant: str) -> None:
        held = self._tenants.get(tenant)
        if held is None:
            return
        least = held.node.walk.first()
        if least is not None and self._has_room(tenant, ""):
            self._place(self.root, tenant, least[:2], self.limits(tenant).weight)
        else:
            self.policy.leave(self.root, tenant)
        self._forget(tenant)

    def _place(self, node: Node, child: str, head: Place, weight: float) -> None:
        if child in node.walk:
            self.policy.moved(node, child, head)
        else:
            self.policy.enter(node, child, head, weight)

    def _reweigh(self, tenant: str, lane: str, weight: float) -> None:
        held = self._tenants.get(tenant)
        if lane and held is not None and lane in held.node.walk:
            self.policy.reweighed(held.node, lane, weight)
        elif not lane and tenant in self.root.walk:
            self.policy.reweighed(self.root, tenant, weight)

    def _cost(self, job: Candidate) -> float:
        return max(SMALLEST_CHARGE, job.cost or self._estimate(job))

    def _has_room(self, tenant: str, lane: str) -> bool:
        return self._room.has(tenant, lane, self.keyed.now_ms)

    def _counts_slots(self, tenant: str, lane: str) -> bool:
        """A slot given back may let somebody run."""
        ceilings = (self.pool.ceiling, self.limits(tenant).ceiling, self.limits(tenant, lane).ceiling)
        return tenant in self._room.minima or any(ceiling is not None for ceiling in ceilings)

    def _queue(self, lane: Lane, job: Candidate) -> Pointers:
        return lane.continued if self._is_continued(job) else lane.fresh

    def _is_continued(self, job: Candidate) -> bool:
        return self.policy.tiered and job.tier == "continue"

    def _sub_lane(self, job: Candidate) -> str:
        assert job.keys is not None
        return f"{'qc' if self._is_continued(job) else 'q'}:{job.tenant}|{job.lane}|{POINTER}{job.keys.id}"

    def _take(self, job_id: str) -> Candidate | None:
        """Take a pending job out of its queue; the last of a lane takes the lane with it."""
        job = self._jobs.pop(job_id, None)
        if job is not None and job.keys is None:
            lanes = self._tenants[job.tenant].lanes
            self._queue(lanes[job.lane], job).discard(job_id)
            if not len(lanes[job.lane]):
                del lanes[job.lane]
        return job

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
