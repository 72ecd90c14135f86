"""Deploys: a foreign database, a namespace that is taken over, a shard of a newer release, missing migrations."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from queueapp.states import State
from queueapp.store import shards
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.integration import jobs
from tests.integration.conftest import Manage, record, until

STARTED = "Worker started"


def other_database(manage: Manage, tmp_path: Path) -> dict[str, str]:
    """The environment of an installation of its own, on the same store and namespace."""
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path / 'other.sqlite3'}"}
    assert manage("migrate", "-v0", env=environment).wait(60) == 0
    return environment


def test_a_second_database_on_the_same_namespace_neither_leases_nor_leads(
    manage: Manage, worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    first = worker()
    first.wait_for(STARTED)
    assert first.stop() == 0
    other = other_database(manage, tmp_path)
    job = jobs.noop.enqueue()
    for command in (("worker", "--no-reload"), ("scheduler",)):
        refused = manage(*command, env=other)
        assert refused.wait() == 1
        assert "belongs to installation" in refused.output
        assert "ductor adopt" in refused.output
        assert "Traceback" not in refused.output
    assert record(reads, job.id).state is State.PENDING
    assert reads.overview().leader == ""


@pytest.mark.faults
def test_running_processes_stop_when_another_database_adopts_the_namespace_and_go_on_when_it_is_back(
    manage: Manage, worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    other = other_database(manage, tmp_path)
    ours = [worker("--worker-id", "ours"), manage("scheduler")]
    ours[0].wait_for(STARTED)
    ours[1].wait_for("Leading")
    assert manage("ductor", "adopt", "--yes", env=other).wait() == 0
    for running in ours:
        running.wait_for("Leasing and leading nothing more")
    until(lambda: not reads.overview().leader)  # what it says it does next
    job = jobs.noop.enqueue("theirs")
    theirs = manage("worker", "--no-reload", "--batch", env=other)
    assert theirs.wait() == 0
    assert record(reads, job.id).state is State.ENDED

    waiting = jobs.noop.enqueue("ours")
    assert manage("ductor", "adopt", "--yes").wait() == 0
    assert waiting.wait(timeout=30).return_value == "ours"
    until(lambda: reads.overview().leader)
    for running in ours:
        assert running.stop() == 0


def test_a_worker_that_is_too_old_for_the_shard_leases_nothing_and_says_so(
    worker: Manage, store: Store, reads: Reads, redis_client: redis.Redis
) -> None:
    running = worker()
    jobs.noop.enqueue().wait(timeout=30)
    redis_client.hset(store.keys["conf"], "schema", "2")  # as `ductor upgrade` of a newer release leaves it
    running.wait_for("this process is too old")
    redis_client.hset(store.keys["conf"], "schema", "1")
    assert jobs.noop.enqueue("again").wait(timeout=30).return_value == "again"
    assert running.stop() == 0


def test_a_job_enqueued_before_the_upgrade_stays_while_only_old_workers_run(
    worker: Manage, store: Store, reads: Reads, redis_client: redis.Redis
) -> None:
    job = jobs.noop.enqueue()
    redis_client.hset(store.keys["conf"], "schema", "2")
    running = worker()
    running.wait_for("this process is too old")
    assert record(reads, job.id).state is State.PENDING
    assert running.stop() == 0
    redis_client.hset(store.keys["conf"], "schema", "1")


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The URL of a fresh database on the PostgreSQL server of this run."""
    given = os.environ.get("DUCTOR_TEST_DATABASE_URL", "")
    if not given.startswith("postgres"):
        pytest.skip("this run is on no PostgreSQL: DUCTOR_TEST_DATABASE_URL")
    psycopg = pytest.importorskip("psycopg")
    parts, name = urlsplit(given), f"test_{secrets.token_hex(6)}"
    with psycopg.connect(parts._replace(scheme="postgresql", path="/postgres").geturl(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield parts._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_processes_that_start_at_once_on_an_empty_postgresql_wait_and_become_one_installation(
    manage: Manage, store: Store, postgresql: str
) -> None:
    import psycopg

    env = {"DATABASE_URL": postgresql}
    workers = [manage("worker", "--no-reload", env=env) for _ in range(2)]
    schedulers = [manage("scheduler", env=env) for _ in range(2)]
    for running in [*workers, *schedulers]:
        running.wait_for("migrations of queueapp are not applied")
    assert manage("migrate", "-v0", env=env).wait(60) == 0
    for running in workers:
        running.wait_for(STARTED)
    for running in schedulers:
        running.wait_for("Scheduler started")
    change = "UPDATE queueapp_pool SET max_in_flight = 7 WHERE name = 'default' RETURNING id"
    with psycopg.connect(postgresql.replace("postgres://", "postgresql://"), autocommit=True) as connection:
        [(key,)] = connection.execute("SELECT key FROM queueapp_installation").fetchall()
        until(lambda: connection.execute(change).fetchall(), what="a scheduler makes the row of the pool")
    assert store.client.get(f"{store.keys.namespace}:owner") == key.encode()
    assert jobs.noop.enqueue(3).wait(timeout=30).return_value == 3
    synced = manage("ductor", "sync", env=env)
    assert synced.wait() == 0
    assert "pool settings" in synced.output or "as the rows say" in synced.output, "a scheduler may have been first"
    assert shards.reads("default").configured().max_in_flight == 7
    for running in [*workers, *schedulers]:
        assert running.stop() == 0


def test_a_scheduler_waits_for_our_migrations(manage: Manage, store: Store, tmp_path: Path) -> None:
    empty = {"DATABASE_URL": f"sqlite:///{tmp_path / 'empty.sqlite3'}"}
    running = manage("scheduler", env=empty)
    running.wait_for("migrations of queueapp are not applied")
    assert manage("migrate", "-v0", env=empty).wait(60) == 0
    running.wait_for("Leading")
    assert running.stop() == 0


def test_a_scheduler_logs_json_lines_with_the_pool_as_a_field(manage: Manage, store: Store) -> None:
    running = manage("scheduler", "--log", "json")
    running.wait_for("Leading")
    assert running.stop() == 0
    lines = [json.loads(line) for line in running.lines]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert next(line for line in lines if line["message"] == "Leading")["pool"] == "default"
