"""The bounds that the docstrings of policies state, held by the reference under random traffic (not of `tiered`)."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.policies.aging import Aging
from queueapp.policies.edf import Edf
from queueapp.policies.fifo import Fifo
from queueapp.policies.priority import Priority
from queueapp.policies.protocol import Candidate, Place, Policy
from queueapp.policies.registry import POLICIES
from queueapp.policies.ring import Ring
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from queueapp.policies.wfq import Wfq
from tests.model.traffic import Event

TENANTS = ("ant", "bee", "cat", "dog")
LANES = ("main", "other")
STEP_MS = 1_000
tenants, lanes = st.sampled_from(TENANTS), st.sampled_from(LANES)
costs = st.one_of(st.sampled_from([1.0, 1.0, 50.0]), st.floats(1, 1_000))
pushes = st.tuples(st.just("push"), tenants, lanes, costs, st.integers(-100, 100), st.integers(1, 6))
picks = st.tuples(st.just("pick"), st.integers(1, 6))


@dataclass
class Bench:
    """A tree without running jobs: what is picked ends at once."""

    tree: Tree
    waiting: dict[str, Candidate] = field(default_factory=dict)
    seq: int = 0

    def push(self, tenant: str, lane: str = "main", **options: Any) -> Candidate:
        self.seq += 1
        job = Candidate(id=f"{self.seq:08d}", tenant=tenant, lane=lane, seq=self.seq, **options)
        self.waiting[job.id] = job
        self.tree.push(job)
        return job

    def pick(self) -> Candidate | None:
        charge = self.tree.pick()
        if charge is None:
            return None
        self.tree.release(charge.id)
        return self.waiting.pop(charge.id)


# -- wfq ---------------------------------------------------------------------------------------------------------


@given(
    weights=st.lists(st.one_of(st.sampled_from([0.5, 1.0, 4.0]), st.floats(0.01, 100)), min_size=4, max_size=4),
    events=st.lists(st.one_of(pushes, picks, picks), min_size=10, max_size=80),
)
@settings(deadline=None, max_examples=200)
def test_wfq_keeps_two_backlogged_tenants_within_a_job_each(weights: list[float], events: list[Event]) -> None:
    bench, share = Bench(Tree(Wfq())), dict(zip(TENANTS, weights, strict=True))
    for tenant, weight in share.items():
        bench.tree.configure(tenant, "", Limits(weight=weight))
    had: dict[str, float] = defaultdict(float)
    largest: dict[str, float] = defaultdict(float)
    spread: dict[tuple[str, str], tuple[float, float]] = {}
    for event in events:
        match event:
            case ("push", str(tenant), str(lane), float(cost), _, int(count)):
                largest[tenant] = max(largest[tenant], cost / share[tenant])
                for _ in range(count):
                    bench.push(tenant, lane, cost=cost)
            case ("pick", int(count)):
                for _ in range(count):
                    if (job := bench.pick()) is not None:
                        had[job.tenant] += job.cost / share[job.tenant]
                    spread = _spread(bench, had, spread)
                    for (one, other), (low, high) in spread.items():
                        bound = largest[one] + largest[other]
                        assert high - low <= bound * (1 + 1e-9) + 1e-9 * max(had[one], had[other]), (one, other)
        spread = _spread(bench, had, spread)


def _spread(
    bench: Bench, had: dict[str, float], before: dict[tuple[str, str], tuple[float, float]]
) -> dict[tuple[str, str], tuple[float, float]]:
    """The range of the difference between two tenants since both have had work waiting."""
    backlogged = sorted({job.tenant for job in bench.waiting.values()})
    after = {}
    for pair in itertools.combinations(backlogged, 2):
        difference = had[pair[0]] - had[pair[1]]
        low, high = before.get(pair, (difference, difference))
        after[pair] = (min(low, difference), max(high, difference))
    return after


def test_wfq_starts_a_newcomer_at_the_clock_and_banks_no_credit() -> None:
    bench = Bench(Tree(Wfq()))
    for _ in range(50):
        bench.push("ant", cost=10)
    for _ in range(30):
        bench.pick()
    for _ in range(5):
        bench.push("bee", cost=10)
    order = [job.tenant for job in iter(bench.pick, None)]
    assert order[:10] == ["ant", "bee"] * 5


# -- ring --------------------------------------------------------------------------------------------------------


@given(
    events=st.lists(
        st.one_of(pushes, picks, picks, st.tuples(st.just("pause"), tenants, st.booleans())), min_size=10, max_size=80
    )
)
@settings(deadline=None, max_examples=200)
def test_ring_serves_each_other_tenant_at_most_once_between_two_of_mine(events: list[Event]) -> None:
    bench = Bench(Tree(Ring()))
    between: dict[str, Counter[str]] = {}
    for event in events:
        match event:
            case ("push", str(tenant), str(lane), float(cost), int(priority), int(count)):
                for _ in range(count):
                    bench.push(tenant, lane, cost=cost, priority=priority)
            case ("pause", str(tenant), bool(paused)):
                bench.tree.configure(tenant, "", Limits(paused=paused))
            case ("pick", int(count)):
                for _ in range(count):
                    if (job := bench.pick()) is not None:
                        between.pop(job.tenant)
                        for since in between.values():
                            since[job.tenant] += 1
                            assert since[job.tenant] == 1
                        if job.tenant in bench.tree.root.walk:
                            between[job.tenant] = Counter()
        runnable = set(bench.tree.root.walk)
        between = {tenant: between.get(tenant, Counter()) for tenant in runnable}


def test_ring_takes_lanes_in_turn_too_and_priorities_count_for_nothing() -> None:
    bench = Bench(Tree(Ring()))
    for lane in ("a", "a", "a", "b", "b"):
        bench.push("ant", lane, priority=100 if lane == "b" else 0)
    assert [job.lane for job in iter(bench.pick, None)] == ["a", "b", "a", "b", "a"]


# -- the ordered ones --------------------------------------------------------------------------------------------


def place_of(policy: Policy, job: Candidate) -> Place:
    """By the definition, written down once more."""
    match policy.name:
        case "priority":
            return (-job.priority, job.seq)
        case "edf":
            return (job.deadline_ms or 10**16, job.seq)
        case "aging":
            return (job.ready_ms - STEP_MS * job.priority, job.seq)
    return (0, job.seq)


@pytest.mark.parametrize("policy", [Fifo(), Priority(), Edf(), Aging(step_ms=STEP_MS)], ids=lambda policy: policy.name)
@given(
    events=st.lists(
        st.one_of(
            pushes,
            picks,
            st.tuples(st.just("wait"), st.integers(1, 60_000)),
            st.tuples(st.just("pause"), tenants, st.one_of(st.just(""), lanes), st.booleans()),
        ),
        max_size=60,
    )
)
@settings(deadline=None, max_examples=100)
def test_an_ordered_policy_leases_the_first_of_all_that_may_run(policy: Policy, events: list[Event]) -> None:
    bench, now = Bench(Tree(policy)), 0
    for event in events:
        match event:
            case ("push", str(tenant), str(lane), float(), int(priority), int(count)):
                for number in range(count):
                    deadline_ms = now + 100 * (number % 3) if priority > -50 else 0
                    bench.push(tenant, lane, priority=priority, ready_ms=now, deadline_ms=deadline_ms)
            case ("wait", int(ms)):
                now += ms
            case ("pause", str(tenant), str(lane), bool(paused)):
                bench.tree.configure(tenant, lane, Limits(paused=paused))
            case ("pick", int(count)):
                for _ in range(count):
                    able = [
                        place_of(policy, job)
                        for job in bench.waiting.values()
                        if bench.tree.lane_runnable(job.tenant, job.lane) and bench.tree.tenant_runnable(job.tenant)
                    ]
                    job = bench.pick()
                    assert (place_of(policy, job) if job else None) == min(able, default=None)


@given(
    events=st.lists(
        st.one_of(pushes, picks, st.tuples(st.just("wait"), st.integers(1, 150 * STEP_MS))), min_size=5, max_size=60
    )
)
@settings(deadline=None, max_examples=100)
def test_aging_lets_a_job_be_overtaken_only_within_its_steps(events: list[Event]) -> None:
    bench, now = Bench(Tree(Aging(step_ms=STEP_MS))), 0
    for event in events:
        match event:
            case ("push", str(tenant), str(lane), float(), int(priority), int(count)):
                for _ in range(count):
                    bench.push(tenant, lane, priority=priority, ready_ms=now)
            case ("wait", int(ms)):
                now += ms
            case ("pick", int(count)):
                for _ in range(count):
                    if (job := bench.pick()) is None:
                        break
                    for passed in bench.waiting.values():
                        if passed.seq < job.seq:
                            later = job.ready_ms - passed.ready_ms
                            assert later < (job.priority - passed.priority) * STEP_MS <= 200 * STEP_MS


@given(jobs=st.lists(st.tuples(tenants, lanes, st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=200)
def test_edf_meets_all_deadlines_when_any_order_does(jobs: list[tuple[str, str, int, int]]) -> None:
    def meets(order: tuple[tuple[int, int], ...]) -> bool:
        ends = itertools.accumulate(cost for cost, _ in order)
        return all(end <= deadline for end, (_, deadline) in zip(ends, order, strict=True))

    bench = Bench(Tree(Edf()))
    for tenant, lane, cost, deadline in jobs:
        bench.push(tenant, lane, cost=float(cost), deadline_ms=deadline)
    order = tuple((int(job.cost), job.deadline_ms) for job in iter(bench.pick, None))
    possible = any(map(meets, itertools.permutations((cost, deadline) for _, _, cost, deadline in jobs)))
    assert meets(order) == possible


def test_edf_by_latest_start_sees_that_a_long_job_must_begin_sooner() -> None:
    bench = Bench(Tree(Edf(by="latest_start")))
    short = bench.push("ant", cost=10, deadline_ms=1_000)
    long = bench.push("bee", cost=900, deadline_ms=1_500)
    assert [job.id for job in iter(bench.pick, None)] == [long.id, short.id]


# -- nobody is crowded out ---------------------------------------------------------------------------------------

BY_TURN = [POLICIES[name]() for name in ("ring", "tiered", "wfq")]


@pytest.mark.parametrize("policy", BY_TURN, ids=lambda policy: policy.name)
def test_ten_thousand_lanes_get_no_more_than_one(policy: Policy) -> None:
    bench = Bench(Tree(policy))
    for number in range(10_000):
        bench.push("ant", f"lane{number}", cost=1)
    for _ in range(200):
        bench.push("bee", cost=1)
    served = Counter(job.tenant for job in (bench.pick() for _ in range(400)) if job)
    assert served == {"ant": 200, "bee": 200}


@pytest.mark.parametrize("policy", BY_TURN, ids=lambda policy: policy.name)
def test_a_flood_does_not_delay_the_first_job_of_a_newcomer(policy: Policy) -> None:
    bench = Bench(Tree(policy))
    for _ in range(30_000):
        bench.push("ant", cost=1)
    for _ in range(1_000):
        bench.pick()
    bench.push("bee", cost=1)
    assert "bee" in {job.tenant for job in (bench.pick(), bench.pick()) if job}
