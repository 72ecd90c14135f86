"""Dispatch rates of the reference, against the plain model in fractions."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits
from queueapp.policies.tokens import DispatchRate, Tokens
from queueapp.policies.tree import Tree
from queueapp.store.configuration import Rate
from tests.model.front import Gcra

rates = st.builds(
    DispatchRate, rate=st.integers(1, 1_000_000), period_ms=st.integers(1, 2_678_400_000), burst=st.integers(1, 1_000)
)


@given(rate=rates, steps=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 5)), max_size=30))
@settings(deadline=None)
def test_every_answer_is_that_of_the_exact_model(rate: DispatchRate, steps: Sequence[tuple[int, int]]) -> None:
    tokens, now_ms = Tokens(), 1_800_000_000_000
    model = Gcra(Rate(rate=rate.rate, period_ms=rate.period_ms, burst=rate.burst))
    for step_ms, wanted in steps:
        now_ms += step_ms
        free = tokens.free("scope", rate, now_ms)
        for number in range(wanted):
            assert tokens.moment("scope", rate, now_ms) == model.moment(now_ms)
            assert model.conforms(now_ms) == (free > number)
            if free > number:
                tokens.take("scope", rate, now_ms)
                model.take(now_ms)


def test_when_the_next_few_come() -> None:
    tokens, rate = Tokens(), DispatchRate(rate=3, period_ms=1_000, burst=2)
    assert [tokens.moment("a", rate, 0, number) for number in (1, 2, 3, 4, 5)] == [-333, 0, 334, 667, 1_000]
    tokens.take("a", rate, 0)
    assert (tokens.free("a", rate, 0), tokens.free("b", rate, 0)) == (1, 2)


def test_another_rate_keeps_how_many_are_owed_and_counts_from_then_on() -> None:
    tokens = Tokens()
    tokens.take("a", DispatchRate(rate=1, period_ms=86_400_000), 0)
    quick = DispatchRate(rate=10, period_ms=1_000)
    assert tokens.moment("a", quick, 0) == 100
    assert tokens.moment("a", quick, 60) == 100, "what was said stands"


def test_a_tree_of_any_policy_gives_no_more_than_its_rates() -> None:
    """The tenant's, the lane's: a job needs both, and whoever has none costs the others nothing."""
    for name, policy in POLICIES.items():
        tree = Tree(policy())
        tree.configure("ant", "", Limits(dispatch=DispatchRate(rate=1, period_ms=1_000, burst=3)))
        tree.configure("ant", "slow", Limits(dispatch=DispatchRate(rate=1, period_ms=1_000)))
        for seq in range(1, 31):
            tenant, lane = ("ant", "bee")[seq % 2], ("slow", "main")[seq % 3 == 0]
            tree.push(Candidate(id=str(seq), tenant=tenant, lane=lane, seq=seq, cost=1))
        picked = [charge for _ in range(30) if (charge := tree.pick()) is not None]
        assert [charge.tenant for charge in picked].count("ant") == 3, name
        assert [(charge.tenant, charge.lane) for charge in picked].count(("ant", "slow")) <= 1, name
        assert [charge.tenant for charge in picked].count("bee") == 15, name
        tree.keyed.now_ms = 1_000
        assert tree.pick() is None
        assert tree.sweep_timers(16)
        back = tree.pick()
        assert back is not None, name
        assert tree.pick() is None, name
