"""What start-up says about the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from queueapp.errors import StoreMisconfigured, StoreUnavailable
from queueapp.store.embedded import EmbeddedServer
from queueapp.store.safety import check_server


class Answering:
    """A client whose server describes itself as told."""

    def __init__(self, **info: Any) -> None:
        self._info = info

    def info(self, section: str) -> dict[str, Any]:
        return self._info


def test_c043_an_evicting_policy_is_warned_of(own_server: Callable[..., EmbeddedServer]) -> None:
    """C043: an evicting maxmemory policy silently drops queue keys."""
    server = own_server("--maxmemory-policy", "allkeys-lru", durable=True)
    client = redis.Redis.from_url(server.url)
    (warning,) = check_server(client)
    assert "allkeys-lru" in warning
    assert "noeviction" in warning
    client.config_set("maxmemory-policy", "noeviction")
    assert check_server(client) == []
    client.close()


def test_c050_a_server_too_old_is_refused_with_the_minimum_version() -> None:
    """C050: scripts fail on older servers. Right: start-up names the minimum version."""
    with pytest.raises(StoreMisconfigured, match=r"Redis 6\.2\.14.*7\.0"):
        check_server(Answering(redis_version="6.2.14"))  # type: ignore[arg-type]  # as much of it as is asked here


def test_a_server_without_persistence_is_warned_of() -> None:
    (warning,) = check_server(Answering(redis_version="7.2.4", role="master", aof_enabled=0))  # type: ignore[arg-type]  # as much of it as is asked here
    assert "appendonly yes" in warning


def test_a_server_that_loads_its_data_is_waited_for_and_not_accused() -> None:
    loading = Answering(redis_version="7.2.4", role="master", aof_enabled=0, loading=1)
    with pytest.raises(StoreUnavailable, match="loading its data"):
        check_server(loading)  # type: ignore[arg-type]  # as much of it as is asked here
