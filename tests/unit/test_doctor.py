"""`ductor doctor` and `ductor fsck` from a terminal: what they say, how they end, and that no password is printed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.test import override_settings

from queueapp.store import connection, examination, fitness
from queueapp.store.embedded import EmbeddedServer
from queueapp.store.fitness import Remark
from queueapp.store.keys import ShardKeys
from queueapp.store.reads import Reads
from queueapp.store.records import Returned
from queueapp.store.safety import check_server
from queueapp.store.sentinels import of_sentinels
from queueapp.store.store import Store
from queueapp.store.unknown import given_back
from tests.unit.inspection.conftest import Scene

HEALTHY: dict[str, Any] = {
    "redis_version": "7.2.4",
    "role": "master",
    "aof_enabled": 1,
    "maxmemory_policy": "noeviction",
    "maxmemory": 1_000,
    "used_memory": 100,
}
CONFIG = {"appendfsync": "everysec", "timeout": "0", "tcp-keepalive": "300", "min-replicas-to-write": "0", "save": ""}


def ductor(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("ductor", *arguments, stdout=out, stderr=io.StringIO())
    except CommandError as error:
        return error.returncode, out.getvalue()
    return 0, out.getvalue()


def levels(info: dict[str, Any], config: dict[str, str]) -> dict[str, str]:
    return {remark.check: remark.level for remark in fitness.of_info({**HEALTHY, **info}, {**CONFIG, **config})}


def test_a_safe_server_is_well() -> None:
    assert set(levels({}, {}).values()) == {"well"}


@pytest.mark.parametrize(
    ("info", "config", "check", "level"),
    [
        ({"redis_version": "6.2.14"}, {}, "version", "error"),
        ({"cluster_enabled": 1}, {}, "cluster", "error"),
        ({"role": "slave"}, {}, "role", "error"),
        ({"maxmemory_policy": "allkeys-lru"}, {}, "eviction", "error"),
        ({"aof_enabled": 0}, {}, "persistence", "error"),
        ({"aof_enabled": 0}, {"save": "3600 1"}, "persistence", "warning"),
        ({"aof_enabled": 0, "connected_slaves": 1}, {}, "persistence", "warning"),
        ({}, {"appendfsync": "no"}, "persistence", "warning"),
        ({"connected_slaves": 2}, {}, "replicas", "warning"),
        ({"connected_slaves": 2}, {"min-replicas-to-write": "1"}, "replicas", "well"),
        ({"connected_slaves": 2, "min_slaves_good_slaves": 1}, {"min-replicas-to-write": "2"}, "replicas", "error"),
        ({"connected_slaves": 0}, {"min-replicas-to-write": "1"}, "replicas", "error"),
        ({"rdb_last_bgsave_status": "err"}, {"save": "3600 1"}, "writes", "error"),
        (
            {"paused_reason": "client_pause", "paused_actions": "write", "paused_timeout_milliseconds": 900},
            {},
            "writes",
            "warning",
        ),
        ({"connected_clients": 81, "maxclients": 100}, {}, "clients", "warning"),
        ({"used_memory": 1_100}, {}, "memory", "error"),
        ({"used_memory": 900}, {}, "memory", "warning"),
        ({"maxmemory": 0}, {}, "memory", "note"),
        ({}, {"timeout": "3"}, "sockets", "warning"),
        ({}, {"tcp-keepalive": "0"}, "sockets", "warning"),
    ],
)
def test_each_rule(info: dict[str, Any], config: dict[str, str], check: str, level: str) -> None:
    assert levels(info, config)[check] == level


@pytest.mark.parametrize(
    ("info", "config"),
    [
        ({"rdb_last_bgsave_status": "err"}, {}),
        ({"rdb_last_bgsave_status": "err"}, {"save": "3600 1", "stop-writes-on-bgsave-error": "no"}),
        ({"paused_reason": "none"}, {}),
        ({"connected_clients": 80, "maxclients": 100}, {}),
        ({"connected_slaves": 0}, {}),
    ],
)
def test_what_harms_nothing_is_not_told(info: dict[str, Any], config: dict[str, str]) -> None:
    assert set(levels(info, config).values()) == {"well"}


def test_what_start_up_warns_of_is_what_the_doctor_finds(own_server: Callable[..., EmbeddedServer]) -> None:
    client = redis.Redis.from_url(own_server("--maxmemory-policy", "allkeys-lru").url, protocol=2)
    found = [remark.sentence for remark in examination.of_server(client, ShardKeys("ns", "code00"))]
    warnings = check_server(client)
    assert len(warnings) == 2
    assert set(warnings) <= set(found)
    client.close()


def remarks(client: redis.Redis, check: str, keys: ShardKeys) -> list[Remark]:
    return [remark for remark in examination.of_server(client, keys) if remark.check == check]


def test_c045_rights_that_are_missing_are_named(own_server: Callable[..., EmbeddedServer]) -> None:
    """What the user of the connection may not do, on keys and channels of the namespace, shows before a job fails."""
    server, keys = own_server(), ShardKeys("ns", "code00")
    admin = redis.Redis.from_url(server.url, protocol=2)
    base = ["on", "nopass", "~{ns:*", "~ns:*", "+@all"]
    admin.execute_command("ACL", "SETUSER", "queue", *base, "&{ns:*", "-zadd")
    admin.execute_command("ACL", "SETUSER", "deaf", *base, "resetchannels")
    admin.execute_command("ACL", "SETUSER", "dumb", *base, "&*", "-acl", "-info", "-config", "-command")
    for user, check, expected in (
        ("queue", "rights", {("ZADD", "error")}),
        ("deaf", "rights", {("SUBSCRIBE", "warning"), ("SSUBSCRIBE", "note")}),
    ):
        client = redis.Redis.from_url(server.url, protocol=2, username=user, password="x")
        found = {(remark.text.split("call ")[1].split()[0], remark.level) for remark in remarks(client, check, keys)}
        assert found == expected
        client.close()
    client = redis.Redis.from_url(server.url, protocol=2, username="dumb", password="x")
    unknown = {remark.check for remark in examination.of_server(client, keys) if remark.level == "unknown"}
    assert unknown == {"info", "rights", "commands"}, "what a managed server does not tell is no fault"
    client.close()
    admin.close()


def test_a_command_that_is_not_there_is_named(own_server: Callable[..., EmbeddedServer]) -> None:
    client = redis.Redis.from_url(own_server("--rename-command", "BZPOPMIN", "").url, protocol=2)
    (missing,) = remarks(client, "commands", ShardKeys("ns", "code00"))
    assert (missing.level, "BZPOPMIN" in missing.text) == ("error", True)
    client.close()


def test_a_clock_that_went_back_shows_in_the_pool(store: Store) -> None:
    assert examination.clock_mark(store.client, store.keys) is None
    seconds, _ = store.client.time()
    store.client.hset(store.keys["marks"], "clock", (seconds + 60) * 1000)
    mark = examination.clock_mark(store.client, store.keys)
    assert mark is not None
    assert mark.level == "warning"


@pytest.mark.django_db
def test_the_exit_code_is_the_worst_that_was_found(store: Store) -> None:
    code, text = ductor("doctor", "--json")
    told = json.loads(text)
    worst = {remark["level"] for remark in told["remarks"]}
    assert code == told["exit"] == (2 if "error" in worst else 1)
    assert {"settings", "migrations", "version", "rights", "namespace", "outbox", "pool default"} <= {
        remark["check"] for remark in told["remarks"]
    }
    assert ductor("doctor")[1].startswith("ok: settings: ")


@pytest.mark.django_db
def test_a_store_that_is_away_is_an_error_and_no_password_is_printed() -> None:
    url = "redis://queue:hunter2@127.0.0.1:1/0"
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": url}):
        code, text = ductor("doctor")
    connection.reset()
    assert code == 2
    assert "ERROR: store: " in text
    assert "hunter2" not in text


@pytest.mark.django_db
def test_jobs_of_a_task_that_nobody_knows_are_told(store: Store, shard_keys: ShardKeys) -> None:
    scene = Scene(store, shard_keys)
    scene.add(1, task="shop.tasks.forgotten")
    told = "Jobs that would run next have tasks that this code does not know: shop.tasks.forgotten"
    assert f"WARNING: pool default: {told}" in ductor("doctor")[1]
    store.register("w1", {"name": "worker"}, 60_000)
    (line,) = [line for line in ductor("doctor")[1].splitlines() if told in line]
    assert line.startswith("note: "), "the workers that live may have other code than this process"


@pytest.mark.django_db
def test_what_workers_gave_back_unknown_is_told_whatever_this_code_knows(store: Store, shard_keys: ShardKeys) -> None:
    """The code that `doctor` runs with is not that of the workers."""
    scene = Scene(store, shard_keys)
    scene.add(1, task="tests.integration.jobs.noop")
    (job,) = scene.lease(1)
    assert given_back(Reads(store.client, shard_keys)) == {}
    given = Returned(id=job.id, attempts=job.attempts, delay_ms=30_000, unknown_task=True, grace_ms=900_000)
    assert store.partition_requeue([given]) == ["done"]
    (since_ms,) = given_back(Reads(store.client, shard_keys)).values()
    assert since_ms == int(store.client.hget(shard_keys.run(job.id), "uk") or 0) > 0
    text = ductor("doctor")[1]
    assert "WARNING: pool default: Workers give jobs of tests.integration.jobs.noop back" in text


def test_without_sentinels_there_is_nothing_to_say_of_them(redis_client: redis.Redis, shard_keys: ShardKeys) -> None:
    assert "sentinels" not in {remark.check for remark in examination.of_server(redis_client, shard_keys)}


def test_sentinels_that_cannot_be_asked_are_named() -> None:
    watched = {"SENTINELS": [("127.0.0.1", 1)], "MASTER_NAME": "main", "SENTINEL_PASSWORD": "hunter2"}
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": watched}):
        found = [*of_sentinels({"connected_slaves": 0})]
    assert [remark.level for remark in found] == ["warning", "note", "warning"]
    assert "The Sentinel at 127.0.0.1:1 cannot be asked" in found[0].text
    assert "has no replica" in found[2].text
    assert not any("hunter2" in remark.sentence for remark in found)


@pytest.mark.django_db
def test_fsck_reports_first_and_mends_when_it_is_told(store: Store, shard_keys: ShardKeys) -> None:
    (job_id,) = Scene(store, shard_keys).add(1)
    assert ductor("fsck")[0] == 0
    store.client.delete(*store.client.keys(f"{shard_keys.prefix}q:*"))
    code, text = ductor("fsck", "default")
    assert code == 1
    assert job_id in text
    assert "can be mended" in text
    assert ductor("fsck", "default") == (code, text), "nothing was changed"
    code, text = ductor("fsck", "default", "--repair", "--json")
    assert (code, json.loads(text)[0]["well"]) == (0, True)
    assert ductor("fsck")[0] == 0
