"""How sure a figure is: Student's intervals, changes that are told from chance, and how many repetitions it takes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.bench.intervals import Interval, change, interval, shift, shifts, student, worst

FINITE = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    # The printed table of every textbook.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (24, 2.064), (29, 2.045), (1_000, 1.962)],
)
def test_students_quantiles_are_those_of_the_table(freedom: int, expected: float) -> None:
    assert student(0.95, freedom) == pytest.approx(expected, abs=0.0006)


def test_other_confidences_and_refusals() -> None:
    assert student(0.99, 4) == pytest.approx(4.604, abs=0.0006)
    assert student(0.5, 1) == pytest.approx(1)
    for confidence, freedom in ((0, 4), (1, 4), (0.95, 0)):
        with pytest.raises(ValueError, match="give one between 0 and 1"):
            student(confidence, freedom)


def test_an_interval_by_hand() -> None:
    """1..5: mean 3, deviation 1.5811, over the root of 5 0.7071, times 2.776."""
    found = interval([1, 2, 3, 4, 5])
    assert (found.count, found.mean) == (5, 3)
    assert [found.half_width, found.low, found.high] == pytest.approx([1.9632, 1.0368, 4.9632], abs=1e-4)
    assert (interval([7]).mean, math.isnan(interval([7]).half_width)) == (7, True)
    assert math.isnan(interval([]).mean)


@given(st.lists(FINITE, min_size=2, max_size=30), FINITE)
def test_intervals_move_with_their_values_and_are_around_the_mean(values: list[float], by: float) -> None:
    found, moved = interval(values), interval([value + by for value in values])
    assert found.low <= found.mean <= found.high
    assert moved.half_width == pytest.approx(found.half_width, abs=1e-3)


def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    dice = random.Random(1)
    held = sum(abs(found.mean) <= found.half_width for found in (_five(dice) for _ in range(2_000)))
    assert held / 2_000 == pytest.approx(0.95, abs=0.015)


def _five(dice: random.Random) -> Interval:
    return interval([dice.gauss() for _ in range(5)])


def test_c163_a_figure_has_no_more_digits_than_its_repetitions_support() -> None:
    """C163: throughput and latency tails were paired wrongly; unsupported precision was printed."""
    assert str(Interval(count=5, mean=123.456789, half_width=12.3456)) == "123 ± 12"
    assert str(Interval(count=5, mean=0.123456789, half_width=0.0123456)) == "0.123 ± 0.012"
    assert str(Interval(count=5, mean=1234.56789, half_width=321.0)) == "1235 ± 321"
    assert str(Interval(count=1, mean=123.456789, half_width=math.nan)) == "123.5"
    assert str(Interval(count=1, mean=314_748.2, half_width=math.nan)) == "314748"
    assert str(Interval(count=3, mean=0.0, half_width=0.0)) == "0"
    assert str(Interval(count=0, mean=math.nan, half_width=math.nan)) == "-"


def test_c163_the_worst_of_a_figure_is_in_its_own_direction() -> None:
    for name in ("throughput_per_s", "utilisation", "jain_service", "jain_count"):
        assert worst(name, [3.0, 1.0, 2.0]) == 1
    for name in ("latency_p95_ms", "wait_max_ms", "miss_rate", "starved", "dead"):
        assert worst(name, [3.0, 1.0, 2.0]) == 3


def test_a_change_is_told_from_chance_pair_by_pair() -> None:
    """Seeds differ by ten times; each pair by 20 % or by nothing but noise."""
    base = [10.0, 30.0, 100.0, 55.0, 20.0]
    noise = [1.01, 0.99, 1.005, 0.995, 1.0]
    slower = change(base, [1.2 * value * by for value, by in zip(base, noise, strict=True)])
    assert slower.detected
    assert slower.ratio.mean == pytest.approx(1.2)
    assert not change(base, [value * by for value, by in zip(base, noise, strict=True)]).detected
    assert not change(base, base).detected
    assert not change(base[:1], [12.0]).detected, "one pair says nothing"
    assert not change([0.0, 0.0], [0.0, 1.0]).detected, "nothing can be compared with nothing"
    with pytest.raises(ValueError, match="zip"):
        change([1.0], [1.0, 2.0])


def test_the_shift_of_the_estimate_is_the_measure_of_convergence() -> None:
    assert shift([1, 1, 1, 1, 1, 2, 2, 2, 2, 2]) == pytest.approx(1 / 3)
    assert shift([5.0] * 25) == 0
    assert math.isnan(shift([1, 2, 3, 4, 5]))
    wild, steady = [1, 1, 1, 1, 1, *[2] * 20], [100, 100, 100, 100, 100, *[101] * 20]
    found = shifts({"wild": wild, "steady": steady, "still": [1] * 25, "none": [0] * 25})
    assert found == pytest.approx((shift(steady), 4 / 9))
