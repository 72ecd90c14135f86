"""The tenant `_ductor`, whose jobs are wake-ups: what they wait for, others wait for, so that it weighs ten."""

from __future__ import annotations

from collections import Counter

import pytest

from queueapp.names import SYSTEM_TENANT, SYSTEM_WEIGHT
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.service import read_service
from tests.lua.harness import Shard


@pytest.mark.parametrize("others", [1.0, 5.0])
def test_it_weighs_ten_whatever_others_weigh_by_default(shard: Shard, others: float) -> None:
    shard.store.configure(1, pool=PoolConf(default_weight=others, cost_unit="units"))
    shard.add(*(shard.job(tenant) for tenant in (SYSTEM_TENANT, "acme") for _ in range(40)))
    leased = Counter(job.tenant for job in shard.lease(33))
    assert leased["acme"] == round(33 * others / (others + SYSTEM_WEIGHT))
    assert shard.reads.weights([SYSTEM_TENANT, "acme"]) == {SYSTEM_TENANT: SYSTEM_WEIGHT, "acme": others}
    assert shard.store.verify() == []


def test_a_weight_of_its_own_holds(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant=SYSTEM_TENANT, weight=2)])
    assert shard.reads.weights([SYSTEM_TENANT]) == {SYSTEM_TENANT: 2}


def test_the_certificate_of_fairness_knows_its_weight(shard: Shard) -> None:
    shard.add(shard.job(SYSTEM_TENANT), shard.job("acme"))
    found = read_service(shard.client, shard.keys, window_s=60, now_ms=shard.now_ms).tenants
    assert {tenant: entry.weight for tenant, entry in found.items()} == {SYSTEM_TENANT: SYSTEM_WEIGHT, "acme": 1}
