"""Percentiles as numpy computes them. The expected values were written down from numpy 2.4 (`numpy.percentile`)."""

from __future__ import annotations

import ast
import inspect
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.bench import intervals, outcomes, statistics
from queueapp.bench.statistics import (
    deviation,
    jain,
    mean,
    missed,
    percentile,
    percentiles,
    ratio,
    supported,
    throughput,
    utilisation,
)

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([15.0, 20, 35, 40, 50], 40, 29.0),
        ([1, 2, 3, 4], 50, 2.5),
        ([3.1], 99, 3.1),
        ([0.1, 0.2, 0.3, 0.7, 1.9, 2.2], 95, 2.125),
        (range(1, 101), 99, 99.01),
        ([0.1, 0.2, 0.4, 0.8], 33.3, 0.1999),
        ([5, 1, 3], 0, 1.0),
        ([5, 1, 3], 100, 5.0),
    ],
)
def test_percentile_is_numpys(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_no_values_have_no_percentile() -> None:
    assert math.isnan(percentile([], 50))


@pytest.mark.parametrize("percent", [-1, 100.5, math.nan])
def test_a_percent_out_of_range_is_refused_by_value(percent: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 100"):
        percentile([1, 2], percent)


@given(VALUES, st.floats(0, 100), st.floats(0, 100))
def test_percentiles_grow_and_stay_within_the_values(values: list[float], one: float, other: float) -> None:
    low, high = percentiles(values, min(one, other), max(one, other))
    slack = 1e-6 * max(1.0, *(abs(value) for value in values))
    assert min(values) - slack <= low <= high + slack <= max(values) + 2 * slack


def test_ratio_at_its_edges() -> None:
    assert ratio(6, 3) == 2
    assert ratio(1, 0) == math.inf
    assert math.isnan(ratio(0, 0))
    assert math.isnan(ratio(math.nan, 1))


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100, 1_001])
def test_c161_percentiles_of_small_samples_lie_within_them_and_unsupported_ones_are_known(count: int) -> None:
    """C161: percentiles of small samples were off by one, above the maximum, zero, or equal to the maximum."""
    values = [1.0] * (count - 1) + [1e9]
    found = percentiles(values, 0, 50, 95, 99, 99.9, 100)
    assert all(min(values) <= one <= max(values) for one in found)
    assert [supported(count, percent) for percent in (95, 99, 99.9)] == [count >= 20, count >= 100, count >= 1_000]
    if count == 1_001:
        assert percentile(values, 99) == 1
        assert percentile(values, 99.9) == pytest.approx(1, abs=0.001), "as numpy's: 99.9 is no double"


@pytest.mark.parametrize(("count", "percent"), [(20, 95), (100, 99), (1_000, 99.9), (2, 50)])
def test_a_percentile_is_supported_from_the_first_count_that_has_one_beyond_it(count: int, percent: float) -> None:
    assert supported(count, percent)
    assert not supported(count - 1, percent)


def test_throughput_is_what_completed_over_the_makespan() -> None:
    assert throughput(300, 60) == 5
    assert math.isnan(throughput(0, 0))


def test_utilisation_is_the_busy_part_of_the_slots() -> None:
    assert utilisation(busy_s=30, slots=4, makespan_s=10) == 0.75


def test_who_ends_on_the_deadline_has_kept_it() -> None:
    assert not missed(100, 100)
    assert missed(101, 100)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([1, 1, 1, 1], 1),
        ([7], 1),
        ([5, 0, 0, 0], 0.25),  # one had all: 1/n
        ([1, 3], 0.8),  # 4² / (2 · 10)
        ([90, 3, 3, 2, 2], 0.2462),  # 100² / (5 · 8126)
        ([0, 0], 1),
        ([1e-200, 1e-200], 1),
    ],
)
def test_jain_by_hand(shares: list[float], expected: float) -> None:
    assert jain(shares) == pytest.approx(expected, abs=1e-4)


def test_jain_knows_no_nobody_and_nothing_below_nothing() -> None:
    assert math.isnan(jain([]))
    with pytest.raises(ValueError, match=r"A share is -1\.0"):
        jain([1, -1])


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=50), st.floats(1e-3, 1e3))
def test_jain_lies_between_one_nth_and_one_and_knows_no_unit(shares: list[float], unit: float) -> None:
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9
    if max(shares) > 1e-9:
        assert jain([share * unit for share in shares]) == pytest.approx(jain(shares))


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20))
def test_whoever_had_nothing_lowers_jains_index(shares: list[float]) -> None:
    assert jain([*shares, 0]) == pytest.approx(jain(shares) * len(shares) / (len(shares) + 1))


def test_mean_and_deviation_by_hand() -> None:
    values = [2, 4, 4, 4, 5, 5, 7, 9]
    assert mean(values) == 5
    assert deviation(values) == pytest.approx(math.sqrt(32 / 7))
    assert mean([1e16, 1.0, -1e16]) == pytest.approx(1 / 3)
    assert math.isnan(mean([]))
    assert math.isnan(deviation([1]))


@pytest.mark.parametrize("module", [statistics, intervals, outcomes], ids=lambda module: module.__name__)
def test_statistics_know_neither_django_nor_redis(module: object) -> None:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]  # as much of it as is asked here
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    own = {"queueapp.bench.statistics"}
    assert imported <= {"__future__", "math", "collections.abc", "dataclasses", "typing"} | own
