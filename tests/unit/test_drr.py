"""`drr` keeps what it promises: the bound against entitled service, large jobs paid back, nothing banked by idling."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.policies.charge import Charge
from queueapp.policies.drr import QUANTUM, Drr
from queueapp.policies.node import TAGS_DROPPED_PER_LIFT, Node
from queueapp.policies.protocol import Candidate
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from tests.model.traffic import TENANTS, Event, costs, traffic, weights

TOLERANCE = 1e-6
"""Relative: the bound is summed in another order than the policy sums, over at most some hundred jobs."""
_submitted = itertools.count(1)


def pushed(tree: Tree, tenant: str, jobs: int, cost: float = 1.0, lane: str = "main") -> None:
    """`jobs` more jobs of `tenant`."""
    for seq in itertools.islice(_submitted, jobs):
        tree.push(Candidate(id=str(seq), tenant=tenant, lane=lane, seq=seq, cost=cost))


def turns(tree: Tree, picks: int) -> list[str]:
    """Whose jobs the next `picks` are; each ends at once."""
    order = []
    for _ in range(picks):
        charge = tree.pick()
        assert charge is not None
        tree.release(charge.id)
        order.append(charge.tenant)
    return order


def played(tree: Tree, events: list[Event], workers: int) -> Iterator[Charge | None]:
    """Play `events` on `tree`; after each single move, the job that it leased, if any."""
    jobs: dict[str, Candidate] = {}
    flying: list[Charge] = []
    seq = 0
    for event in events:
        match event:
            case ("push", str(tenant), str(lane), int(count), float(cost), _, _):
                for _ in range(count):
                    seq += 1
                    jobs[str(seq)] = Candidate(id=str(seq), tenant=tenant, lane=lane, seq=seq, cost=cost)
                    tree.push(jobs[str(seq)])
                    yield None
            case ("pick", int(count)):
                for _ in range(min(count, workers - len(flying))):
                    charge = tree.pick()
                    if charge is None:
                        break
                    flying.append(charge)
                    yield charge
            case ("finish", int(index), _) if flying:
                tree.release(flying.pop(index % len(flying)).id)
                yield None
            case ("cancel", int(index)) if len(tree):
                waiting = sorted(job for job in jobs if job in tree)
                tree.remove(waiting[index % len(waiting)])
                yield None
            case ("configure", str(tenant), str(lane), Limits() as changed):
                tree.configure(tenant, lane, changed)
                yield None


class Band:
    """How far a tenant's service moves away from what it is entitled to, while it stays in the walk with one weight."""

    def __init__(self, share: float, clock: float) -> None:
        self.share, self.began = share, clock
        self.service = self.low = self.high = 0.0

    def look(self, clock: float) -> None:
        ahead = self.service - (clock - self.began) * self.share
        self.low, self.high = min(self.low, ahead), max(self.high, ahead)


# -- the bound ---------------------------------------------------------------------------------------------------


@given(
    events=traffic,
    workers=st.integers(1, 12),
    quantum=st.sampled_from([1.0, QUANTUM, 5000.0]),
    shares=st.lists(weights, min_size=4, max_size=4),
)
@settings(deadline=None, max_examples=200)
def test_service_keeps_within_a_share_and_a_job_of_what_a_tenant_is_entitled_to(
    events: list[Event], workers: int, quantum: float, shares: list[float]
) -> None:
    tree = Tree(Drr(quantum))
    for tenant, weight in zip(TENANTS, shares, strict=True):
        tree.configure(tenant, "", Limits(weight=weight))
    bands: dict[str, Band] = {}
    most_rounds: dict[str, float] = defaultdict(float)  # of one job: a debt keeps the weight that it was made at
    for charge in played(tree, events, workers):
        clock = tree.root.v
        if charge is not None:
            rounds = charge.charged / (quantum * charge.tenant_weight)
            most_rounds[charge.tenant] = max(most_rounds[charge.tenant], rounds)
            if charge.tenant in bands:
                bands[charge.tenant].service += charge.charged
        for tenant in TENANTS:
            share = quantum * tree.limits(tenant).weight
            band = bands.get(tenant)
            if tenant not in tree.root.walk:
                bands.pop(tenant, None)
            elif band is None or band.share != share:
                bands[tenant] = Band(share, clock)
            else:
                band.look(clock)
                allowed = share * (1 + most_rounds[tenant])
                scale = max(band.service, share * (clock - band.began), allowed)
                assert band.high - band.low <= allowed + TOLERANCE * scale


@given(
    jobs=st.lists(st.tuples(st.sampled_from(TENANTS[:2]), costs), min_size=2, max_size=150),
    shares=st.tuples(weights, weights),
    quantum=st.sampled_from([1.0, QUANTUM]),
)
@settings(deadline=None, max_examples=100)
def test_two_busy_tenants_differ_by_two_quanta_and_a_job_of_each(
    jobs: list[tuple[str, float]], shares: tuple[float, float], quantum: float
) -> None:
    weight = dict(zip(TENANTS, shares, strict=False))
    tree = Tree(Drr(quantum))
    largest: dict[str, float] = dict.fromkeys(weight, 1.0)
    for tenant in weight:
        tree.configure(tenant, "", Limits(weight=weight[tenant]))
    for seq, (tenant, cost) in enumerate(jobs):
        tree.push(Candidate(id=str(seq), tenant=tenant, seq=seq, cost=cost))
        largest[tenant] = max(largest[tenant], cost)
    spent = dict.fromkeys(weight, 0.0)
    while len(tree.root.walk) == 2:
        charge = tree.pick()
        assert charge is not None
        spent[charge.tenant] += charge.charged / charge.tenant_weight
        lag = abs(spent["ant"] - spent["bee"])
        allowed = 2 * quantum + sum(largest[tenant] / weight[tenant] for tenant in weight)
        assert lag <= allowed * (1 + TOLERANCE)


@given(events=traffic, workers=st.integers(1, 12))
@settings(deadline=None, max_examples=100)
def test_who_is_served_has_something_to_spend_and_nothing_else_is_remembered(events: list[Event], workers: int) -> None:
    tree = Tree(Drr())
    for _ in played(tree, events, workers):
        for node in (tree.root, *(node for _, node in tree.tenants())):
            assert set(node.state) == {*node.walk, *node.tags}
            assert all(node.state[child] > 0 for child in node.walk)
            least = node.walk.first()
            assert least is None or least[0] == node.v


def test_a_round_gives_each_one_share_of_its_cost() -> None:
    tree = Tree(Drr(quantum=10))
    tree.configure("cat", "", Limits(weight=2))
    for tenant, cost in (("ant", 4), ("bee", 25), ("cat", 10)):
        pushed(tree, tenant, 30, cost)
    rounds = ["ant ant ant bee cat cat", "ant ant cat cat", "ant ant ant bee cat cat", "ant ant cat cat"]
    assert turns(tree, 20) == " ".join(rounds).split()


def test_weights_1_2_4_give_exactly_1000_2000_4000() -> None:
    tree = Tree(Drr(quantum=1))
    for tenant, weight in {"ant": 1.0, "bee": 2.0, "cat": 4.0}.items():
        tree.configure(tenant, "", Limits(weight=weight))
        pushed(tree, tenant, 4500)
    assert Counter(turns(tree, 7000)) == {"ant": 1000, "bee": 2000, "cat": 4000}


# -- large jobs --------------------------------------------------------------------------------------------------


def test_a_job_larger_than_the_quantum_is_served_once_and_paid_back() -> None:
    tree = Tree(Drr(quantum=10))
    pushed(tree, "ant", 3, cost=1000)
    pushed(tree, "bee", 250, cost=10)
    assert turns(tree, 203) == [*["ant"], *["bee"] * 100, *["ant"], *["bee"] * 100, *["ant"]]


def test_a_debt_outlives_idleness() -> None:
    tree = Tree(Drr(quantum=10))
    pushed(tree, "ant", 1, cost=1000)
    pushed(tree, "bee", 250, cost=10)
    assert turns(tree, 51) == ["ant", *["bee"] * 50]
    pushed(tree, "ant", 1, cost=10)
    assert turns(tree, 51) == [*["bee"] * 50, "ant"]


def test_a_debt_ends_when_nobody_is_left_to_be_paid() -> None:
    tree = Tree(Drr(quantum=10))
    pushed(tree, "ant", 5, cost=1000)
    assert turns(tree, 4) == ["ant"] * 4
    pushed(tree, "bee", 300, cost=10)
    assert turns(tree, 1) == ["ant"]
    assert turns(tree, 5) == ["bee"] * 5


# -- idling ------------------------------------------------------------------------------------------------------


def test_idle_rounds_are_not_banked() -> None:
    tree = Tree(Drr(quantum=10))
    pushed(tree, "ant", 2)
    pushed(tree, "bee", 1000)
    assert Counter(turns(tree, 502)) == {"ant": 2, "bee": 500}
    pushed(tree, "ant", 1000)
    after = turns(tree, 40)
    assert Counter(after) == {"ant": 20, "bee": 20}
    assert " ".join(["ant"] * 11) not in " ".join(after)


def test_a_tenant_that_comes_and_goes_gains_nothing_by_it() -> None:
    tree = Tree(Drr(quantum=10))
    pushed(tree, "bee", 700, cost=3)
    served: Counter[str] = Counter()
    while served["bee"] < 600:
        if not tree.tenant_runnable("ant"):
            pushed(tree, "ant", 1, cost=7)
        charge = tree.pick()
        assert charge is not None
        served[charge.tenant] += int(charge.charged)
    assert abs(served["ant"] - served["bee"]) <= 2 * 10 + 7 + 3


def test_a_tenant_at_its_ceiling_goes_on_with_its_turn_while_the_round_lasts() -> None:
    tree = Tree(Drr(quantum=4))
    tree.configure("ant", "", Limits(ceiling=1))
    pushed(tree, "ant", 20)
    pushed(tree, "bee", 20)
    first, second = tree.pick(), tree.pick()
    assert first is not None
    assert second is not None
    assert (first.tenant, second.tenant) == ("ant", "bee")
    tree.release(first.id)
    assert turns(tree, 4) == ["ant", "ant", "ant", "bee"]


def test_a_newcomer_waits_for_one_share_of_each_other() -> None:
    tree = Tree(Drr(quantum=10))
    for tenant in ("ant", "bee"):
        pushed(tree, tenant, 1000)
    turns(tree, 25)
    pushed(tree, "zed", 1)
    assert turns(tree, 16).index("zed") == 15  # the rest of ant's second turn, and bee's


def test_what_is_left_of_a_debt_lapses_also_where_the_sweep_has_not_come_yet() -> None:
    policy, node = Drr(quantum=10), Node()
    names = [f"t{number:03d}" for number in range(TAGS_DROPPED_PER_LIFT + 1)]
    for name in ["zed", *names]:
        policy.enter(node, name, (0.0, 0), 1.0)
    for name in names:
        policy.served(node, name, 0.0, 13.0, 1.0)
        policy.leave(node, name)
    policy.served(node, "zed", 0.0, 100.0, 1.0)
    assert list(node.tags) == names[-1:]
    policy.enter(node, names[-1], (0.0, 0), 1.0)
    assert (node.walk.score(names[-1]), node.state[names[-1]]) == (node.v, 10.0)


# -- weights, lanes, settlement ----------------------------------------------------------------------------------


def in_the_midst_of_its_turn(tenant: str) -> Tree:
    """A heavy tenant that has had the first five jobs of a long turn; `bee` waits."""
    tree = Tree(Drr(quantum=10))
    tree.configure(tenant, "", Limits(weight=100))
    pushed(tree, tenant, 400)
    pushed(tree, "bee", 400)
    assert turns(tree, 5) == [tenant] * 5
    return tree


def test_a_new_weight_acts_on_what_is_queued_and_on_the_turn_that_runs() -> None:
    tree = in_the_midst_of_its_turn("ant")
    tree.configure("ant", "", Limits(weight=0.2))
    assert turns(tree, 24) == [*["ant"] * 2, *["bee"] * 10, *["ant"] * 2, *["bee"] * 10]


def test_a_weight_lowered_during_a_pause_cuts_the_turn_too() -> None:
    tree = in_the_midst_of_its_turn("ant")
    tree.configure("ant", "", Limits(weight=100, paused=True))
    tree.configure("ant", "", Limits(weight=0.2, paused=True))
    tree.configure("ant", "", Limits(weight=0.2))
    assert turns(tree, 12) == [*["ant"] * 2, *["bee"] * 10]


def test_a_tenant_with_many_lanes_gets_no_more_than_one_with_one() -> None:
    tree = Tree(Drr(quantum=1))
    for number in range(100):
        pushed(tree, "ant", 10, lane=f"lane{number}")
    pushed(tree, "bee", 1000)
    assert Counter(turns(tree, 1000)) == {"ant": 500, "bee": 500}


def test_a_settled_estimate_counts_as_the_true_cost() -> None:
    tree = Tree(Drr(quantum=5), estimate=lambda _job: 3.0)
    for tenant in ("ant", "bee"):
        pushed(tree, tenant, 700, cost=0)
    spent: Counter[str] = Counter()
    for _ in range(600):
        charge = tree.pick()
        assert charge is not None
        actual = {"ant": 9.0, "bee": 1.0}[charge.tenant]
        spent[charge.tenant] += int(actual)
        tree.settle(charge, actual)
        tree.release(charge.id)
    assert abs(spent["ant"] - spent["bee"]) <= 2 * 5 + 9 + 1


def test_a_job_given_back_unrun_costs_nothing() -> None:
    tree = Tree(Drr(quantum=10), estimate=lambda _job: 50.0)
    jobs = {}
    for seq in range(40):
        jobs[str(seq)] = Candidate(id=str(seq), tenant=TENANTS[seq % 2], seq=seq)
        tree.push(jobs[str(seq)])
    for _ in range(10):
        back = tree.pick()
        assert back is not None
        tree.settle(back, 0.0)
        tree.release(back.id)
        tree.push(jobs[back.id])
    assert turns(tree, 40) == ["ant", "bee"] * 20


def test_the_last_job_of_a_tenant_is_settled_too() -> None:
    tree = Tree(Drr(quantum=10), estimate=lambda _job: 1.0)
    pushed(tree, "bee", 300, cost=10)
    pushed(tree, "ant", 1, cost=0)
    charge = tree.pick()
    assert charge is not None
    assert charge.tenant == "ant"
    tree.settle(charge, 1000.0)
    pushed(tree, "ant", 1, cost=10)
    order = turns(tree, 102)
    assert order.index("ant") in range(98, 102)


def test_a_settled_tenant_that_is_away_comes_back_in_the_round_of_its_debt() -> None:
    tree = Tree(Drr(quantum=10), estimate=lambda _job: 1.0)
    pushed(tree, "bee", 9, cost=10)
    pushed(tree, "ant", 1, cost=0)
    charge = tree.pick()
    assert charge is not None
    tree.settle(charge, 14.0)
    pushed(tree, "ant", 1)
    assert turns(tree, 2) == ["bee", "ant"]


def test_a_debt_counts_from_the_round_in_which_it_was_made() -> None:
    tree = Tree(Drr(quantum=10), estimate=lambda _job: 1.0)
    pushed(tree, "bee", 30, cost=10)
    pushed(tree, "ant", 1, cost=0)
    charge = tree.pick()
    assert charge is not None
    assert turns(tree, 5) == ["bee"] * 5
    tree.settle(charge, 31.0)
    pushed(tree, "ant", 1)
    assert turns(tree, 2) == ["ant", "bee"]


@pytest.mark.parametrize(("quantum", "cost"), [(0.1, 33.0), (0.1, 16.3), (0.3, 17.4)])
def test_a_quotient_that_was_rounded_leaves_something_to_spend(quantum: float, cost: float) -> None:
    node, policy = Node(), Drr(quantum)
    policy.enter(node, "ant", (0.0, 0), 1.0)
    policy.served(node, "ant", 0.0, cost, 1.0)
    assert 0 < node.state["ant"] <= quantum * (1 + TOLERANCE)


@pytest.mark.parametrize("quantum", [0, -1.0, float("nan")])
def test_a_quantum_that_grants_nothing_is_refused(quantum: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        Drr(quantum)
