"""How calls reach the server: as functions, loaded when they are missing; as scripts where it takes no functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from queueapp.errors import StoreMisconfigured
from queueapp.store import scripts
from queueapp.store.async_store import AsyncStore
from queueapp.store.embedded import EmbeddedServer
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


def test_one_that_cannot_be_removed_keeps_no_other(
    shard: Shard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And one that another scheduler removed first is not told."""
    client, delete = shard.client, redis.Redis.function_delete
    text = "#!lua name={0}\nredis.register_function('{0}', function() return 1 end)"
    names = [f"ductor_cancel_00000000000{number}" for number in range(4)]
    for name in names:
        client.function_load(text.format(name), replace=True)

    def refused(self: Any, name: str) -> Any:
        if name == names[1]:
            raise redis.ResponseError("NOPERM no")
        done = delete(self, name)
        return delete(self, name) if name == names[2] else done

    caplog.set_level("INFO", "queueapp")
    with monkeypatch.context() as patch:
        patch.setattr(redis.Redis, "function_delete", refused)
        forget_old_functions(client)
    left = {entry[1].decode() for entry in client.execute_command("FUNCTION", "LIST")}
    assert left & set(names) == {names[1]}
    (line,) = [line for line in caplog.messages if "earlier releases" in line]
    assert line.startswith(f"1 functions of earlier releases stay on the server, the first {names[1]}")
    client.function_delete(names[1])


def test_a_server_that_lists_no_functions_is_left_alone(limited: redis.Redis) -> None:
    forget_old_functions(limited)


def test_after_a_lost_reply_no_connection_of_before_is_used_again(
    shard: Shard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rests in the pool leads to the same server, frozen or demoted: each would cost a time-out of its own."""
    client = redis.Redis.from_url(redis_url, protocol=2, socket_timeout=30)
    pool = client.connection_pool
    resting = [pool.get_connection() for _ in range(3)]
    for connection in resting:
        pool.release(connection)
    assert all(connection.is_connected for connection in resting)
    store, failed = Store(client, shard.keys), list[Any]()
    fcall = client.fcall

    def once(*arguments: Any) -> Any:
        if not failed:
            failed.append(arguments)
            raise redis.ConnectionError("gone")
        return fcall(*arguments)

    monkeypatch.setattr(client, "fcall", once)
    assert store.extend_lease([], lease_ms=1_000) is not None
    assert store.resent == 1
    assert sum(connection.is_connected for connection in resting) <= 1, "but the one that was made anew"
    client.close()


def test_after_a_lost_reply_the_async_client_makes_new_connections_too(
    shard: Shard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call() -> int:
        client = redis.asyncio.Redis.from_url(redis_url, protocol=2, socket_timeout=30)
        pool = client.connection_pool
        resting = [await pool.get_connection() for _ in range(3)]
        for connection in resting:
            await pool.release(connection)
        fcall, failed = client.fcall, list[Any]()

        async def once(*arguments: Any) -> Any:
            if not failed:
                failed.append(arguments)
                raise redis.ConnectionError("gone")
            return await fcall(*arguments)

        monkeypatch.setattr(client, "fcall", once)
        assert await AsyncStore(client, shard.keys).await_result("nobody", "waiter")
        connected: int = sum(connection.is_connected for connection in resting)
        await client.aclose()
        return connected

    assert asyncio.run(call()) <= 1


def test_who_is_told_that_it_speaks_to_a_replica_connects_anew(
    own_server: Callable[..., EmbeddedServer], shard_keys: ShardKeys
) -> None:
    """Behind a proxy the same address may lead to the new primary by now, but no connection of before does."""
    client = redis.Redis.from_url(own_server("--replicaof", "127.0.0.1", "1").url, protocol=2, socket_timeout=30)
    store = Store(client, shard_keys)
    before = client.client_id()
    with pytest.raises(StoreMisconfigured, match="read-only replica"):
        store.extend_lease([], lease_ms=1_000)
    assert client.client_id() != before
    client.close()
