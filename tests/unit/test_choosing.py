"""The quick line chooses as the tree does, whatever comes: a random history under every ordered policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.bench.choosing import Chooser, Line, Walk, chooser
from queueapp.bench.simulate import SmallFirst
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits

ORDERED: dict[str, Callable[[], Policy]] = {name: made for name, made in POLICIES.items() if made().ordered}
ORDERED["small_first"] = lambda: SmallFirst("ant")

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("push"),
            st.sampled_from(["ant", "bee", "cat"]),
            st.sampled_from(["main", "side"]),
            st.integers(-3, 3),
            st.integers(0, 5),
            st.sampled_from([0.0, 0.5, 7.0]),
        ),
        st.just(("pick",)),
        st.tuples(st.just("end"), st.booleans(), st.floats(1, 90)),
    ),
    max_size=80,
)


@pytest.mark.parametrize("name", sorted(ORDERED))
@given(steps=STEPS)
def test_both_choose_the_same_jobs(name: str, steps: list[Any]) -> None:
    """`end` lets a run go; half of them come back, lost, at their old place."""
    cost = [50.0]
    choosers: tuple[Chooser, Chooser] = (
        Line(ORDERED[name](), lambda _: cost[0]),
        Walk(ORDERED[name](), {}, lambda _: cost[0]),
    )
    running, jobs = [], dict[str, Candidate]()
    for number, (step, *args) in enumerate(steps, start=1):
        if step == "push":
            tenant, lane, priority, deadline, declared = args
            job = jobs[str(number)] = Candidate(
                id=str(number),
                tenant=tenant,
                lane=lane,
                seq=number,
                priority=priority,
                deadline_ms=deadline,
                cost=declared,
                ready_ms=number * 10_000,
            )
            for one in choosers:
                one.push(job)
        elif step == "pick":
            first, second = (one.pick() for one in choosers)
            assert (first and (first.id, first.rank, first.estimated)) == (
                second and (second.id, second.rank, second.estimated)
            )
            if first is not None and second is not None:
                running.append((first, second))
        elif running:
            charges, (lost, run_ms) = running.pop(0), args
            cost[0] = run_ms
            for one, charge in zip(choosers, charges, strict=True):
                one.let_go(charge, run_ms)
                if lost:
                    one.push(jobs[charge.id], charge.rank)


def test_the_line_is_for_ordered_policies_without_limits_alone() -> None:
    for name, made in POLICIES.items():
        assert isinstance(chooser(made(), {}, lambda _: 1.0), Line) == (name in ORDERED)
        assert isinstance(chooser(made(), {"ant": Limits(ceiling=1)}, lambda _: 1.0), Walk)
