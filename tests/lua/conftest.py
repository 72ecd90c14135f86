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
