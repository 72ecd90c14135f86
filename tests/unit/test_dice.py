"""Draws by comparison and correct rounding: the laws that they follow, and the bits that they give."""

from __future__ import annotations

import decimal
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.bench.workloads.dice import by_share, exponential, pareto, pareto_mean, uniform

LARGE = 50_000
PARETO = [24220, 27653, 26501, 15338, 35316, 18132]


def test_exponentials_by_comparison_are_exponential() -> None:
    dice = random.Random(3)
    drawn = [exponential(dice) for _ in range(LARGE)]
    assert sum(drawn) / LARGE == pytest.approx(1, abs=0.02)
    # P(X > x) = e^-x; at 1 and at 3, far from where a uniform would be.
    assert sum(value > 1 for value in drawn) / LARGE == pytest.approx(0.36788, abs=0.01)
    assert sum(value > 3 for value in drawn) / LARGE == pytest.approx(0.04979, abs=0.005)


def test_whole_numbers_reach_both_bounds_and_one_takes_no_throw() -> None:
    dice = random.Random(1)
    assert {uniform(dice, 3, 5) for _ in range(200)} == {3, 4, 5}
    before = dice.getstate()
    assert (uniform(dice, 4, 4), by_share({"a": 0, "b": 2})(dice)) == (4, "b")
    assert dice.getstate() == before


def test_shares_are_met_to_the_last_name() -> None:
    draw, dice = by_share({"a": 1, "none": 0, "b": 3}), random.Random(1)
    drawn = [draw(dice) for _ in range(LARGE)]
    assert set(drawn) == {"a", "b"}
    assert drawn.count("a") / LARGE == pytest.approx(0.25, abs=0.01)


def test_paretos_bits_are_written_down_and_no_setting_of_decimal_changes_them() -> None:
    dice = random.Random(5)
    first = [pareto(dice, 15_000, 4_000_000, 1.3) for _ in range(6)]
    with decimal.localcontext(prec=3, rounding=decimal.ROUND_UP):
        dice = random.Random(5)
        assert [pareto(dice, 15_000, 4_000_000, 1.3) for _ in range(6)] == first
    assert first == PARETO


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.floats(0.1, 100), st.integers())
def test_paretos_stay_between_their_bounds_and_are_the_power_of_an_exponential(
    least: int, more: int, alpha: float, seed: int
) -> None:
    found = pareto(random.Random(seed), least, least + more, alpha)
    assert least <= found <= least + more
    power = exponential(random.Random(seed)) / alpha
    if power < 200:
        assert found == pytest.approx(min(least + more, least * math.exp(power)), rel=1e-9, abs=1)


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.floats(0.1, 100))
def test_the_mean_of_paretos_lies_between_their_bounds(least: int, more: int, alpha: float) -> None:
    assert least * (1 - 1e-9) <= pareto_mean(least, least + more, alpha) <= (least + more) * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.3, 3.0])
def test_the_mean_of_paretos_is_that_of_many(alpha: float) -> None:
    dice = random.Random(2)
    drawn = sum(pareto(dice, 15_000, 400_000, alpha) for _ in range(20_000)) / 20_000
    assert pareto_mean(15_000, 400_000, alpha) == pytest.approx(drawn, rel=0.03)
