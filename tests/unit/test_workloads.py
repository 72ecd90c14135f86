"""Workloads: the same bytes on any machine, and the shape that their docstrings state."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from queueapp.bench import failures, profiles, simulate
from queueapp.bench.workloads import KINDS, Shape, Workload, dice, jobs, kinds, make, shape, traces

FLOOD = profiles.load("flood").shape
LARGE = 50_000
every_kind = pytest.mark.parametrize("name", list(KINDS))


def made(name: str, given: Shape | None = None, *, seed: int = 7, count: int = LARGE, load: float = 1.25) -> Workload:
    return make(name, given or Shape(), seed=seed, jobs=count, slots=16, load=load)


@pytest.fixture(scope="module")
def large() -> Workload:
    return made("multi_tenant", FLOOD)


# -- the same everywhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (42, "9419d54ab8629bffff94297d5e87537d897ace952cb684c06ab2816690464086"),
        (43, "0d914480217a16f5dcff1c01c339b0f8eab124585d95b2f234cb8e409beb61a7"),
    ],
)
def test_the_bytes_of_the_flood_are_the_same_everywhere(seed: int, expected: str) -> None:
    """As they were before any other workload, priority or deadline was known: what is promised rests on these jobs."""
    assert made("multi_tenant", FLOOD, seed=seed, count=4_000).digest() == expected


PINNED: dict[tuple[str, int], str] = {
    ("uniform", 1): "92bf3f620db133caedcdd7dd37e7645f46a377c64310b78cd524450d6570e51a",
    ("uniform", 42): "2c9857fa176aa6ff74cacd22f8ff0adec591215da880236e5ff77560c9ec5e87",
    ("uniform", 2**31): "ae31f4b68980ead5b9c3495133a7071b7ae2ffc7a51a4700ebbdda97cf29ce73",
    ("bursty", 1): "5e4cf28cc86abbd1e56ab9155b2774d219ef95bf9a779ff56140cd6744219c1e",
    ("bursty", 42): "c4f106e8f95c7f8c60d9867ec53fcb10aabf34b48dc9cca77fc2d5964d60d2d9",
    ("bursty", 2**31): "d73b7b1681665ae6eb889426602c59c537d3937ae86f1782d6b606f5d5d39c03",
    ("heavy_tailed", 1): "b1307c677b761ded900d98e139f46b59a06edd1ae420e1dfd2e4ca93482b4ba5",
    ("heavy_tailed", 42): "4434ae75c1b00cf5c9f21b3941ea64f3c64ff07e9e0e34271db89da98e5b8c88",
    ("heavy_tailed", 2**31): "5e8a2ed47d8369d677abb4aaec44480221db0a61056af8cf2d00985af7a56404",
    ("multi_tenant", 1): "3cbed8fad7ecc94ccff34a694bad622060459ac14aa4bb199c8f685898bbbfd7",
    ("multi_tenant", 42): "dc2c17fd1773df397bfb69ea4175d56e9ede658b4076ad40cd3bc724e750af07",
    ("multi_tenant", 2**31): "b767d8d0b7edae97f4e99cf97a26bb9d7675562690a35b2f757dc5c65939f868",
    ("mixed_cost", 1): "7e6c454ed3ee05f366013d5b038bcf29c8e07f5f1fd93250d1325f637a440878",
    ("mixed_cost", 42): "643c8b5c18fd4077d567445d0ac58091820f7d86e5f7bc80642db560e2c29a3a",
    ("mixed_cost", 2**31): "3c967216d7068121e220f9bf6f66b66ecf1d2f3f54fb133d5251b4de93c541c5",
    ("churn", 1): "3915898a51d0fec344b292fa37ff3c23c952fea49ea5943e4ef4aafb4a067351",
    ("churn", 42): "8d73f7f0a6ea680c4152038fad2c99be517dad880564b540904d23f0a2d80bf8",
    ("churn", 2**31): "178d1c5f0691946e17f61382712ae2fd43df82829b474c17ee47ce6fbcf17277",
}


@pytest.mark.parametrize(("name", "seed"), PINNED)
def test_the_bytes_of_a_seed_are_the_same_everywhere(name: str, seed: int) -> None:
    """1,000 jobs of the profile `full`: looked at in 3.11, 3.12 and 3.13, with `decimal` in C and in Python."""
    assert made(name, profiles.load("full").shape, seed=seed, count=1_000).digest() == PINNED[name, seed]


def test_every_kind_is_pinned_with_several_seeds() -> None:
    assert set(PINNED) == {(name, seed) for name in KINDS for seed in (1, 42, 2**31)}


def test_the_first_jobs_as_they_were_written_down() -> None:
    first = [(job.number, job.at_us, job.tenant, job.service_us) for job in made("multi_tenant", FLOOD, seed=42).jobs]
    assert first[:3] == [(1, 3058, "atlas", 57844), (2, 3275, "atlas", 44372), (3, 7399, "atlas", 40129)]


@every_kind
def test_more_jobs_begin_with_the_same_ones_and_every_parameter_tells(name: str) -> None:
    few, many = made(name, seed=1, count=10), made(name, seed=1, count=20)
    assert many.jobs[:10] == few.jobs
    others = [
        made(name, seed=2, count=10),
        many,
        made(name, seed=1, count=10, load=1.0),
        made(name, replace(Shape(), priorities=(1, 1)), seed=1, count=10),
        made(name, replace(Shape(), deadlines=shape.Deadlines(base_ms=100)), seed=1, count=10),
        made(name, replace(Shape(), lanes={"main": 1, "side": 1}), seed=1, count=10),
    ]
    assert len({few.digest(), *(other.digest() for other in others)}) == 7


def test_what_has_one_possible_value_takes_no_throw() -> None:
    """So that a shape without priorities and deadlines has the jobs of one that never knew any."""
    plain = made("uniform", FLOOD, count=50)
    lanes = made("uniform", replace(FLOOD, lanes={"side": 5}, priorities=(0, 0, 3)), count=50)
    assert [(job.at_us, job.tenant, job.service_us) for job in lanes.jobs] == [
        (job.at_us, job.tenant, job.service_us) for job in plain.jobs
    ]
    assert {(job.lane, job.priority) for job in lanes.jobs} == {("side", 2)}


def test_a_digest_knows_every_field() -> None:
    """A plain job is told in four columns, as when there were no more; any other in eight."""
    job = jobs.Job(number=1, at_us=5, tenant="ant", service_us=10)
    assert job.columns() == (1, 5, "ant", 10)
    others = [
        replace(job, **change)
        for change in (
            {"number": 2},
            {"at_us": 6},
            {"tenant": "bee"},
            {"service_us": 11},
            {"lane": "side"},
            {"priority": 1},
            {"deadline_us": 7},
            {"cost": 1.5},
        )
    ]
    assert len({one.columns() for one in [job, *others]}) == 9


@pytest.mark.parametrize(
    "module", [dice, jobs, shape, kinds, traces, simulate, failures], ids=lambda module: module.__name__
)
def test_nothing_but_this_seed_reaches_them(module: object) -> None:
    """No clock, no server, no framework; of `random` only what Python promises to keep, and no platform's powers."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]  # as much of it as is asked here
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert not {name for name in imported if name and name.split(".")[0] in {"django", "redis", "time"}}
    drawn = {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"dice", "random", "math"}
    }
    assert drawn <= {("dice", "random"), ("random", "Random"), ("math", "inf")}
    powers = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)]
    assert all(isinstance(side, ast.Constant) for node in powers for side in (node.left, node.right))


# -- the shapes --------------------------------------------------------------------------------------------------


@every_kind
def test_arrivals_are_in_order_and_the_work_comes_at_the_stated_load(name: str) -> None:
    found = made(name, count=20_000)
    moments = [job.at_us for job in found.jobs]
    assert moments == sorted(moments)
    assert [job.number for job in found.jobs] == list(range(1, 20_001))
    busy_us = sum(job.service_us for job in found.jobs)
    assert busy_us / (16 * moments[-1]) == pytest.approx(1.25, rel=0.05 if name == "heavy_tailed" else 0.02)


@every_kind
def test_a_rate_is_the_rate_and_the_load_follows(name: str) -> None:
    given = replace(Shape(), bursts=shape.Bursts(base_per_s=200, peak_per_s=1200), rate_per_s=400.0)
    found = make(name, given, seed=1, jobs=20_000, slots=16)
    assert 20_000 / (found.jobs[-1].at_us / 1e6) == pytest.approx(400, rel=0.02)
    mean_us = sum(job.service_us for job in found.jobs) / 20_000
    assert found.load == pytest.approx(400 * mean_us / 1e6 / 16, rel=0.03)


def test_uniform_arrivals_come_one_after_each_gap() -> None:
    moments = [job.at_us for job in made("uniform", count=1_000, load=1.0).jobs]
    assert {after - before for before, after in pairwise(moments)} == {3125}


def test_bursts_have_two_rates_in_turn() -> None:
    """A fifth of the time at 360, the rest at 60 a second: by a load of 1.25 at 400 in the mean, 1,200 and 200."""
    found = made("bursty")
    peak = sum(job.at_us % 5_000_000 < 1_000_000 for job in found.jobs)
    assert peak / LARGE == pytest.approx(0.6, abs=0.01)
    silent = made("bursty", replace(Shape(), bursts=shape.Bursts(base_per_s=0.0)), count=5_000)
    assert all(job.at_us % 5_000_000 <= 1_000_000 for job in silent.jobs)


def test_shares_are_those_of_the_tenants(large: Workload) -> None:
    shares = FLOOD.skewed
    assert sum(shares.values()) == 100
    assert max(shares, key=lambda tenant: shares[tenant]) == large.big == "atlas"
    counts = Counter(job.tenant for job in large.jobs)
    for tenant, share in shares.items():
        expected = LARGE * share / 100
        assert abs(counts[tenant] - expected) < 5 * expected**0.5, tenant
    assert made("uniform", count=10).big is None


def test_durations_are_uniform_between_their_bounds(large: Workload) -> None:
    found = [job.service_us for job in large.jobs]
    assert 40_000 <= min(found) < 40_010
    assert 59_990 < max(found) <= 60_000
    assert sum(found) / LARGE == pytest.approx(50_000, rel=0.005)
    assert sum(one < 45_000 for one in found) / LARGE == pytest.approx(0.25, abs=0.01)


def test_a_heavy_tail_is_paretos() -> None:
    """P(X > x) = (15 / x) ** 1.3: half of the jobs are below 25.6 ms, and few are long."""
    found = [job.service_us for job in made("heavy_tailed").jobs]
    assert (min(found) >= 15_000, max(found)) == (True, 4_000_000)
    assert sum(one > 25_566 for one in found) / LARGE == pytest.approx(0.5, abs=0.01)
    assert sum(one > 150_000 for one in found) / LARGE == pytest.approx(0.0501, abs=0.005)
    assert sum(one > 1_500_000 for one in found) / LARGE == pytest.approx(0.0025, abs=0.001)


def test_priorities_and_deadlines_are_as_the_profile_says() -> None:
    found = made("uniform", profiles.load("full").shape)
    counts = Counter(job.priority for job in found.jobs)
    assert [round(100 * counts[level] / LARGE) for level in range(5)] == [50, 25, 15, 7, 3]
    slack = [job.deadline_us - job.at_us - 250_000 - 4 * job.service_us for job in found.jobs]
    assert (min(slack) >= 0, max(slack) <= 250_000) == (True, True)
    assert sum(slack) / LARGE == pytest.approx(125_000, rel=0.01)


def test_mixed_costs_differ_by_tenant_and_are_declared() -> None:
    found = made("mixed_cost")
    means = {
        tenant: sum(job.service_us for job in found.jobs if job.tenant == tenant)
        / sum(job.tenant == tenant for job in found.jobs)
        for tenant in found.tenants
    }
    assert means["elm"] / means["atlas"] == pytest.approx(10, rel=0.02)
    assert all(job.cost == job.service_us / 1000 for job in found.jobs)
    assert sum(job.service_us for job in found.jobs) / LARGE == pytest.approx(50_000, rel=0.02)


def test_tenants_that_come_and_go_never_return() -> None:
    found = made("churn")
    seen: dict[str, list[int]] = {}
    for job in found.jobs:
        seen.setdefault(job.tenant, []).append(job.at_us)
    assert len(seen) > 200
    assert all(moments[-1] - moments[0] <= 2_500_000 for moments in seen.values())
    for second in range(3, 60):
        here = {job.tenant for job in found.jobs if second * 500_000 <= job.at_us < (second + 1) * 500_000}
        assert len(here) == 5


@every_kind
def test_every_workload_has_the_name_under_which_it_stands(name: str) -> None:
    assert made(name, count=1).name == name
