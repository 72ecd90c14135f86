"""The sign of life of a process: what it tells while its connection comes and goes. The server is a real one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from queueapp.store import connection
from queueapp.store.keys import ShardKeys
from queueapp.store.presence import DOUBT_MAX_S, DOUBT_S, STEADY_S, Presence
from tests.clock import Clock


class Heard:
    """What listeners were told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.changed = threading.Condition()

    def __call__(self, prefix: str) -> None:
        with self.changed:
            self.told.append(prefix)
            self.changed.notify_all()

    def wait(self, times: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.told) >= times, 20), self.told


pytestmark = pytest.mark.compat
Begin = Callable[..., tuple[Presence, Heard]]


@pytest.fixture(params=[False, True], ids=["pubsub", "shard"])
def sharded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def begin(redis_client: redis.Redis, clock: Clock, sharded: bool) -> Iterator[Begin]:
    started: list[Presence] = []

    def make(*shards: ShardKeys) -> tuple[Presence, Heard]:
        presence, heard = Presence(connection.blocking, sharded=sharded, clock=clock), Heard()
        presence.on_change(heard)
        for keys in shards:
            presence.add(keys)
        presence.start()
        started.append(presence)
        heard.wait(len(shards))
        return presence, heard

    yield make
    for presence in started:
        presence.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def subscribers(client: redis.Redis, channel: str) -> int:
    verb = "SHARDNUMSUB" if channel[0] == "s" else "NUMSUB"
    reply: Any = client.execute_command("PUBSUB", verb, channel[1:])
    return int(reply[1])


def wait_until_gone(client: redis.Redis, channel: str) -> None:
    deadline = time.monotonic() + 10
    while subscribers(client, channel):
        assert time.monotonic() < deadline, "somebody is subscribed still"


def cut(client: redis.Redis) -> None:
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


def test_a_channel_is_told_once_the_server_has_confirmed_it(
    begin: Begin, shard_keys: ShardKeys, redis_client: redis.Redis, sharded: bool
) -> None:
    presence, heard = begin(shard_keys)
    channel = presence.channel(shard_keys)
    assert channel.startswith("s" if sharded else "p")
    assert channel[1:].startswith(shard_keys["presence:"])
    assert heard.told == [shard_keys.prefix]
    assert subscribers(redis_client, channel) == 1


def test_a_shard_that_comes_later_is_subscribed_to_on_the_same_connection(
    begin: Begin, shard_keys: ShardKeys, redis_client: redis.Redis
) -> None:
    presence, heard = begin(shard_keys)
    other = ShardKeys(shard_keys.namespace, "others", 0)
    assert presence.channel(other) == ""
    presence.add(other)
    heard.wait(2)
    assert heard.told[1] == other.prefix
    assert subscribers(redis_client, presence.channel(other)) == 1


def test_only_who_has_been_there_for_a_while_may_say_that_others_are_gone(
    begin: Begin, shard_keys: ShardKeys, clock: Clock
) -> None:
    presence, _ = begin(shard_keys)
    clock.now += STEADY_S - 0.1
    assert presence.steady(shard_keys) == ""
    clock.now += 0.2
    assert presence.steady(shard_keys) == presence.channel(shard_keys)


@pytest.mark.faults
def test_a_connection_that_is_cut_is_told_at_once_and_comes_back(
    own_server: Callable[..., Any], settings: Any, sharded: bool, clock: Clock, shard_keys: ShardKeys
) -> None:
    server = own_server()
    settings.DUCTOR = {**settings.DUCTOR, "REDIS_URL": server.url}
    client = redis.Redis.from_url(server.url)
    presence, heard = Presence(connection.blocking, sharded=sharded, clock=clock), Heard()
    presence.on_change(heard)
    presence.add(shard_keys)
    presence.start()
    heard.wait(1)
    clock.now += 60
    cut(client)
    heard.wait(3)
    assert heard.told == [shard_keys.prefix, "", shard_keys.prefix]
    assert subscribers(client, presence.channel(shard_keys)) == 1
    assert presence.steady(shard_keys) == "", "it begins anew"
    presence.stop()


def test_the_end_of_the_process_ends_the_subscription(
    begin: Begin, shard_keys: ShardKeys, redis_client: redis.Redis
) -> None:
    presence, _ = begin(shard_keys)
    channel = presence.channel(shard_keys)
    presence.stop()
    wait_until_gone(redis_client, channel)
    assert presence.channel(shard_keys) == ""


def test_a_connection_that_no_script_sees_is_given_up_at_most_now_and_then(
    begin: Begin, redis_client: redis.Redis, shard_keys: ShardKeys, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queueapp.store.presence.LISTEN_S", 0.02)
    presence, heard = begin(shard_keys)
    channel = presence.channel(shard_keys)
    presence.doubt()
    heard.wait(3)
    assert heard.told == [shard_keys.prefix, "", shard_keys.prefix]
    assert presence.channel(shard_keys) == channel
    assert subscribers(redis_client, channel) == 1
    waits = []
    for _ in range(12):
        told = len(heard.told)
        began = clock.now
        while len(heard.told) == told:
            clock.now += 1
            presence.doubt()
            if presence._doubted:
                heard.wait(told + 2)
        waits.append(clock.now - began)
    assert waits[:4] == [DOUBT_S, 2 * DOUBT_S, 4 * DOUBT_S, 8 * DOUBT_S]
    assert waits[-1] == DOUBT_MAX_S


FORKING = """
import os, sys, redis
from queueapp.store.keys import ShardKeys
from queueapp.store.presence import Presence
url, namespace, code = sys.argv[1:]
keys = ShardKeys(namespace, code)
presence = Presence(lambda: redis.Redis.from_url(url, protocol=2, socket_timeout=15))
presence.on_change(lambda prefix: print(presence.channel(keys), flush=True))
presence.add(keys)
presence.start()
sys.stdin.readline()
if os.fork() == 0:
    print("forked", flush=True)
    os.read(0, 1)
    os._exit(0)
presence._thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="There are no forks here.")
def test_a_child_does_not_keep_its_dead_parent_alive(
    redis_client: redis.Redis, redis_url: str, shard_keys: ShardKeys
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, redis_url, shard_keys.namespace, shard_keys.code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        channel = process.stdout.readline().strip()
        process.stdin.write("fork\n")
        process.stdin.flush()
        assert process.stdout.readline() == "forked\n"
        assert subscribers(redis_client, channel) == 1, "the child's own close does not end what the parent holds"
        process.kill()
        wait_until_gone(redis_client, channel)
