"""`tiered` keeps what Ductor stands for: exact shares, a bound on the lag of any two tenants, no credit banked."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from tests.model.traffic import LANES, TENANTS, Event, busy, costs, run, traffic, weights
from tests.model.witness import Witness, lag_bound


def test_weights_1_2_4_give_exactly_1000_2000_4000() -> None:
    tree = Tree(POLICIES["tiered"]())
    for number, (tenant, weight) in enumerate({"ant": 1.0, "bee": 2.0, "cat": 4.0}.items()):
        tree.configure(tenant, "", Limits(weight=weight))
        for seq in range(number * 5000, number * 5000 + 5000):
            tree.push(Candidate(id=str(seq), tenant=tenant, seq=seq, cost=1))
    served: Counter[str] = Counter()
    for turn in range(1, 7001):
        charge = tree.pick()
        assert charge is not None
        tree.release(charge.id)
        served[charge.tenant] += 1
        if turn % 7 == 0:
            assert served == {"ant": turn // 7, "bee": 2 * turn // 7, "cat": 4 * turn // 7}
    assert served == {"ant": 1000, "bee": 2000, "cat": 4000}


@given(shares=st.lists(weights, min_size=2, max_size=4), turns=st.integers(1, 200))
@settings(deadline=None, max_examples=60)
def test_i5_unit_costs_stay_within_one_turn_of_their_weights(shares: list[float], turns: int) -> None:
    by_tenant = dict(zip(TENANTS, shares, strict=False))
    tree = Tree(POLICIES["tiered"]())
    for number, (tenant, weight) in enumerate(by_tenant.items()):
        tree.configure(tenant, "", Limits(weight=weight))
        for seq in range(number * turns, (number + 1) * turns):
            tree.push(Candidate(id=str(seq), tenant=tenant, seq=seq, cost=1))
    served: Counter[str] = Counter()
    for _ in range(turns):
        charge = tree.pick()
        assert charge is not None
        served[charge.tenant] += 1
        for one, w1 in by_tenant.items():
            for two, w2 in by_tenant.items():
                lag = abs(served[one] / w1 - served[two] / w2)
                assert lag <= lag_bound((1, 1), (w1, w2)) * (1 + 1e-9)


@given(events=traffic, workers=st.integers(1, 12))
@settings(deadline=None, max_examples=250)
def test_the_invariants_hold_with_declared_costs(events: list[Event], workers: int) -> None:
    run(Witness(Tree(POLICIES["tiered"]())), events, workers, estimated=False)


@given(events=traffic, workers=st.integers(1, 12))
@settings(deadline=None, max_examples=250)
def test_the_invariants_hold_when_declared_costs_are_refunded(events: list[Event], workers: int) -> None:
    run(Witness(Tree(POLICIES["tiered"]()), settled=True), events, workers, estimated=False, refunded=True)


@given(events=traffic, workers=st.integers(1, 12), estimate=costs)
@settings(deadline=None, max_examples=250)
def test_the_invariants_hold_with_settled_estimates(events: list[Event], workers: int, estimate: float) -> None:
    tree = Tree(POLICIES["tiered"](), estimate=lambda _job: estimate)
    run(Witness(tree, settled=True), events, workers, estimated=True)


@given(events=traffic, workers=st.integers(1, 12))
@settings(deadline=None, max_examples=30)
def test_the_same_traffic_gives_the_same_order(events: list[Event], workers: int) -> None:
    orders = [run(Witness(Tree(POLICIES["tiered"]())), events, workers, estimated=False) for _ in range(2)]
    assert orders[0] == orders[1]


def test_a_tenant_with_many_lanes_gets_no_more_than_one_with_one() -> None:
    tree = Tree(POLICIES["tiered"]())
    for seq in range(2000):
        tree.push(Candidate(id=f"many-{seq}", tenant="ant", lane=f"lane{seq % 100}", seq=seq, cost=1))
        tree.push(Candidate(id=f"one-{seq}", tenant="bee", seq=seq, cost=1))
    served = Counter(charge.tenant for _ in range(1000) if (charge := tree.pick()) is not None)
    assert served == {"ant": 500, "bee": 500}


def test_lanes_share_by_weight_within_their_tenant() -> None:
    tree = Tree(POLICIES["tiered"]())
    tree.configure("ant", "other", Limits(weight=3))
    for seq in range(800):
        tree.push(Candidate(id=str(seq), tenant="ant", lane=LANES[seq % 2], seq=seq, cost=1))
    served = Counter(charge.lane for _ in range(400) if (charge := tree.pick()) is not None)
    assert served == {"main": 100, "other": 300}


def test_a_paused_tenant_banks_no_credit() -> None:
    witness = busy(POLICIES["tiered"](), {"ant": 1.0, "bee": 1.0}, 600)
    witness.configure("ant", "", Limits(paused=True))
    for _ in range(500):
        witness.pick()
    witness.configure("ant", "", Limits())
    turns = [charge.tenant for _ in range(20) if (charge := witness.pick()) is not None]
    assert Counter(turns) == {"ant": 10, "bee": 10}
    assert "ant ant ant" not in " ".join(turns)


def test_a_newcomer_starts_at_the_clock() -> None:
    witness = busy(POLICIES["tiered"](), {"ant": 1.0}, 300)
    for _ in range(200):
        witness.pick()
    for _ in range(10):
        witness.push("bee", "main", cost=1)
    turns = [charge.tenant for _ in range(10) if (charge := witness.pick()) is not None]
    assert Counter(turns) == {"ant": 5, "bee": 5}


def test_a_tenant_that_comes_and_goes_gains_nothing_by_it() -> None:
    witness = busy(POLICIES["tiered"](), {"bee": 1.0}, 400)
    served: Counter[str] = Counter()
    while served["ant"] < 300:
        if not witness.tree.tenant_runnable("ant"):
            witness.push("ant", "main", cost=3)
        charge = witness.pick()
        assert charge is not None
        served[charge.tenant] += int(charge.charged)
    assert abs(served["ant"] - served["bee"]) <= lag_bound((3, 1), (1, 1))


def test_a_settled_estimate_counts_as_the_true_cost() -> None:
    witness = Witness(Tree(POLICIES["tiered"]()), settled=True)
    for _ in range(600):
        witness.push("ant", "main")
        witness.push("bee", "main")
    spent: Counter[str] = Counter()
    for _ in range(600):
        charge = witness.pick()
        assert charge is not None
        actual = {"ant": 9.0, "bee": 1.0}[charge.tenant]
        spent[charge.tenant] += int(actual)
        witness.finish(0, actual)
    assert abs(spent["ant"] - spent["bee"]) <= lag_bound((9, 1), (1, 1), (1, 1))


def test_a_job_given_back_unrun_costs_nothing() -> None:
    witness = Witness(Tree(POLICIES["tiered"](), estimate=lambda _job: 50.0), settled=True)
    pushed = [witness.push(tenant, "main") for tenant in ("ant", "bee") for _ in range(20)]
    jobs = {job.id: job for job in pushed}
    for _ in range(10):
        back = witness.pick()
        assert back is not None
        witness.finish(0, 0.0)
        witness.tree.push(jobs[back.id])
    turns = [charge.tenant for _ in range(20) if (charge := witness.pick()) is not None]
    assert Counter(turns) == {"ant": 10, "bee": 10}


def test_a_new_weight_acts_at_once_on_what_is_queued() -> None:
    witness = busy(POLICIES["tiered"](), {"ant": 1.0, "bee": 1.0}, 200)
    for _ in range(100):
        witness.pick()
    witness.configure("ant", "", Limits(weight=4))
    turns = Counter(charge.tenant for _ in range(100) if (charge := witness.pick()) is not None)
    assert turns == {"ant": 80, "bee": 20}


def test_continued_work_passes_fresh_work_ten_times_then_waits_once() -> None:
    tree = Tree(POLICIES["tiered"]())
    for seq in range(60):
        tree.push(
            Candidate(
                id=f"{'c' if seq % 2 else 's'}{seq}", tenant="ant", seq=seq, tier="continue" if seq % 2 else "start"
            )
        )
    order = "".join(charge.id[0] for charge in iter(tree.pick, None))
    assert order == ("c" * 10 + "s") * 3 + "s" * 27


def test_priority_sorts_within_the_lane_only() -> None:
    tree = Tree(POLICIES["tiered"]())
    for seq, (tenant, priority) in enumerate([("ant", -5), ("ant", 100), ("ant", 999), ("bee", 0), ("bee", 7)]):
        tree.push(Candidate(id=f"{tenant}{priority}", tenant=tenant, seq=seq, priority=priority, cost=1))
    assert [charge.id for charge in iter(tree.pick, None)] == ["ant100", "bee7", "ant999", "bee0", "ant-5"]
