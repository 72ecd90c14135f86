"""The connections: what settings mean, which client waits how long, and what happens at forks and loop ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core import mail
from pytest_django import Settings

from queueapp.errors import NoStore, StoreMisconfigured, StoreUnavailable
from queueapp.store import address, connection, embedded
from tests import freezing

OwnServer = Callable[..., embedded.EmbeddedServer]


def use(settings: Settings, **ductor: Any) -> None:
    settings.DUCTOR = {"NAMESPACE": "test", **ductor}


# -- what the settings mean -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("redis://cache.example", "cache.example:6379/0"),
        ("redis://:secret@cache.example:7000/3", "cache.example:7000/3"),
        ("rediss://user:secret@cache.example", "cache.example:6379/0"),
        ("redis://[::1]:6380/1", "[::1]:6380/1"),
        ("unix:///run/valkey.sock?db=2", "unix:/run/valkey.sock"),
    ],
)
def test_the_label_of_an_address_shows_no_credentials(url: str, label: str) -> None:
    where = address.from_url(url)
    assert where.label == label
    assert "secret" not in repr(where)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://store.example", "no URL of a store"),
        ("redis://:geh/eim@store.example:port", "percent-encoded"),
        ("unix://", "names no socket"),
        ("unix:///" + "d" * 120, "path of the unix socket has 121 bytes"),
        ("redis://store.example?socket_timeout=9", "'socket_timeout', which Ductor sets itself"),
        ("redis://store.example?decode_responses=1", "'decode_responses', which Ductor sets itself"),
        ("redis://store.example?tiemout=9", "unknown option 'tiemout'"),
        ("redis://store.example?health_check_interval=soon", "health_check_interval"),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_wrong(url: str, says: str) -> None:
    with pytest.raises(StoreMisconfigured) as caught:
        address.from_url(url)
    assert says in str(caught.value)
    assert "REDIS_URL" in str(caught.value)
    assert "geh" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_c047_tls_options_reach_a_tls_connection(settings: Settings) -> None:
    use(settings, REDIS_URL="rediss://store.example?ssl_cert_reqs=required&ssl_ca_certs=/ca.pem&ssl_check_hostname=no")
    for client in (connection.commands(), connection.reads(), connection.blocking()):
        made = client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
        assert isinstance(made, redis.SSLConnection)
        assert (made.ca_certs, made.check_hostname) == ("/ca.pem", False)


def test_c047_tls_options_are_refused_without_tls(settings: Settings) -> None:
    use(settings, REDIS_URL="redis://store.example?ssl_ca_certs=/ca.pem")
    with pytest.raises(StoreMisconfigured, match=r"'ssl_ca_certs' .* write rediss://"):
        connection.commands()
    with pytest.raises(StoreMisconfigured, match="'ssl_ca_certs' without 'SSL': True"):
        address.from_sentinels({"SENTINELS": ["a"], "MASTER_NAME": "m", "ssl_ca_certs": "/ca.pem"})


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"SENTINELS": ["a:1"]}, "MASTER_NAME"),
        ({"MASTER_NAME": "m"}, "SENTINELS"),
        ({"SENTINELS": ["a:one"], "MASTER_NAME": "m"}, "(host, port) pairs"),
        ({"SENTINELS": ["a:1"], "MASTER_NAME": "m", "PASWORD": "geheim"}, "unknown key 'PASWORD'"),
        ({"SENTINELS": ["a:1"], "MASTER_NAME": "m", "SSL": True, "ssl_x": 1}, "unknown option 'ssl_x'"),
    ],
)
def test_a_wrong_sentinel_mapping_is_refused(mapping: dict[str, Any], says: str) -> None:
    with pytest.raises(StoreMisconfigured) as caught:
        address.from_sentinels(mapping)
    assert says in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_an_unreachable_sentinel_is_an_outage(settings: Settings) -> None:
    use(settings, REDIS_URL={"SENTINELS": [("127.0.0.1", 1)], "MASTER_NAME": "main", "PASSWORD": "geheim"})
    with (
        pytest.raises(StoreUnavailable, match=r"master 'main' of the Sentinels 127.0.0.1:1") as caught,
        connection.translate_errors(),
    ):
        connection.commands().ping()
    assert "geheim" not in str(caught.value)


def test_a_cache_lends_its_address_but_not_its_database(settings: Settings) -> None:
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": ["redis://cache.example:7000/0", "redis://replica.example/0"],
        "OPTIONS": {"PASSWORD": "geheim"},
    }
    settings.CACHES = {"default": cache}
    use(settings, CACHE_ALIAS="default")
    with pytest.raises(StoreMisconfigured, match=r"CACHES\['default'\]\['DB'\]"):
        connection.commands()
    settings.CACHES = {"default": {**cache, "DB": 5}}
    options = connection.commands().connection_pool.connection_kwargs
    assert connection.label() == "cache.example:7000/5"
    assert options["password"] == "geheim"
    use(settings, CACHE_ALIAS="nope")
    with pytest.raises(StoreMisconfigured, match="'nope' is not in CACHES; there are: default"):
        connection.commands()


def test_without_url_only_debug_finds_the_embedded_server(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BASE_DIR = tmp_path
    use(settings)
    settings.DEBUG = False
    with pytest.raises(NoStore, match=r"for DEBUG only\. A test needs no server: use queueapp\.testing\.recorded"):
        connection.commands()
    monkeypatch.delattr(mail, "outbox")
    with pytest.raises(NoStore, match=r"for DEBUG only\.$"):
        connection.commands()
    settings.DEBUG = True
    with pytest.raises(NoStore, match=r"manage.py stack"):
        connection.commands()
    with embedded.start(tmp_path / ".ductor", durable=False):
        use(settings, REDIS_URL="embedded:")
        assert connection.commands().ping()


# -- the clients ----------------------------------------------------------------------------------------------------


def test_three_clients_with_three_patiences(redis_url: str) -> None:
    commands, reads, blocking = connection.commands(), connection.reads(), connection.blocking()
    assert connection.commands() is commands
    assert connection.reads() is reads
    assert connection.blocking() is not blocking
    patience = [client.connection_pool.connection_kwargs["socket_timeout"] for client in (reads, commands, blocking)]
    assert patience == [1.0, 5.0, 8.0]
    blocking.close()


@pytest.mark.compat
def test_answers_are_bytes_in_resp2(redis_url: str, namespace: str) -> None:
    client = connection.commands()
    client.zadd(f"{namespace}:z", {"a": 1.5})
    assert client.zrange(f"{namespace}:z", 0, -1, withscores=True) == [(b"a", 1.5)]
    assert client.connection_pool.connection_kwargs["protocol"] == 2
    assert client.eval("return {1, false, 'x'}", 0) == [1, None, b"x"]


def test_reset_closes_and_the_next_use_reads_the_settings_anew(
    settings: Settings, own_server: OwnServer, redis_url: str
) -> None:
    before = connection.commands()
    other = own_server()
    use(settings, REDIS_URL=other.url)
    after = connection.commands()
    assert after is not before
    assert int(after.info("server")["process_id"]) == other.pid


@pytest.mark.compat
def test_a_late_answer_never_makes_a_script_run_twice(own_server: OwnServer) -> None:
    server = own_server()
    client = connection._sync_client(address.from_url(server.url), 0.2)
    client.ping()
    freezing.freeze(server.pid)
    try:
        with pytest.raises(redis.TimeoutError):
            client.eval("return redis.call('INCR', KEYS[1])", 1, "runs")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    time.sleep(0.1)
    assert client.get("runs") == b"1"
    client.close()


@pytest.mark.compat
def test_a_client_survives_a_restart_of_the_server(settings: Settings, tmp_path_factory: Any) -> None:
    with embedded.throwaway() as first:
        use(settings, REDIS_URL=first.url)
        assert connection.commands().ping()
        first.stop()
        with pytest.raises(StoreUnavailable), connection.translate_errors():
            connection.commands().ping()
        with embedded.start(first.directory):
            assert connection.commands().ping()


@pytest.mark.compat
def test_the_blocking_client_waits_longer_than_the_library_would(redis_url: str, namespace: str) -> None:
    client = connection.blocking()
    # The library gives up after 5 s, by raising.
    assert client.bzpopmin([f"{namespace}:empty"], timeout=6) is None
    client.close()


def test_threads_share_one_client(redis_url: str) -> None:
    found: list[redis.Redis] = []
    threads = [threading.Thread(target=lambda: found.append(connection.commands())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_a_forked_child_makes_connections_of_its_own(process_environment: dict[str, str]) -> None:
    script = """
import os
from queueapp.store import connection
parent = connection.commands().client_id()
child = os.fork()
if child == 0:
    assert not connection._shared
    os._exit(0 if connection.commands().client_id() != parent else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert connection.commands().client_id() == parent
"""
    subprocess.run([sys.executable, "-c", script], env=process_environment, check=True)


@pytest.mark.compat
def test_each_event_loop_has_a_client_that_ends_with_it(own_server: OwnServer, settings: Settings) -> None:
    server = own_server()
    use(settings, REDIS_URL=server.url)

    async def visit() -> int:
        client = connection.async_commands()
        assert connection.async_commands() is client
        assert await client.eval("return 7", 0) == 7
        return id(client)

    for _ in range(3):
        asyncio.run(visit())
    assert len(connection._by_loop) == 1
    with redis.Redis.from_url(server.url) as probe:
        assert int(probe.info("clients")["connected_clients"]) == 1


def test_an_async_client_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        connection.async_commands()


@pytest.mark.faults
def test_c030_sentinel_leads_to_the_new_master_after_a_failover(
    settings: Settings, own_server: OwnServer, tmp_path: Path
) -> None:
    ports = [free_port() for _ in range(3)]
    master = own_server("--port", str(ports[0]))
    replica = own_server("--port", str(ports[1]), "--replicaof", "127.0.0.1", str(ports[0]))
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"port {ports[2]}\nsentinel monitor main 127.0.0.1 {ports[0]} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
    )
    program = str(embedded.BINARY or embedded.find_binary())
    sentinel = subprocess.Popen([program, str(configuration), "--sentinel"], stdout=subprocess.DEVNULL, cwd=tmp_path)
    try:
        use(settings, REDIS_URL={"SENTINELS": [("127.0.0.1", ports[2])], "MASTER_NAME": "main"})
        wait_until(lambda: served_by() == master.pid)
        with redis.Redis.from_url(replica.url) as probe:
            wait_until(lambda: probe.info("replication")["master_link_status"] == "up")
        with redis.Redis(port=ports[2]) as probe:
            wait_until(lambda: probe.sentinel_master("main")["num-slaves"] == 1)
        master.stop()
        wait_until(lambda: served_by() == replica.pid)
        connection.commands().set("key", "value")

        async def visit() -> object:
            return await connection.async_commands().get("key")

        assert asyncio.run(visit()) == b"value"
    finally:
        connection.reset()
        sentinel.terminate()
        sentinel.wait()


def served_by() -> int | None:
    """The process id of the master that the commands reach now."""
    with suppress(StoreUnavailable, StoreMisconfigured), connection.translate_errors():
        information = connection.commands().info()
        return int(information["process_id"]) if information["role"] == "master" else None
    return None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "did not come about in time"
        time.sleep(0.05)
