"""What a tenant is told of its share of a pool, and that nothing follows from it about another by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queueapp.api import pool_shapes
from queueapp.store import shards
from queueapp.store.configuration import ScopeLimits
from queueapp.store.ids import new_id
from queueapp.store.records import NewJob

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]


@pytest.fixture
def busy(opened: None) -> None:
    """Three tenants with work; six jobs of one unit have been leased."""
    store = shards.store("default")
    store.configure(1, scopes=[ScopeLimits(tenant="globex-secret", weight=4)])
    for tenant in ("acme", "globex-secret", "initech"):
        store.enqueue(
            [NewJob(id=new_id(), task="t", tenant=tenant, payload=b"{}", fingerprint="f", cost=1) for _ in range(9)]
        )
    assert len(store.check_and_lease("w.1", 1, want=6, begin=6, lease_ms=30_000).jobs) == 6


def test_one_s_own_share_and_nobody_else_s(busy: None, ask: Callable[..., Any]) -> None:
    for path in ("pools/default/", "tenants/acme/"):
        answer = ask("GET", path)
        told = answer.json()["own_share"]
        assert set(told) == set(pool_shapes.OwnShare().fields)
        assert (told["state"], told["jobs"], told["units"], told["unit"]) == ("fair", 1, 1, "ms")
        assert told["share"] == told["entitled_share"] == pytest.approx(1 / 6)
        assert told["ratio"] == 1
        assert not {"lag", "lag_bound"} & set(told), "the bound is made of other tenants' jobs"
        assert b"globex" not in answer.content
        assert b"initech" not in answer.content
    assert ask("GET", "pools/default/").json()["fairness"] is None
    assert ask("GET", "tenants/globex-secret/").status_code == 404


def test_a_tenant_without_work_is_idle(busy: None, ask: Callable[..., Any]) -> None:
    told = ask("GET", "tenants/umbrella/", tenants="umbrella").json()["own_share"]
    assert (told["state"], told["share"], told["ratio"], told["wait_s"]) == ("idle", 0, None, None)


def test_the_pool_s_summary_is_for_who_may_speak_for_all(busy: None, ask: Callable[..., Any]) -> None:
    whole = ask("GET", "pools/default/", tenants="ALL")
    told = whole.json()["fairness"]
    assert set(told) == set(pool_shapes.Fairness().fields)
    assert (told["jobs"], told["units"], told["states"]["fair"], told["whole"]) == (6, 6, 3, True)
    assert told["jain_entitled"] == pytest.approx(1)
    assert told["jain_count"] < 1
    assert b"globex" not in whole.content
    of_one = ask("GET", "pools/default/?tenant=globex-secret", tenants="ALL").json()
    assert (of_one["fairness"], of_one["own_share"]["jobs"]) == (None, 4)
