"""Random traffic for a pure tree: strategies of events, and what plays them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from queueapp.policies.charge import Charge
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from tests.model.witness import Witness

Event = tuple[Any, ...]
"""A verb and its arguments."""
TENANTS = ("ant", "bee", "cat", "dog")
LANES = ("main", "other")

weights = st.one_of(st.sampled_from([0.001, 0.5, 1.0, 2.0, 4.0, 1000.0]), st.floats(0.001, 1000))
costs = st.one_of(st.sampled_from([1.0, 2.0, 50.0]), st.floats(1, 10_000))
tenants = st.sampled_from(TENANTS)
lanes = st.sampled_from(LANES)
which = st.integers(0, 10**6)
limits = st.builds(
    Limits,
    weight=weights,
    ceiling=st.sampled_from([None, None, 0, 1, 2, 5]),
    paused=st.sampled_from([False, False, True]),
)

pushes = st.tuples(
    st.just("push"),
    tenants,
    lanes,
    st.integers(1, 6),
    costs,
    st.integers(-100, 100),
    st.sampled_from(["start", "continue"]),
)
picks = st.tuples(st.just("pick"), st.integers(1, 8))
finishes = st.tuples(st.just("finish"), which, costs)
steps = st.one_of(
    pushes,
    picks,
    picks,
    finishes,
    finishes,
    st.tuples(st.just("return"), which),
    st.tuples(st.just("charge"), which, costs),
    st.tuples(st.just("cancel"), which),
    st.tuples(st.just("configure"), tenants, st.sampled_from(["", "", *LANES]), limits),
)
traffic = st.lists(steps, min_size=10, max_size=120)
minima = st.builds(
    Limits,
    weight=weights,
    ceiling=st.sampled_from([None, None, 1, 2]),
    paused=st.sampled_from([False, False, False, True]),
    min_share=st.sampled_from([0, 1, 2, 5, 20]),
)
traffic_with_minima = st.lists(
    st.one_of(steps, st.tuples(st.just("configure"), tenants, st.just(""), minima)), min_size=10, max_size=120
)


def busy(policy: Policy, shares: dict[str, float], jobs: int, lane: str = "main") -> Witness:
    """A witness whose tenants have `jobs` each of declared cost 1 and the weights `shares`."""
    witness = Witness(Tree(policy))
    for tenant, weight in shares.items():
        witness.configure(tenant, "", Limits(weight=weight))
    for _ in range(jobs):
        for tenant in shares:
            witness.push(tenant, lane, cost=1)
    return witness


def run(witness: Witness, events: list[Event], workers: int, *, estimated: bool, refunded: bool = False) -> list[str]:
    """Play `events`; the ids in the order of their leases. With `estimated` no job declares its cost.

    With `refunded` declared costs, too, are given back with work that did not run.
    """
    order: list[str] = []
    pending: dict[str, Candidate] = {}
    for event in events:
        match event:
            case ("push", str(tenant), str(lane), int(count), float(cost), priority, tier):
                for _ in range(count):
                    job = witness.push(tenant, lane, cost=0.0 if estimated else cost, priority=priority, tier=tier)
                    pending[job.id] = job
            case ("pick", int(count)):
                for _ in range(min(count, workers - len(witness.flying))):
                    charge = witness.pick()
                    if charge is None:
                        break
                    order.append(charge.id)
            case ("finish", int(index), float(actual)) if witness.flying:
                done = witness.finish(index % len(witness.flying), actual if estimated else None)
                pending.pop(done.id)
            case ("return", int(index)) if witness.flying:
                back = witness.finish(index % len(witness.flying), 0.0 if estimated or refunded else None)
                witness.tree.push(pending[back.id])
                witness.look()
            case ("charge", int(index), float(actual)) if witness.flying and estimated:
                charge = witness.flying[index % len(witness.flying)]
                if actual > charge.charged:
                    witness.settle(index % len(witness.flying), actual)
            case ("cancel", int(index)) if pending:
                witness.cancel(sorted(pending)[index % len(pending)])
            case ("configure", str(tenant), str(lane), Limits() as changed):
                witness.configure(tenant, lane, changed)
    return order


def replay(tree: Tree, events: list[Event], workers: int) -> list[str]:
    """Like `run`, without a witness: what holds for policies that charge nothing."""
    order: list[str] = []
    flying: list[Charge] = []
    seq = 0
    for event in events:
        match event:
            case ("push", str(tenant), str(lane), int(count), float(cost), priority, tier):
                for _ in range(count):
                    seq += 1
                    tree.push(
                        Candidate(
                            id=str(seq), tenant=tenant, lane=lane, seq=seq, cost=cost, priority=priority, tier=tier
                        )
                    )
            case ("pick", int(count)):
                for _ in range(min(count, workers - len(flying))):
                    if (charge := tree.pick()) is not None:
                        order.append(charge.id)
                        flying.append(charge)
                        for scope in ((charge.tenant, ""), (charge.tenant, charge.lane)):
                            ceiling = tree.limits(*scope).ceiling
                            assert ceiling is None or tree.in_flight(*scope) <= ceiling
                            assert not tree.limits(*scope).paused
            case ("finish", int(index), _) if flying:
                tree.release(flying.pop(index % len(flying)).id)
            case ("configure", str(tenant), str(lane), Limits() as changed):
                tree.configure(tenant, lane, changed)
    return order
