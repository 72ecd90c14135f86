"""The fixture of the script tests: a fresh shard under a fake clock, recounted after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from queueapp.store.keys import ShardKeys
from tests.lua.harness import Shard


@pytest.fixture
def shard(redis_client: redis.Redis, shard_keys: ShardKeys, request: pytest.FixtureRequest) -> Iterator[Shard]:
    fresh = Shard(redis_client, shard_keys)
    yield fresh
    if not request.node.get_closest_marker("dirty_store"):
        assert fresh.store.verify() == []


@pytest.fixture
def other(shard: Shard, redis_client: redis.Redis, shard_keys: ShardKeys) -> Iterator[Shard]:
    """The pool to which jobs go, on the same clock."""
    fresh = Shard(redis_client, ShardKeys(namespace=shard_keys.namespace, code="other"), now_ms=shard.now_ms)
    yield fresh
    assert fresh.store.verify() == []
