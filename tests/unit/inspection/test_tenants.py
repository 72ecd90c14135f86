"""Tenants that a pool has seen, for the admin's list: a bounded page, whoever has a row."""

from __future__ import annotations

import pytest
from pytest_django import DjangoAssertNumQueries

from queueapp.inspection.tenants import SeenTenant, seen_tenants
from queueapp.models import Tenant
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db


def test_who_was_seen_with_and_without_a_row(scene: Scene) -> None:
    Tenant.objects.create(key="acme")
    Tenant.objects.create(key="unseen")
    scene.kill(1, tenant="dead")
    scene.end(1, tenant="done")
    scene.add(3)
    scene.add(5, tenant="zeta")
    found, total = seen_tenants("default")
    assert total == 4
    assert found == [
        SeenTenant(key="zeta", waiting=5, active=None, dead=0, has_row=False),
        SeenTenant(key="acme", waiting=3, active=None, dead=0, has_row=True),
        SeenTenant(key="done", waiting=0, active=None, dead=0, has_row=False),
        SeenTenant(key="dead", waiting=0, active=None, dead=1, has_row=False),
    ]
    assert seen_tenants("default", offset=1, count=2) == (found[1:3], 4)
    assert seen_tenants("default", offset=9) == ([], 4)


def test_a_page_of_100_000_tenants_costs_two_round_trips_and_one_query(
    scene: Scene, round_trips: RoundTrips, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    names = {f"t{tenant:06}": 0.0 for tenant in range(99_999)}
    scene.store.client.zadd(scene.keys["tenants"], names)
    scene.add(tenant="busy")
    seen_tenants("default")
    for offset in (0, 50_000, 99_980):
        round_trips.since_last()
        with django_assert_num_queries(1):
            found, total = seen_tenants("default", offset=offset, count=20)
        assert round_trips.since_last() == 2
        assert (len(found), total) == (20, 100_000)
    assert seen_tenants("default", count=1)[0][0].key == "busy"
