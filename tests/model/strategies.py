"""What the state machine draws: jobs, calls and their faults; and rules that every run keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.keysets import key_use
from tests.model.machine import LANES, TENANTS, WORKERS

ONE, TWO, WIDE = key_use("one", 1), key_use("two", 2), key_use("one", 2)

picks = st.lists(st.integers(0, 10**6), min_size=1, max_size=5)
twice = st.booleans()
workers = st.integers(0, len(WORKERS) - 1)
new_jobs = st.lists(
    st.fixed_dictionaries(
        {
            "tenant": st.sampled_from(TENANTS),
            "lane": st.sampled_from(LANES),
            "cost": st.sampled_from([0.0, 0.0, 3.0]),
            "priority": st.sampled_from([0, 0, 9, -9]),
            "tier": st.sampled_from(["start", "start", "continue"]),
            "delay_ms": st.sampled_from([0, 0, 0, 50, 900]),
            "expires_after_ms": st.sampled_from([0, 0, 0, 40, 2000]),
            "max_attempts": st.integers(1, 3),
            "max_crashes": st.sampled_from([1, 2, 3, 3]),
            "idempotency": st.sampled_from(["", "", "", "k1", "k2"]),
            "fingerprint": st.sampled_from(["f", "f", "g"]),
            "keys": st.sampled_from([(), (), (), (ONE,), (TWO,), (ONE, TWO), (WIDE,)]),
        }
    ),
    min_size=1,
    max_size=4,
)
plain_jobs = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from(TENANTS),
        "lane": st.sampled_from(LANES),
        "cost": st.sampled_from([0.0, 0.0, 3.0]),
        "priority": st.sampled_from([0, 0, 9, -9]),
        "max_crashes": st.sampled_from([1, 2, 3, 3]),
        "fingerprint": st.just("f"),
    }
)
"""Jobs that may begin before the store has heard of them."""
wants, begins, lease_times = (
    st.sampled_from([0, 1, 2, 3, 5]),
    st.sampled_from([0, 2, 5]),
    st.sampled_from([30, 700, 9000]),
)
finishes = st.tuples(
    picks, st.booleans(), st.sampled_from([0, 3, 80]), st.sampled_from([0.0, 0.0, 5.0]), st.sampled_from([None, 1, 300])
)


class _Often:
    """A function that becomes several rules of the class in which it stands."""

    def __init__(self, function: Callable[..., None], strategies: dict[str, Any]) -> None:
        self.function, self.strategies = function, strategies

    def __set_name__(self, owner: type, name: str) -> None:
        decorate: Any = rule
        setattr(owner, name, self.function)
        for number in range(1, 4):
            setattr(owner, f"{name}_{number}", decorate(**self.strategies)(self.function))


def often(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`@rule` under several names: hypothesis leaves about half of the rules out of each run, these it should keep."""
    return lambda function: cast(Callable[..., None], _Often(function, strategies))
