"""Percentiles as numpy computes them. The expected values were written down from numpy 2.4 (`numpy.percentile`)."""

from __future__ import annotations

import ast
import inspect
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.bench import statistics
from queueapp.bench.statistics import percentile, percentiles, ratio

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


def test_statistics_know_neither_django_nor_redis() -> None:
    tree = ast.parse(inspect.getsource(statistics))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"__future__", "math", "collections.abc"}
