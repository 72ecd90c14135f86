"""Pools and their codes: said without asking, recorded at the first write, refused at a clash, found again by id."""

from __future__ import annotations

import asyncio
import os

import pytest
import redis
from pytest_django import Settings

from queueapp.errors import StoreMisconfigured, StoreUnavailable
from queueapp.store import connection, shards
from queueapp.store.keys import ShardKeys, pool_code

ID = "0" * 22


@pytest.fixture
def unreachable(settings: Settings) -> None:
    settings.DUCTOR = {"NAMESPACE": "test", "REDIS_URL": "unix:///nonexistent/valkey.sock", "POOLS": {"mails": {}}}


def test_the_keys_of_a_pool_need_no_store(unreachable: None) -> None:
    assert shards.keys("mails") == ShardKeys("test", pool_code("mails"), 0)
    assert shards.locate(f"{pool_code('mails')}.0.{ID}") == ("mails", ID)


def test_a_store_that_cannot_be_asked_is_an_outage(unreachable: None) -> None:
    with pytest.raises(StoreUnavailable):
        shards.store("mails")
    with pytest.raises(StoreUnavailable):
        shards.locate(f"{pool_code('unheard-of')}.0.{ID}")


def test_the_first_store_of_a_pool_records_its_code(redis_client: redis.Redis, namespace: str) -> None:
    assert shards.pools() == {}
    made = shards.store("mails")
    assert made.keys == shards.keys("mails")
    assert redis_client.hgetall(f"{namespace}:pools") == {pool_code("mails").encode(): b"mails"}
    assert shards.pools() == {"mails": pool_code("mails")}


def test_what_is_recorded_is_not_asked_for_again(redis_client: redis.Redis, namespace: str) -> None:
    shards.store("mails")
    redis_client.delete(f"{namespace}:pools")
    shards.store("mails")
    assert not redis_client.exists(f"{namespace}:pools")
    shards.forget()
    shards.store("mails")
    assert redis_client.exists(f"{namespace}:pools")


def test_reading_records_nothing(redis_client: redis.Redis, namespace: str) -> None:
    shards.reads("mails")

    async def visit() -> ShardKeys:
        return shards.async_store("mails").keys

    assert asyncio.run(visit()) == shards.keys("mails")
    assert not redis_client.exists(f"{namespace}:pools")


def test_two_names_with_one_code_are_refused(redis_client: redis.Redis, namespace: str) -> None:
    redis_client.hset(f"{namespace}:pools", pool_code("mails"), "reports")
    with pytest.raises(StoreMisconfigured, match="'mails' and 'reports' have the same code"):
        shards.store("mails")
    assert redis_client.hgetall(f"{namespace}:pools") == {pool_code("mails").encode(): b"reports"}


def test_a_renamed_pool_keeps_its_code(redis_client: redis.Redis, namespace: str) -> None:
    code = pool_code("letters")
    redis_client.hset(f"{namespace}:pools", code, "mails")
    assert shards.store("mails").keys.code == code
    assert shards.keys("mails").code == code
    assert shards.locate(f"{code}.0.{ID}") == ("mails", ID)


def test_a_pool_is_renamed_in_the_store(redis_client: redis.Redis, namespace: str) -> None:
    code = shards.store("mails").keys.code
    shards.store("reports")
    shards.rename(code, "letters")
    assert redis_client.hget(f"{namespace}:pools", code) == b"letters"
    assert shards.keys("letters").code == code
    assert shards.locate(f"{code}.0.{ID}") == ("letters", ID)
    with pytest.raises(StoreMisconfigured, match="If 'mails' was renamed, use the new name"):
        shards.store("mails")
    for name in ("reports", "mails"):
        with pytest.raises(StoreMisconfigured, match=f"cannot be called '{name}'"):
            shards.rename(pool_code("reports") if name == "mails" else code, name)


def test_who_reads_a_renamed_pool_first_finds_its_code(redis_client: redis.Redis, namespace: str) -> None:
    code = pool_code("letters")
    redis_client.hset(f"{namespace}:pools", code, "mails")
    assert shards.reads("mails").keys.code == code


def test_who_reads_a_pool_again_does_not_ask_again(redis_client: redis.Redis, namespace: str) -> None:
    shards.reads("mails")
    redis_client.hset(f"{namespace}:pools", pool_code("letters"), "mails")
    assert shards.reads("mails").keys.code == pool_code("mails")


def test_an_asynchronous_caller_records_as_a_synchronous_one(redis_client: redis.Redis, namespace: str) -> None:
    asyncio.run(shards.arecord("mails"))
    assert redis_client.hgetall(f"{namespace}:pools") == {pool_code("mails").encode(): b"mails"}
    shards.rename(pool_code("mails"), "letters")
    shards.forget()
    asyncio.run(shards.arecord("letters"))
    assert shards.keys("letters").code == pool_code("mails")
    with pytest.raises(StoreMisconfigured, match="If 'mails' was renamed, use the new name"):
        asyncio.run(shards.arecord("mails"))


def test_a_process_that_runs_goes_on_under_the_old_name(redis_client: redis.Redis, namespace: str) -> None:
    code = shards.store("mails").keys.code
    redis_client.hset(f"{namespace}:pools", code, "letters")  # another process renames it
    assert shards.store("mails").keys.code == shards.reads("mails").keys.code == code
    assert shards.reads("letters").keys.code == code


def test_an_id_given_out_before_a_renaming_was_known_is_found(redis_client: redis.Redis, namespace: str) -> None:
    redis_client.hset(f"{namespace}:pools", pool_code("mails"), "letters")
    early = shards.keys("letters").public_id(ID)
    assert early.startswith(pool_code("letters"))
    assert shards.locate(early) == ("letters", ID)
    assert shards.reads("letters").keys.code == pool_code("mails")


def test_an_id_of_a_pool_that_only_the_store_knows(redis_client: redis.Redis, namespace: str) -> None:
    code = pool_code("elsewhere")
    assert shards.locate(f"{code}.0.{ID}") is None
    redis_client.hset(f"{namespace}:pools", code, "elsewhere")
    assert shards.locate(f"{code}.0.{ID}") == ("elsewhere", ID)


@pytest.mark.parametrize("text", ["", "abc", f"abcdef.1.{ID}", f"abcdef.0.{ID}x", f"abcdef.x.{ID}", "a.b.c.d"])
def test_what_is_no_job_id_is_found_nowhere(text: str, unreachable: None) -> None:
    assert shards.locate(text) is None


def test_many_codes_that_nobody_knows_cost_one_question(
    redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_client.hset(f"{namespace}:pools", "abc123", "archive")
    asked, ask = [], shards._all

    def counted(client: redis.Redis) -> dict[str, str]:
        asked.append(client)
        return ask(client)

    monkeypatch.setattr(shards, "_all", counted)
    codes = [*(f"{number:06}" for number in range(50)), "abc123", pool_code("default")]

    assert shards.pools_of(codes) == {"abc123": "archive", pool_code("default"): "default"}
    assert len(asked) == 1
    assert shards.pools_of(["abc123"]) == {"abc123": "archive"}
    assert len(asked) == 1, "what was learnt is kept"


def test_the_pool_store_speaks_to_the_settings_server(redis_url: str) -> None:
    assert shards.store("default").verify() == []
    connection.reset()
    assert shards.store("default").verify() == []


def test_a_fork_does_not_inherit_a_held_lock() -> None:
    with shards._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if shards._lock.acquire(timeout=0) else 1)
    assert os.waitpid(child, 0)[1] == 0
