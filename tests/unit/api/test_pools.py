"""Pools and tenants: names, counts and limits, each only of what one may speak for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.store.configuration import PoolConf, ScopeLimits
from tests.unit.api import host
from tests.unit.api.host import job_in

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]
OPEN = {
    **{"rate": None, "period_seconds": 1.0, "burst": 1, "backlog_limit": None},
    **{"dispatch_rate": None, "dispatch_period_seconds": 1.0, "dispatch_burst": 1},
}
"""Limits that let everything in."""


def names(answer: Any, of: str = "name") -> list[str]:
    assert answer.status_code == 200, answer.content
    return [each[of] for each in answer.json()["results"]]


def test_which_pools_there_are(opened: None, ask: Callable[..., Any]) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": {"alone": {}, "zoo": {}}}):
        Pool.objects.create(name="row")
        assert names(ask("GET", "pools/", tenants="ALL")) == ["alone", "default", "row", "zoo"]
        first = ask("GET", "pools/?page_size=3", tenants="ALL")
        assert names(first) == ["alone", "default", "row"]
        second = ask("GET", first.json()["next"], tenants="ALL")
        assert (names(second), second.json()["next"]) == (["zoo"], None)
        # Who may speak for some sees where the tasks of the API run, and no names of the rest of the project.
        assert names(ask("GET", "pools/")) == ["default"]
        url = ask("GET", "pools/").json()["results"][0]["url"]
        assert ask("GET", url).json()["name"] == "default"


def test_a_pool_as_a_whole_and_for_one_tenant(opened: None, ask: Callable[..., Any]) -> None:
    for tenant in ("acme", "acme", "globex"):
        job_in("dead", tenant)
    job_in("active", "globex")
    for tenant in ("acme", "globex", "globex"):
        job_in("scheduled", tenant)
    job_in("pending", "globex")
    shards.store("default").configure(1, pool=PoolConf(paused=True))
    whole = ask("GET", "pools/default/", tenants="ALL").json()
    assert whole.pop("fairness")["window_s"] >= 300  # test_fairness.py
    assert whole == {
        "name": "default",
        "tenant": None,
        "paused": True,
        "waiting": 4,
        "parked": 0,
        "dead": 3,
        "active": 1,
        "scheduled": 3,
        "ended": 0,
        "parents": 0,
        "workers": 4,
        "policy": "tiered",
        "edf_by": None,
        "aging_step_ms": None,
        "dispatch": "direct",
        "window": None,
        "ingress": 0,
        "ready": 0,
        "reranking": None,
        "own_share": None,
    }
    mine = ask("GET", "pools/default/").json()
    assert mine.pop("own_share")["state"] == "paused"
    assert mine == {
        "name": "default",
        "tenant": "acme",
        "paused": True,
        "waiting": 1,
        "parked": 0,
        "dead": 2,
        "active": None,
        "scheduled": None,
        "ended": None,
        "parents": None,
        "workers": None,
        "policy": None,
        "edf_by": None,
        "aging_step_ms": None,
        "dispatch": None,
        "window": None,
        "ingress": None,
        "ready": None,
        "reranking": None,
        "fairness": None,
    }
    assert ask("GET", "pools/default/?tenant=globex", tenants="ALL").json()["waiting"] == 3
    assert ask("GET", "pools/default/?tenant=globex").status_code == 404
    assert ask("GET", "pools/default/", tenants="acme,globex").status_code == 400


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        (PoolConf(policy="edf", by="latest_start", step_ms=5_000), ("edf", "latest_start", None)),
        (PoolConf(policy="aging", by="latest_start", step_ms=5_000), ("aging", None, 5_000)),
        (PoolConf(policy="ring", by="latest_start", step_ms=5_000), ("ring", None, None)),
    ],
    ids=lambda value: getattr(value, "policy", ""),
)
def test_a_policy_is_told_with_the_parameter_that_it_takes(
    opened: None, ask: Callable[..., Any], conf: PoolConf, told: tuple[Any, ...]
) -> None:
    shards.store("default").configure(1, pool=conf)
    pool = ask("GET", "pools/default/", tenants="ALL").json()
    assert (pool["policy"], pool["edf_by"], pool["aging_step_ms"]) == told


def test_a_pool_that_is_unknown(opened: None, ask: Callable[..., Any]) -> None:
    for name in ("nowhere", "Not-A-Pool", "%00", "é"):
        for tenants in ("acme", "ALL"):
            assert ask("GET", f"pools/{name}/", tenants=tenants).status_code == 404


def test_a_pool_that_left_the_settings_is_still_there_for_who_sees_all(opened: None, ask: Callable[..., Any]) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": {"old": {}}}):
        host.add.using(queue_name="old", tenant="acme", on_commit=False).enqueue(1)
    assert ask("GET", "pools/old/", tenants="ALL").json()["waiting"] == 1
    assert len(ask("GET", "jobs/?pool=old", tenants="ALL").json()["results"]) == 1
    assert ask("GET", "pools/old/").status_code == 404
    assert ask("GET", "jobs/?pool=old").status_code == 400


def test_one_s_own_tenants(opened: None, ask: Callable[..., Any]) -> None:
    for tenant in ("acme", "acme", "globex", "hidden"):
        job_in("pending", tenant)
    mine = ask("GET", "tenants/", tenants="initech,globex,acme")
    assert [(each["key"], each["waiting"]) for each in mine.json()["results"]] == [
        ("acme", 2),
        ("globex", 1),
        ("initech", 0),
    ]
    first = ask("GET", "tenants/?page_size=2", tenants="initech,globex,acme")
    second = ask("GET", first.json()["next"], tenants="initech,globex,acme")
    assert (names(first, "key"), names(second, "key")) == (["acme", "globex"], ["initech"])
    assert second.json()["next"] is None
    assert names(ask("GET", "tenants/", tenants=""), "key") == []


def test_every_tenant_that_was_seen(opened: None, ask: Callable[..., Any]) -> None:
    for tenant in ("acme", "globex", "globex"):
        job_in("pending", tenant)
    first = ask("GET", "tenants/?page_size=1", tenants="ALL")
    second = ask("GET", first.json()["next"], tenants="ALL")
    assert (names(first, "key"), names(second, "key")) == (["globex"], ["acme"])
    assert second.json()["next"] is None
    for cursor in ("x", "-1", "9" * 40, "1.5"):
        answer = ask("GET", f"tenants/?cursor={cursor}", tenants="ALL")
        assert (answer.status_code, list(answer.json())) == (400, ["cursor"])


def test_a_tenant_with_its_limits(opened: None, ask: Callable[..., Any]) -> None:
    pool = Pool.objects.create(name="default")
    tenant = Tenant.objects.create(key="acme", name="Acme Ltd", notes="owes us money")
    TenantLimits.objects.create(pool=pool, tenant=tenant, weight=2, max_in_flight=1)
    TenantLimits.objects.create(pool=pool, tenant=tenant, lane="bulk", paused=True)
    shards.store("default").configure(1, scopes=[ScopeLimits(tenant="acme", weight=2, max_in_flight=1)])
    job_in("dead")
    job_in("active")
    job_in("pending")
    told = ask("GET", "tenants/acme/").json()
    assert told.pop("own_share")["state"] == "capped"
    assert told == {
        "key": "acme",
        "url": "http://testserver/api/tenants/acme/",
        "name": "Acme Ltd",
        "pool": "default",
        "waiting": 1,
        "parked": 0,
        "active": 1,
        "dead": 1,
        "limits": [
            {"lane": "", "weight": 2.0, "max_in_flight": 1, "min_share": 0, "paused": False, **OPEN},
            {"lane": "bulk", "weight": 1.0, "max_in_flight": None, "min_share": 0, "paused": True, **OPEN},
        ],
    }


def test_a_tenant_needs_no_row(opened: None, ask: Callable[..., Any]) -> None:
    for tenants in ("acme", "ALL"):
        told = ask("GET", "tenants/acme/", tenants=tenants).json()
        assert (told["name"], told["waiting"], told["limits"]) == ("", 0, [])
    assert ask("GET", "tenants/acme/?pool=nowhere").status_code == 400


@pytest.mark.parametrize("key", ["globex", "_ductor", "a b", "é", "%00", "x" * 65])
def test_a_tenant_that_is_not_one_s_own_or_none_at_all(opened: None, ask: Callable[..., Any], key: str) -> None:
    assert ask("GET", f"tenants/{key}/").status_code == 404
    if key != "globex":
        assert ask("GET", f"tenants/{key}/", tenants="ALL").status_code == 404


@pytest.mark.parametrize("path", ["tenants/", "tenants/acme/", "pools/", "pools/default/"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_is_changed_here(opened: None, ask: Callable[..., Any], path: str, method: str) -> None:
    answer = ask(method, path, tenants="ALL", body={"weight": 5})
    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")
