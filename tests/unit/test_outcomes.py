"""Figures of a run, by hand and by their laws."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.bench.outcomes import Outcome, summary, times

MS = 1_000


def done(tenant: str, planned: int, started: int, ended: int, **more: int | bool) -> Outcome:
    """Moments in ms; it was busy from start to end."""
    return Outcome(
        **{
            "tenant": tenant,
            "priority": 0,
            "planned_us": planned * MS,
            "started_us": started * MS,
            "ended_us": ended * MS,
            "busy_us": (ended - started) * MS,
            **more,
        }  # type: ignore[arg-type]  # names and values are those of the fields
    )


BY_HAND = [
    done("ant", 0, 0, 100, deadline_us=100 * MS),  # on its deadline: a hit
    done("ant", 0, 100, 300, deadline_us=299 * MS, priority=2),
    done("bee", 50, 150, 250),
    done("bee", 100, 300, 400, completed=False, attempts=3, busy_us=250 * MS, deadline_us=1),
]


def test_a_run_by_hand() -> None:
    found = summary(BY_HAND, slots=2, starving_ms=99, tenants=["ant", "bee", "cat"])
    assert (found.all.jobs, found.all.completed, found.dead, found.attempts) == (4, 3, 1, 6)
    assert (found.makespan_s, found.throughput_per_s) == (0.4, 7.5)
    assert found.utilisation == pytest.approx((100 + 200 + 100 + 250) / (2 * 400))
    # Of the completed ones two have a deadline, and one missed it; the dead one does not count.
    assert found.all.miss_rate == 0.5
    assert (found.all.wait_max_ms, found.all.starved) == (200, 3)
    assert found.all.latency_mean_ms == pytest.approx((100 + 300 + 200) / 3)
    # Service 0.3, 0.35 and 0 s; completed 2, 1 and 0.
    assert found.jain_service == pytest.approx(0.65**2 / (3 * (0.3**2 + 0.35**2)))
    assert found.jain_count == pytest.approx(9 / (3 * 5))
    assert [(level, group.jobs) for level, group in found.priorities.items()] == [(0, 3), (2, 1)]
    assert (found.tenants["bee"].completed, found.tenants["bee"].service_s) == (1, 0.35)


def test_who_had_nothing_counts_as_nothing() -> None:
    """Without the idle tenant a queue that served one alone would look perfectly fair."""
    alone = [done("ant", 0, 0, 10)]
    assert summary(alone, slots=1, starving_ms=1).jain_service == 1
    found = summary(alone, slots=1, starving_ms=1, tenants=["ant", "bee"])
    assert (found.jain_service, found.jain_count) == (0.5, 0.5)
    assert (found.tenants["bee"].jobs, math.isnan(found.tenants["bee"].latency_p50_ms)) == (0, True)


def test_latency_counts_from_the_plan_however_late_the_sender_was() -> None:
    """Coordinated omission: a sender that is held up must not hide the delay that holds it up."""
    late = done("ant", planned=0, started=500, ended=510)  # sent at 490, say: nobody asks
    assert (late.wait_ms, late.latency_ms) == (500, 510)


def test_c161_percentiles_are_withheld_from_too_few_and_n_is_told() -> None:
    """C161: a p99 of a handful of jobs is their maximum under another name."""
    few = times([done("ant", 0, 0, number) for number in range(1, 20)], 1)
    assert (few.jobs, few.latency_p50_ms) == (19, 10)
    assert all(
        math.isnan(value) for value in (few.latency_p95_ms, few.latency_p99_ms, few.wait_p95_ms, few.wait_p99_ms)
    )
    more = times([done("ant", 0, 0, number) for number in range(1, 1_001)], 1)
    assert [more.latency_p95_ms, more.latency_p99_ms, more.latency_p999_ms] == pytest.approx([950.05, 990.01, 999.001])
    assert math.isnan(times([done("ant", 0, 0, number) for number in range(1, 1_000)], 1).latency_p999_ms)


def test_starved_is_who_waits_longer_than_the_threshold() -> None:
    waits = [done("ant", 0, wait, wait + 1) for wait in (99, 100, 101)]
    assert times(waits, starving_ms=100).starved == 1


def test_no_outcomes_have_no_figures() -> None:
    with pytest.raises(ValueError, match="There are no outcomes"):
        summary([], slots=1, starving_ms=1)


ANY = st.lists(
    st.builds(
        lambda tenant, planned, wait, busy, completed: replace(
            done(tenant, planned, planned + wait, planned + wait + busy), completed=completed
        ),
        st.sampled_from("abc"),
        st.integers(0, 10_000),
        st.integers(0, 10_000),
        st.integers(1, 1_000),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


@given(ANY, st.randoms(use_true_random=False))
def test_figures_keep_their_bounds_and_forget_the_order(outcomes: list[Outcome], dice: object) -> None:
    found = summary(outcomes, slots=len(outcomes), starving_ms=100, tenants="abcd")
    assert 0 < found.utilisation <= 1
    assert 0.25 - 1e-9 <= found.jain_service <= 1
    assert found.all.jobs == sum(group.jobs for group in found.tenants.values())
    assert found.all.wait_p50_ms <= found.all.wait_max_ms
    assert found.dead + found.all.completed == len(outcomes)
    assert repr(summary(outcomes[::-1], slots=len(outcomes), starving_ms=100, tenants="abcd")) == repr(found)
