"""Words for the tests of policies in the store: which there are, pools under one, what is left in which order."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.policies.registry import DIRECT
from queueapp.store.configuration import PoolConf
from queueapp.store.records import Returned
from tests.lua.harness import Shard

TIED = ("aging", "edf", "wfq")
every_policy = pytest.mark.parametrize("policy", sorted(DIRECT))
every_tied = pytest.mark.parametrize("policy", TIED)


def under(shard: Shard, policy: str, version: int = 1, **options: Any) -> None:
    shard.store.configure(version, pool=PoolConf(policy=policy, **options))


def drained(shard: Shard, worker: str = "drain") -> list[str]:
    """What is left, in the order of its leases."""
    order: list[str] = []
    while jobs := shard.lease(3, worker=worker):
        order += [job.id for job in jobs]
    return order


def given_back(shard: Shard, job_id: str, attempts: int = 1) -> None:
    assert shard.store.partition_requeue([Returned(id=job_id, attempts=attempts)]) == ["done"]


def row(shard: Shard, job_id: str) -> bytes:
    text = shard.client.get(shard.keys.job(job_id))
    assert isinstance(text, bytes)
    return text
