"""How evenly slots were dealt out, against what each tenant was entitled to."""

from __future__ import annotations

import math

import pytest

from queueapp.bench.entitlement import jain_entitled


def equal(_: str) -> float:
    return 1.0


def test_who_asks_for_little_and_gets_it_is_as_well_off_as_who_gets_the_rest() -> None:
    runs = [("big", 0, 90), ("ant", 0, 10)]
    assert jain_entitled(runs, 100, equal) == 1


def test_who_waits_for_the_flood_of_another_is_not() -> None:
    """Both ask for 100 until 100; one had all of it: it was entitled to half."""
    assert jain_entitled([("big", 0, 100), ("ant", 100, 200)], 100, equal) == pytest.approx(0.5)


def test_what_runs_at_the_end_counts_as_far_as_it_has_run() -> None:
    assert jain_entitled([("big", 0, 200), ("ant", 50, 250)], 100, equal) == pytest.approx((2 + 1) ** 2 / (2 * 5))


def test_weights_say_what_each_is_entitled_to() -> None:
    runs = [("big", 0, 75), ("ant", 0, 25), ("big", 100, 200), ("ant", 100, 200)]
    assert jain_entitled(runs, 100, lambda tenant: 3.0 if tenant == "big" else 1.0) == 1
    assert jain_entitled(runs, 100, equal) == pytest.approx(0.8)


def test_where_nothing_was_served_there_is_no_index() -> None:
    assert math.isnan(jain_entitled([("big", 10, 20)], 10, equal))
