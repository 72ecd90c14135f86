"""The leader's picture of one pool's walk, for policies that only Python knows: nodes and pointers, not the jobs.

The store keeps the jobs, and knows what may run; it tells of every change (`MirrorLane`). The mirror moves the nodes of
the policy along, in the order and with the calls of `policies.tree`, and chooses whose job is next (`choose`); the
answer of the store puts right what was not as expected (`answer`). For traffic that stands still while a call is made
the order is that of the tree, job by job (`tests/model/test_scheduled_parity.py`); what changes during a call acts on
the next one.

Of each lane the first jobs are known as far as they came through this leader (`Lane.known`), so that one call takes
many. Where what comes next is not known, the choice ends and the store tells. Not thread-safe: `dispatching.Dispatcher`
alone calls it.
"""

from __future__ import annotations

import json
import logging
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate, Place, Policy
from queueapp.store.leader_records import Correction, MirrorLane, Taken

logger = logging.getLogger(__name__)

AHEAD = 256
"""Jobs of a lane that are known ahead: as many as one call takes."""

Job = tuple[float, int, float]
"""Rank, number of submission, cost."""


@dataclass(slots=True)
class Lane:
    """A lane that may run. `more`: behind the jobs that are known stand others, or may."""

    weight: float
    known: list[Job] = field(default_factory=list)
    more: bool = True

    def begins_with(self, first: Job) -> None:
        """The store says who is first: what was taken for earlier is gone."""
        if not self.known or first[:2] > self.known[-1][:2]:
            self.more = True  # it came past this leader, so that others may have
        self.known = [first, *(job for job in self.known if job[:2] > first[:2])]

    def follows(self, job: Job) -> None:
        """A job joined the line."""
        if any(known[:2] == job[:2] for known in self.known):
            return
        if self.more and (not self.known or job > self.known[-1]):
            return  # behind it, but who knows how far
        insort(self.known, job)
        if len(self.known) > AHEAD:
            self.known.pop()
            self.more = True


@dataclass(slots=True)
class Tenant:
    """A tenant with lanes that may run, or that is ahead of the clock. `runs`: the store's walk has it."""

    node: Node
    weight: float = 1.0
    runs: bool = False
    lanes: dict[str, Lane] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The next job of a lane, and what the policy was told that it costs."""

    tenant: str
    lane: str
    job: Job


class Mirror:
    """The nodes of one pool under `policy`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.root = Node(self._forget)
        self.changed = False
        """Something moved that a successor must know (`dump`)."""
        self._tenants: dict[str, Tenant] = {}

    # -- what the store tells --------------------------------------------------------------------------------------

    def read(self, pages: Iterable[Sequence[MirrorLane]]) -> None:
        """The whole walk: what is not in it left while nobody followed."""
        running: dict[str, set[str]] = {}
        for page in pages:
            for told in page:
                if told.runs and told.lane:
                    running.setdefault(told.tenant, set()).add(told.lane)
                    self._tenant(told.tenant).runs = True
                self._follow(told)
        for name, tenant in list(self._tenants.items()):
            for lane in [*tenant.node.walk]:
                if lane not in running.get(name, ()):
                    self._leave(name, lane)
            tenant.runs = tenant.runs and name in running
            self._place_tenant(name)
        self.changed = True

    def follow(self, entered: Iterable[MirrorLane], corrected: Iterable[Correction] = ()) -> None:
        """What happened since the last call, in its order; then what jobs have cost in truth."""
        for told in entered:
            self._follow(told)
            self.changed = True
        for correction in corrected:
            self._correct(correction.tenant, correction.lane, correction.difference)

    def rank(self, job: Candidate, weight: float) -> float:
        """Its place in its lane, for `admit`. `weight`: the tenant's."""
        self.changed = True
        return self.policy.rank(self.root, job, job.cost, weight)

    def weight(self, tenant: str) -> float | None:
        """That of a tenant, where it is known."""
        held = self._tenants.get(tenant)
        return None if held is None else held.weight

    def admitted(self, jobs: Iterable[tuple[str, str, Job]]) -> None:
        """These (tenant, lane, job) joined their lines; called after `follow` has heard the same answer."""
        of_lanes: dict[tuple[str, str], list[Job]] = {}
        for tenant, lane_name, job in jobs:
            of_lanes.setdefault((tenant, lane_name), []).append(job)
        for scope, joined in of_lanes.items():
            lane = self._lane(*scope)
            if lane is None:
                continue  # it may not run: the store tells when it may
            if lane.more and len(lane.known) == 1 and lane.known[0][1] in {seq for _, seq, _ in joined}:
                lane.more = False  # the line begins with one of these, so it was empty before
            for job in sorted(joined):
                lane.follows(job)

    # -- who is next -----------------------------------------------------------------------------------------------

    def choose(self, most: int) -> list[Pick]:
        """Up to `most` picks in the policy's order, each charged as if it were taken already."""
        picks: list[Pick] = []
        while len(picks) < most and (least := self.root.walk.first()) is not None:
            name = least[2]
            tenant = self._tenants[name]
            least_lane = tenant.node.walk.first()
            if least_lane is None:
                break
            lane = tenant.lanes[least_lane[2]]
            if not lane.known:
                break  # who comes now only the store knows
            job = lane.known.pop(0)
            picks.append(Pick(tenant=name, lane=least_lane[2], job=job))
            self.changed = True
            self.policy.served(tenant.node, least_lane[2], job[0], job[2], lane.weight)
            self.policy.served(self.root, name, job[0], job[2], tenant.weight)
            if lane.known:
                self.policy.moved(tenant.node, least_lane[2], lane.known[0][:2])
                self._place_tenant(name)
            elif self.policy.ordered:
                break  # its next place may be before all others'
        return picks

    def answer(self, picks: Sequence[Pick], taken: Iterable[Taken]) -> int:
        """What became of the picks, in their order, with what was taken for minima in between. How many were taken."""
        expected = iter(picks)
        count = 0
        after: dict[tuple[str, str], Taken] = {}
        back: list[Pick] = []
        for told in taken:
            scope = (told.tenant, told.lane)
            self.changed = True
            if told.minimum:
                self._for_minimum(told)
                after.pop(scope, None)
                after[scope] = told
                continue
            pick = next(expected)
            if told.outcome == "taken":
                count += 1
                self._correct(*scope, told.cost - pick.job[2])
            else:
                self._correct(*scope, -pick.job[2])
                if told.outcome == "unasked":
                    back.append(pick)
            if told.outcome != "unasked" or scope not in after:
                after.pop(scope, None)  # the lanes are put right in the order in which they were last served
                after[scope] = told
        for pick in reversed(back):
            lane = self._lane(pick.tenant, pick.lane)
            if lane is not None:
                lane.known.insert(0, pick.job)
        ends = dict(after.keys())  # the last lane of each tenant
        for (name, lane_name), last in after.items():
            self._settle_down(name, lane_name, last, ends=ends[name] == lane_name)
        return count

    # -- for a successor -------------------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """All that the policy holds, for `restore`."""
        tenants = {
            name: {
                "weight": tenant.weight,
                "lanes": {lane: held.weight for lane, held in tenant.lanes.items()},
                "node": tenant.node.dump(),
            }
            for name, tenant in self._tenants.items()
        }
        held = {"policy": self.policy.name, "root": self.root.dump(), "tenants": tenants}
        blob = json.dumps(held, separators=(",", ":")).encode()
        self.changed = False
        return blob

    def restore(self, blob: bytes) -> bool:
        """Go on from what an earlier leader held; `read` comes next. False: it cannot be, and the log says why.

        What the walk was then is kept until `read` has said what it is now.
        """
        try:
            dumped = json.loads(blob)
            if dumped["policy"] != self.policy.name:
                about = {"policy": self.policy.name, "kept": str(dumped["policy"])}
                logger.info("What the policy before held is of no use to this one", extra=about)
                return False
            root = Node(self._forget)
            root.restore(dumped["root"])
            tenants = {}
            for name, saved in dumped["tenants"].items():
                lanes = {lane: Lane(weight=float(weight)) for lane, weight in saved["lanes"].items()}
                tenant = Tenant(
                    node=Node(root=root), weight=float(saved["weight"]), runs=name in root.walk, lanes=lanes
                )
                tenant.node.restore(saved["node"])
                tenants[name] = tenant
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            logger.warning(
                "What the leader before held of the policy cannot be read, so that it begins anew: %s",
                type(error).__name__,
                extra={"policy": self.policy.name},
            )
            return False
        self.root, self._tenants = root, tenants
        return True

    # -- parts -----------------------------------------------------------------------------------------------------

    def _tenant(self, name: str) -> Tenant:
        held = self._tenants.get(name)
        if held is None:
            held = self._tenants[name] = Tenant(node=Node(root=self.root))
        return held

    def _lane(self, tenant: str, lane: str) -> Lane | None:
        held = self._tenants.get(tenant)
        return held.lanes.get(lane) if held is not None else None

    def _follow(self, told: MirrorLane) -> None:
        if told.tenant not in self._tenants and not told.runs:
            return
        tenant = self._tenant(told.tenant)
        self._weigh(tenant, told.tenant, told.tenant_weight)
        if not told.lane:
            tenant.runs = told.runs
        elif told.runs:
            self._enter(tenant, told)
        else:
            self._leave(told.tenant, told.lane)
        self._place_tenant(told.tenant)

    def _weigh(self, tenant: Tenant, name: str, weight: float) -> None:
        if weight != tenant.weight:
            tenant.weight = weight
            if name in self.root.walk:
                self.policy.reweighed(self.root, name, weight)

    def _enter(self, tenant: Tenant, told: MirrorLane) -> None:
        """The lane stands in the walk, and this is its head."""
        lane = tenant.lanes.get(told.lane)
        if lane is None:
            lane = tenant.lanes[told.lane] = Lane(weight=told.lane_weight)
        elif told.lane_weight != lane.weight:
            lane.weight = told.lane_weight
            if told.lane in tenant.node.walk:
                self.policy.reweighed(tenant.node, told.lane, lane.weight)
        lane.begins_with((told.rank, told.seq, told.cost))
        self._place(tenant.node, told.lane, (told.rank, told.seq), lane.weight)

    def _leave(self, name: str, lane: str) -> None:
        tenant = self._tenants[name]
        tenant.lanes.pop(lane, None)
        if lane in tenant.node.walk:
            self.policy.leave(tenant.node, lane)

    def _place_tenant(self, name: str) -> None:
        """Make "in the root's walk ⇔ it runs and has a lane that does" true; forget a tenant that is done."""
        tenant = self._tenants.get(name)
        if tenant is None:
            return
        least = tenant.node.walk.first()
        if least is not None and tenant.runs:
            self._place(self.root, name, least[:2], tenant.weight)
        elif name in self.root.walk:
            self.policy.leave(self.root, name)
        self._forget(name)

    def _place(self, node: Node, child: str, place: Place, weight: float) -> None:
        if child in node.walk:
            self.policy.moved(node, child, place)
        else:
            self.policy.enter(node, child, place, weight)

    def _settle_down(self, name: str, lane_name: str, told: Taken, *, ends: bool) -> None:
        """How a lane and its tenant stand after a call. `ends`: it is the tenant's last one to be told of."""
        held = self._tenants.get(name)
        if held is None:
            return
        if told.lane_now is not None:
            if ends:
                held.runs = told.tenant_runs
            self._follow(told.lane_now)
        elif told.outcome in ("empty", "blocked"):
            self._leave(name, lane_name)
            self._place_tenant(name)
        elif (lane := held.lanes.get(lane_name)) is not None and lane.known:
            self._place(held.node, lane_name, lane.known[0][:2], lane.weight)
            self._place_tenant(name)

    def _for_minimum(self, told: Taken) -> None:
        """The store took it for a guaranteed minimum: the lane is charged, the tenant's turn is not."""
        held, lane = self._tenants.get(told.tenant), self._lane(told.tenant, told.lane)
        if held is not None and lane is not None and told.lane in held.node.walk:
            self.policy.served(held.node, told.lane, told.rank, told.cost, lane.weight)

    def _correct(self, name: str, lane_name: str, difference: float) -> None:
        """What was charged for jobs of a lane is another amount by now."""
        if not difference or not self.policy.charges:
            return
        self.changed = True
        held = self._tenants.get(name)
        self.policy.settled(self.root, name, difference, held.weight if held is not None else 1.0, self.root.v)
        held = self._tenants.get(name)
        if held is not None:
            lane = held.lanes.get(lane_name)
            weight = 1.0 if lane is None else lane.weight
            self.policy.settled(held.node, lane_name, difference, weight, held.node.v)

    def _forget(self, name: str) -> None:
        """Drop what is kept of a tenant that is done."""
        held = self._tenants.get(name)
        if held is None or len(held.node.walk) or name in self.root.walk:
            return
        if (self.root.tags.score(name) or 0.0) <= self.root.v:
            del self._tenants[name]
