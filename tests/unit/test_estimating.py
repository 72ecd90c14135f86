"""Estimates of a simulation are those of the store: the model that holds the store's scripts is held to the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queueapp.bench.estimating import Estimates
from queueapp.policies.protocol import Candidate
from tests.model import estimates as model

TENANTS = ["ant", "bee", "cat"]


def cost(known: Estimates, tenant: str) -> float:
    return known.of(Candidate(id="", tenant=tenant, seq=1))


@given(runs=st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(0, 400)), max_size=120))
def test_they_move_as_the_model_of_the_store(runs: list[tuple[str, int]]) -> None:
    ours, stores = Estimates(), model.Estimates()
    for tenant, run_ms in runs:
        ours.learn(tenant, run_ms)
        stores.learn("task", tenant, run_ms)
        assert [cost(ours, one) for one in TENANTS] == [stores.cost("task", one) for one in TENANTS]


def test_a_tenant_that_differs_has_an_average_of_its_own_from_its_eighth_run_on() -> None:
    known = Estimates()
    assert cost(known, "ant") == 50
    known.learn("ant", 20)
    assert (cost(known, "ant"), cost(known, "bee")) == (20, 20)
    for _ in range(7):
        known.learn("bee", 400)
    assert cost(known, "bee") == cost(known, "ant") > 200
    known.learn("bee", 400)
    assert (cost(known, "bee"), cost(known, "ant") < 300) == (400, True)
