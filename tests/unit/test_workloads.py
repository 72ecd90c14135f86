"""Workloads: the same bytes on any machine, and the shape that their docstrings state."""

from __future__ import annotations

import ast
import inspect
import random
from collections import Counter

import pytest

from queueapp.bench import simulate, workloads
from queueapp.bench.workloads import BIG, SHARES, WORKLOADS, Workload, _exponential, _uniform, multi_tenant

LARGE = 50_000


@pytest.fixture(scope="module")
def large() -> Workload:
    return multi_tenant(seed=7, jobs=LARGE)


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (42, "9419d54ab8629bffff94297d5e87537d897ace952cb684c06ab2816690464086"),
        (43, "0d914480217a16f5dcff1c01c339b0f8eab124585d95b2f234cb8e409beb61a7"),
    ],
)
def test_the_bytes_of_a_seed_are_the_same_everywhere(seed: int, expected: str) -> None:
    assert multi_tenant(seed=seed).digest() == expected


def test_the_first_jobs_as_they_were_written_down() -> None:
    first = [(job.number, job.at_us, job.tenant, job.service_us) for job in multi_tenant(seed=42, jobs=3).jobs]
    assert first == [(1, 3058, "atlas", 57844), (2, 3275, "atlas", 44372), (3, 7399, "atlas", 40129)]


def test_more_jobs_begin_with_the_same_ones_and_every_parameter_tells() -> None:
    few, many = multi_tenant(seed=1, jobs=10), multi_tenant(seed=1, jobs=20)
    assert many.jobs[:10] == few.jobs
    others = [
        multi_tenant(seed=2, jobs=10),
        many,
        multi_tenant(seed=1, jobs=10, load=1.0),
        multi_tenant(seed=1, jobs=10, slots=8),
    ]
    assert len({few.digest(), *(other.digest() for other in others)}) == 5


def test_shares_are_those_of_the_tenants(large: Workload) -> None:
    assert sum(SHARES.values()) == 100
    assert max(SHARES, key=SHARES.__getitem__) == BIG == large.big
    counts = Counter(job.tenant for job in large.jobs)
    for tenant, share in SHARES.items():
        expected = LARGE * share / 100
        assert abs(counts[tenant] - expected) < 5 * expected**0.5, tenant


def test_arrivals_are_in_order_and_come_at_the_stated_load(large: Workload) -> None:
    moments = [job.at_us for job in large.jobs]
    assert moments == sorted(moments)
    assert [job.number for job in large.jobs] == list(range(1, LARGE + 1))
    served_per_s = 16 / 0.050
    assert LARGE / (moments[-1] / 1e6) == pytest.approx(1.25 * served_per_s, rel=0.02)


def test_service_times_are_uniform_between_their_bounds(large: Workload) -> None:
    times = [job.service_us for job in large.jobs]
    assert 40_000 <= min(times) < 40_010
    assert 59_990 < max(times) <= 60_000
    assert sum(times) / LARGE == pytest.approx(50_000, rel=0.005)
    assert sum(time < 45_000 for time in times) / LARGE == pytest.approx(0.25, abs=0.01)


def test_exponentials_by_comparison_are_exponential() -> None:
    dice = random.Random(3)
    drawn = [_exponential(dice) for _ in range(LARGE)]
    assert sum(drawn) / LARGE == pytest.approx(1, abs=0.02)
    # P(X > x) = e^-x; at 1 and at 3, far from where a uniform would be.
    assert sum(value > 1 for value in drawn) / LARGE == pytest.approx(0.36788, abs=0.01)
    assert sum(value > 3 for value in drawn) / LARGE == pytest.approx(0.04979, abs=0.005)


def test_whole_numbers_reach_both_bounds() -> None:
    dice = random.Random(1)
    assert {_uniform(dice, 3, 5) for _ in range(200)} == {3, 4, 5}


def test_every_workload_has_the_name_under_which_it_stands() -> None:
    for name, make in WORKLOADS.items():
        assert make(seed=1, jobs=1, slots=1, load=1.0).name == name


@pytest.mark.parametrize("module", [workloads, simulate], ids=["workloads", "simulate"])
def test_nothing_but_this_seed_reaches_them(module: object) -> None:
    """No clock, no server, no framework; of `random` only what Python promises to keep, and no platform's `math`."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]  # as much of it as is asked here
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert not {name for name in imported if name and name.split(".")[0] in {"django", "redis", "time", "math"}}
    drawn = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"dice", "random"}
    }
    assert drawn <= {"random", "Random"}
