"""How calls reach the server: as functions, loaded when they are missing; as scripts where it takes no functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from queueapp.store import scripts
from queueapp.store.async_store import AsyncStore
from queueapp.store.keys import ShardKeys
from queueapp.store.safety import forget_old_functions
from queueapp.store.store import Store
from tests.lua.harness import Shard, completed


def calls(client: redis.Redis) -> dict[str, int]:
    found: Any = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in found.items()}


def test_a_function_is_loaded_once(shard: Shard) -> None:
    shard.client.function_flush()
    shard.client.config_resetstat()
    for _ in range(3):
        shard.store.extend_lease([], lease_ms=1_000)
    made = calls(shard.client)
    assert (made["fcall"], made["function|load"]) == (4, 1)
    assert "evalsha" not in made


@pytest.fixture
def limited(own_server: Callable[..., Any]) -> redis.Redis:
    """A user who may run scripts and no functions."""
    server = own_server()
    admin = redis.Redis.from_url(server.url)
    admin.acl_setuser(
        "app", enabled=True, passwords=["+pass-1234"], keys=["*"], channels=["*"], categories=["+@all"],
        commands=["-fcall", "-function"],
    )  # fmt: skip
    return redis.Redis.from_url(server.url.replace("unix://", "unix://app:pass-1234@"))


def test_where_functions_are_not_permitted_scripts_run(limited: redis.Redis, shard_keys: ShardKeys) -> None:
    store = Shard(limited, shard_keys)
    ids = store.add(store.job(), store.job())
    leased = store.lease(2)
    assert store.store.complete([completed(job) for job in leased]) == ["done"] * 2
    assert [job.id for job in leased] == ids


def test_the_same_for_asynchronous_callers(limited: redis.Redis, shard_keys: ShardKeys) -> None:
    kwargs = limited.connection_pool.connection_kwargs

    async def add() -> list[str]:
        client = redis.asyncio.Redis(unix_socket_path=kwargs["path"], username="app", password="+pass-1234"[1:])
        try:
            jobs = Shard(limited, shard_keys)
            return [one.outcome for one in await AsyncStore(client, shard_keys).enqueue([jobs.job()])]
        finally:
            await client.aclose()

    assert asyncio.run(add()) == ["enqueued"]


def test_a_full_server_that_lost_its_functions_lets_work_end(
    own_server: Callable[..., Any], shard_keys: ShardKeys
) -> None:
    """It loads none then, and what makes room must run."""
    server = own_server()
    client = redis.Redis.from_url(server.url)
    shard = Shard(client, shard_keys)
    shard.add(shard.job())
    [leased] = shard.lease()
    client.function_flush()
    client.config_set("maxmemory", "1mb")
    assert shard.store.complete([completed(leased)]) == ["done"]
    client.config_resetstat()
    shard.store.extend_lease([], lease_ms=1_000)
    assert "fcall" not in calls(client), "it is not asked again at once"
    client.config_set("maxmemory", "0")
    fresh = Store(redis.Redis.from_url(server.url), shard_keys)
    fresh.extend_lease([], lease_ms=1_000)
    assert calls(client)["function|load"] == 1


def test_functions_of_other_releases_are_removed(shard: Shard) -> None:
    client = shard.client
    other = "#!lua name={0}\nredis.register_function('{0}', function() return 1 end)"
    names = ["ductor_cancel_000000000000", "somebody_elses"]
    for name in names:
        client.function_load(other.format(name), replace=True)
    shard.store.cancel(["f" * 22])
    forget_old_functions(client)
    left = {entry[1].decode() for entry in client.execute_command("FUNCTION", "LIST")}
    assert names[0] not in left
    assert {names[1], scripts.script("cancel").function} <= left
    client.function_delete(names[1])


def test_a_server_that_lists_no_functions_is_left_alone(limited: redis.Redis) -> None:
    forget_old_functions(limited)
