"""The arithmetic of the certificate, and what each of its words means."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.inspection.shares import (
    STARVED_WAIT_S,
    Claim,
    Place,
    Standing,
    jain,
    lags_of_ring,
    lags_of_tiered,
    lags_of_wfq,
    shares,
    water_fill,
    word,
)

units = st.floats(min_value=0, max_value=1e12, allow_subnormal=False)
weights = st.floats(min_value=0.001, max_value=1000)
askers = st.lists(st.tuples(units, weights), max_size=30)


def close(one: float, two: float, scale: float = 0.0) -> bool:
    return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9 * max(1.0, scale))


@settings(deadline=None)
@given(capacity=units, asked=askers)
def test_water_filling_deals_out_all_there_is_and_to_nobody_more_than_asked(
    capacity: float, asked: list[tuple[float, float]]
) -> None:
    demands, by = [demand for demand, _ in asked], [weight for _, weight in asked]
    granted = water_fill(capacity, demands, by)
    assert close(sum(granted), min(capacity, sum(demands)), capacity)
    assert all(0 <= got <= demand for got, demand in zip(granted, demands, strict=True))


@settings(deadline=None)
@given(capacity=units, asked=askers)
def test_who_lacks_something_has_as_much_for_its_weight_as_anybody(
    capacity: float, asked: list[tuple[float, float]]
) -> None:
    demands, by = [demand for demand, _ in asked], [weight for _, weight in asked]
    granted = water_fill(capacity, demands, by)
    most = max((got / weight for got, weight in zip(granted, by, strict=True)), default=0.0)
    for got, demand, weight in zip(granted, demands, by, strict=True):
        if not close(got, demand, capacity):
            assert close(got / weight, most, capacity / weight)


@settings(deadline=None)
@given(capacity=units, asked=askers.filter(bool))
def test_a_part_of_the_tenants_with_what_these_had_is_dealt_out_alike(
    capacity: float, asked: list[tuple[float, float]]
) -> None:
    """Why the certificate may look at some of the tenants of a large pool only."""
    demands, by = [demand for demand, _ in asked], [weight for _, weight in asked]
    granted = water_fill(capacity, demands, by)
    half = len(asked) // 2
    again = water_fill(sum(granted[half:]), demands[half:], by[half:])
    assert all(close(one, two, capacity) for one, two in zip(granted[half:], again, strict=True))


def test_water_filling_by_hand() -> None:
    # Ten units; the least asker is met, the others have four for a weight of one and a half each.
    assert water_fill(10, [2, 100, 100], [1, 1, 1]) == [2, 4, 4]
    assert water_fill(10, [100, 100], [1, 4]) == [2, 8]
    assert water_fill(10, [1, 3], [1, 1]) == [1, 3]
    assert water_fill(10, [], []) == []


@settings(deadline=None)
@given(st.lists(units, min_size=1, max_size=50))
def test_jain_lies_between_one_nth_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-12 <= jain(values) <= 1


@settings(deadline=None)
@given(value=st.floats(min_value=1e-300, max_value=1e300), number=st.integers(1, 50))
def test_jain_of_equals_and_of_one_who_has_all(value: float, number: int) -> None:
    assert jain([value] * number) == pytest.approx(1)
    assert jain([value] + [0.0] * (number - 1)) == pytest.approx(1 / number)


def test_jain_of_nobody_and_of_nothing() -> None:
    assert jain([]) == jain([0.0, 0.0]) == 1


def claim(units_: float = 0.0, **values: Any) -> Claim:
    fields: dict[str, Any] = {"weight": 1.0, "jobs": round(units_), "largest": 1.0, "asks": 0.0}
    return Claim(units=units_, **{**fields, **values})


def backlog(units_: float = 0.0, **values: object) -> Claim:
    return claim(units_, **{"in_line": True, "asks": 1e6, "wait_s": STARVED_WAIT_S, **values})


def test_shares_follow_weights_while_all_have_work() -> None:
    found = shares([backlog(100), backlog(200, weight=2), backlog(400, weight=4)])
    assert [share.entitled for share in found] == [100, 200, 400]
    assert [share.ratio for share in found] == [1, 1, 1]
    assert {share.standing for share in found} == {Standing.FAIR}
    assert sum(share.share for share in found) == sum(share.entitled_share for share in found) == pytest.approx(1)


def test_who_asks_for_little_has_had_its_part() -> None:
    small, large = shares([claim(10), backlog(990)])
    assert (small.entitled, small.ratio, small.standing) == (10, 1, Standing.FAIR)
    assert (large.entitled, large.ratio, large.standing) == (990, 1, Standing.BORROWING)


def test_one_alone_borrows_from_nobody() -> None:
    assert shares([backlog(1000)])[0].standing is Standing.FAIR


def test_a_flood_before_everybody_else() -> None:
    flood, small = shares([backlog(1000), backlog(0, largest=0.0)])
    assert (flood.entitled, flood.ratio, flood.standing) == (500, 2, Standing.BORROWING)
    assert (small.entitled, small.ratio, small.standing) == (500, 0, Standing.STARVED)


def test_whoever_came_a_moment_ago_is_not_behind() -> None:
    old, new = shares([backlog(1000), backlog(0, largest=0.0, presence=0.001, wait_s=0.3)])
    assert new.standing is Standing.FAIR
    assert new.entitled == pytest.approx(1, rel=0.01)
    assert old.ratio == pytest.approx(1, rel=0.01)


def test_without_any_service_nobody_is_behind() -> None:
    found = shares([backlog(0, largest=0.0), backlog(0, largest=0.0)])
    assert [(share.ratio, share.share, share.standing) for share in found] == [(None, 0, Standing.FAIR)] * 2
    assert shares([]) == []


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Claim,
            weight=weights,
            units=units,
            jobs=st.integers(0, 1000),
            largest=units,
            asks=units,
            presence=st.floats(0, 1),
            in_line=st.booleans(),
        ),
        max_size=20,
    )
)
def test_what_is_entitled_is_what_was_served(claims: list[Claim]) -> None:
    found = shares(claims)
    served = sum(one.units for one in claims)
    assert close(sum(share.entitled for share in found), served, served)
    assert all(share.entitled <= (one.units + one.asks) * (1 + 1e-9) for share, one in zip(found, claims, strict=True))


@pytest.mark.parametrize(
    ("given_", "want"),
    [
        (backlog(100, paused=True, capped=True), Standing.PAUSED),
        (backlog(0, capped=True), Standing.CAPPED),
        (claim(0), Standing.IDLE),
        (backlog(49), Standing.STARVED),
        (backlog(49, wait_s=STARVED_WAIT_S - 1), Standing.BEHIND),
        (backlog(50), Standing.BEHIND),
        (backlog(89), Standing.BEHIND),
        (backlog(90), Standing.FAIR),
        (claim(49), Standing.FAIR),  # nothing of it waits
        (backlog(100), Standing.FAIR),
        (backlog(110), Standing.FAIR),
        (backlog(111), Standing.BORROWING),
    ],
)
def test_words(given_: Claim, want: Standing) -> None:
    assert word(given_, entitled=100, alone=100, grain=0) is want


def test_what_single_jobs_make_is_nobody_s_fault() -> None:
    assert word(backlog(0), entitled=100, alone=100, grain=100) is Standing.FAIR
    assert word(backlog(0), entitled=100, alone=100, grain=99) is Standing.STARVED
    assert word(backlog(200), entitled=100, alone=100, grain=100) is Standing.FAIR
    # Jobs of a thousand units each: one had two of them, the other one.
    two, one = shares([backlog(2000, largest=1000.0), backlog(1000, largest=1000.0)])
    assert {two.standing, one.standing} == {Standing.FAIR}
    # Its own large job counts beside the largest of all, which is the same one here: 2 · 80 at most.
    assert shares([backlog(10, largest=80.0), backlog(190)])[0].standing is Standing.FAIR
    assert shares([backlog(10, largest=40.0), backlog(190)])[0].standing is Standing.STARVED


class TestLag:
    def test_of_tiered_is_the_distance_to_whoever_is_furthest_ahead(self) -> None:
        ahead = Place(position=110, weight=2, largest=20)
        behind = Place(position=100, weight=4, largest=8)
        first, second = lags_of_tiered([ahead, behind])
        assert (first.units, first.bound) == (0, 20)
        assert (second.units, second.bound) == (40, 4 * (20 / 2 + 8 / 4))

    def test_corrections_widen_the_bound_by_a_job_each(self) -> None:
        ahead = Place(position=110, weight=1, largest=20, corrected=3)
        behind = Place(position=100, weight=1, largest=8, corrected=1)
        assert lags_of_tiered([ahead, behind])[1].bound == 4 * 20 + 2 * 8

    def test_who_had_no_turn_in_the_window_is_no_measure(self) -> None:
        """It lies far ahead because of an earlier job, and waits for the others to catch up."""
        ahead = Place(position=10_000, weight=1, largest=0, served=False)
        places = [ahead, Place(position=100, weight=1, largest=8), Place(position=99, weight=1, largest=8)]
        assert [lag.units for lag in lags_of_tiered(places)] == [0, 0, 1]
        assert [lag.units for lag in lags_of_tiered([ahead])] == [0]
        assert lags_of_tiered([]) == []

    def test_of_wfq_is_what_the_clock_has_passed(self) -> None:
        places = [Place(position=90, weight=2, largest=7), Place(position=110, weight=2, largest=0)]
        assert [(lag.units, lag.bound) for lag in lags_of_wfq(places, 100, 1, cost=50)] == [(20, 7), (0, 50)]

    def test_of_ring_is_counted_in_turns_of_others(self) -> None:
        assert [(lag.units, lag.bound) for lag in lags_of_ring([0, 2], 3)] == [(2, 2), (0, 2)]
