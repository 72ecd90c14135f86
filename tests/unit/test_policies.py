"""Every policy keeps the protocol: one suite over all of them; the registry, `fifo`, and the node underneath."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.models import Pool
from queueapp.policies.node import TAGS_DROPPED_PER_LIFT, Node, Pointers
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.registry import DIRECT, POLICIES, PYTHON
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from tests.model.traffic import LANES, TENANTS, Event, busy, replay, traffic

every_policy = pytest.mark.parametrize("policy", [POLICIES[name]() for name in sorted(POLICIES)], ids=sorted(POLICIES))


# -- the registry ------------------------------------------------------------------------------------------------


def test_each_policy_has_the_name_that_a_pool_can_choose() -> None:
    assert {name: cls().name for name, cls in POLICIES.items()} == {name: name for name in POLICIES}
    assert set(Pool.Policy.values) == set(POLICIES)
    assert set(POLICIES) == DIRECT | PYTHON
    assert not DIRECT & PYTHON


# -- every policy ------------------------------------------------------------------------------------------------


@every_policy
@given(events=traffic, workers=st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_each_job_is_leased_at_most_once_and_within_the_ceilings(
    policy: Policy, events: list[Event], workers: int
) -> None:
    tree = Tree(policy)
    order = replay(tree, events, workers)
    assert all(again == 1 for again in Counter(order).values())
    for tenant in TENANTS:
        for lane in LANES:
            tree.configure(tenant, lane, Limits())
        tree.configure(tenant, "", Limits())
    left = len(tree)
    rest = [charge.id for charge in iter(tree.pick, None)]
    assert len(rest) == left
    assert len(tree) == 0
    assert not tree.root.walk
    assert not set(rest) & set(order)


@every_policy
def test_a_paused_or_closed_scope_is_remembered_and_comes_back(policy: Policy) -> None:
    for lane in ("", "main"):
        for stop in (Limits(paused=True), Limits(ceiling=0)):
            witness = busy(policy, {"ant": 1.0, "bee": 1.0}, 2)
            witness.tree.configure("ant", lane, stop)
            assert [charge.tenant for charge in iter(witness.tree.pick, None)] == ["bee", "bee"]
            witness.tree.configure("ant", lane, Limits())
            assert [charge.tenant for charge in iter(witness.tree.pick, None)] == ["ant", "ant"]


@every_policy
def test_a_closed_pool_leaves_the_walk_as_it_is(policy: Policy) -> None:
    tree = busy(policy, {"ant": 1.0}, 2).tree
    tree.pool = Limits(ceiling=1)
    first = tree.pick()
    assert first is not None
    assert tree.pick() is None
    assert "ant" in tree.root.walk
    tree.release(first.id)
    assert tree.pick() is not None


@every_policy
def test_a_slot_given_back_twice_is_given_back_once(policy: Policy) -> None:
    tree = busy(policy, {"ant": 1.0}, 2).tree
    charge = tree.pick()
    assert charge is not None
    tree.release(charge.id)
    tree.release(charge.id)
    assert tree.in_flight("ant") == 0
    assert tree.in_flight("ant", "main") == 0


@every_policy
def test_nothing_is_remembered_of_a_tenant_that_is_done(policy: Policy) -> None:
    tree = busy(policy, {"ant": 1.0, "bee": 3.0}, 5).tree
    for charge in iter(tree.pick, None):
        tree.settle(charge, charge.charged)
        tree.release(charge.id)
    assert [tenant for tenant, _ in tree.tenants()] == list(tree.root.tags)
    tree.push(Candidate(id="late", tenant="cat", seq=99, cost=1000))
    tree.pick()
    assert not list(tree.tenants())


@every_policy
def test_a_job_that_came_back_keeps_its_place(policy: Policy) -> None:
    tree = Tree(policy)
    jobs = [Candidate(id=str(seq), tenant="ant", seq=seq) for seq in (1, 2, 3)]
    for job in jobs:
        tree.push(job)
    first = tree.pick()
    assert first is not None
    tree.release(first.id)
    tree.push(jobs[0], first.rank)
    assert [charge.id for charge in iter(tree.pick, None)] == ["1", "2", "3"]


# -- fifo --------------------------------------------------------------------------------------------------------


@given(events=traffic)
@settings(deadline=None, max_examples=60)
def test_fifo_is_the_order_of_submission_over_all_that_is_runnable(events: list[Event]) -> None:
    tree = Tree(POLICIES["fifo"]())
    open_jobs: dict[int, tuple[str, str]] = {}
    seq = 0
    for event in events:
        match event:
            case ("push", str(tenant), str(lane), int(count), float(cost), priority, tier):
                for _ in range(count):
                    seq += 1
                    open_jobs[seq] = (tenant, lane)
                    tree.push(
                        Candidate(
                            id=str(seq), tenant=tenant, lane=lane, seq=seq, cost=cost, priority=priority, tier=tier
                        )
                    )
            case ("configure", str(tenant), str(lane), Limits() as changed):
                tree.configure(tenant, lane, changed)
            case ("pick", _):
                able = [
                    number
                    for number, (tenant, lane) in open_jobs.items()
                    if tree.lane_runnable(tenant, lane) and tree.tenant_runnable(tenant)
                ]
                charge = tree.pick()
                assert (charge.id if charge else None) == (str(min(able)) if able else None)
                if charge is not None:
                    del open_jobs[int(charge.id)]


# -- the node ----------------------------------------------------------------------------------------------------


def test_one_lift_forgets_a_bounded_number_of_tags() -> None:
    forgotten: list[str] = []
    node = Node(forgotten.append)
    names = [f"t{number:03d}" for number in range(TAGS_DROPPED_PER_LIFT + 10)]
    for name in names:
        node.tags.put(name, 1.0)
    node.enter("zed")
    node.add("zed", 2.0, 0.0)
    assert forgotten == names[:TAGS_DROPPED_PER_LIFT]
    node.add("zed", 1.0, 0.0)
    assert forgotten == names


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 5)))))
def test_pointers_sort_as_a_sorted_set_does(changes: list[tuple[str, int | None]]) -> None:
    pointers = Pointers()
    plain: dict[str, int] = {}
    for member, score in changes:
        if score is None:
            pointers.discard(member)
            plain.pop(member, None)
        else:
            pointers.put(member, score)
            plain[member] = score
        assert pointers.first() == min(((score, 0, member) for member, score in plain.items()), default=None)
    assert pointers.pop_until(2, 3) == [m for s, m in sorted((s, m) for m, s in plain.items()) if s <= 2][:3]
