"""A store that answers and refuses: full, read-only, or without the right to run scripts. One clear error, no loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from queueapp import enqueue_many
from queueapp.errors import StoreMisconfigured
from queueapp.store import connection, embedded, shards
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, notes, until, warnings_of

pytestmark = pytest.mark.faults


def quiet_and_whole(processes: list[ManagedProcess], most: int = 8) -> None:
    """They said little, ended in order, and left a shard without contradictions."""
    for process in processes:
        assert len(warnings_of(process)) <= most, "a flood of messages:\n" + process.output
        assert "Traceback" not in process.output
        assert process.stop() == 0
    assert shards.store("default").verify() == []


@contextmanager
def full(client: redis.Redis) -> Iterator[None]:
    """The server uses more than it may, whatever is freed meanwhile."""
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


def test_a_full_store_takes_nothing_new_and_lets_work_end(
    own_store: embedded.EmbeddedServer, manage: Manage, tmp_path: Path
) -> None:
    env = {"REDIS_URL": own_store.url}
    workers = [manage("worker", "--no-reload", "--slots", "4", env=env, LEASE_SECONDS=2) for _ in range(2)]
    scheduler = manage("scheduler", env=env, LEADER_TTL_SECONDS=2)
    for running in workers:
        running.wait_for("Worker started")
    scheduler.wait_for("Leading")
    enqueue_many([jobs.sleep.bind(0.05, str(tmp_path)) for _ in range(300)])
    soon = datetime.now(UTC) + timedelta(seconds=4)
    due = [jobs.noop.using(run_after=soon).enqueue() for _ in range(20)]
    failing = jobs.fail_once.using(max_attempts=2, backoff=0.1).enqueue(str(tmp_path))
    until(lambda: len(notes(tmp_path, "sleep")) > 20)
    reads = shards.reads("default")
    with full(connection.commands()):
        before = reads.overview().stats["enqueued"]
        for _ in range(3):
            with pytest.raises(StoreMisconfigured, match=r"`maxmemory` reached.*nothing was changed.*Raise"):
                jobs.noop.enqueue()
        (outcome,) = enqueue_many([jobs.noop.bind()])
        assert isinstance(outcome.error, StoreMisconfigured)
        assert reads.overview().stats["enqueued"] == before
        until(lambda: reads.overview().ended == 321, timeout=40, what="accepted work ends while the store is full")
        for result in (*due, failing):
            assert result.wait(timeout=1).is_finished
        scheduler.wait_for("is full")
    until(lambda: jobs.noop.enqueue().wait(timeout=10).is_finished)
    scheduler.wait_for("Back after")
    assert "No longer leading" not in scheduler.output
    assert reads.overview().stats["completed"] == 322
    quiet_and_whole([*workers, scheduler])


def test_a_read_only_replica_is_refused_at_the_start(own_store: embedded.EmbeddedServer, manage: Manage) -> None:
    shards.store("default")  # the pool is known there: nothing would have to be written
    connection.commands().execute_command("REPLICAOF", "127.0.0.1", "1")
    for command in (("worker", "--no-reload"), ("scheduler",)):
        refused = manage(*command, env={"REDIS_URL": own_store.url})
        assert refused.wait() == 1
        assert "read-only replica. Point DUCTOR['REDIS_URL'] at the master" in refused.output
        assert "Traceback" not in refused.output
    with pytest.raises(StoreMisconfigured, match="read-only replica"):
        jobs.noop.enqueue()


def test_a_master_that_becomes_a_replica_and_a_master_again(
    own_store: embedded.EmbeddedServer, manage: Manage, tmp_path: Path
) -> None:
    env = {"REDIS_URL": own_store.url}
    worker, scheduler = manage("worker", "--no-reload", env=env, LEASE_SECONDS=2), manage("scheduler", env=env)
    worker.wait_for("Worker started")
    scheduler.wait_for("Leading")
    blocked = jobs.block.enqueue(str(tmp_path))
    waiting = [jobs.noop.enqueue(n) for n in range(20)]
    until(lambda: notes(tmp_path, "block"))
    client = connection.commands()
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    (tmp_path / "go").touch()
    worker.wait_for("read-only replica")
    scheduler.wait_for("read-only replica")
    client.execute_command("REPLICAOF", "NO", "ONE")
    for result in (blocked, *waiting):
        assert result.wait(timeout=30).is_finished
    for running in (worker, scheduler):
        running.wait_for("Back after")
    assert shards.reads("default").overview().stats["completed"] == 21
    quiet_and_whole([worker, scheduler])


def test_c028_ready_means_that_scripts_run(own_store: embedded.EmbeddedServer, manage: Manage) -> None:
    """C028: a check that only pings stays green while every enqueue fails. Right: not ready, with the reason."""
    env = {"REDIS_URL": own_store.url}
    worker = manage("worker", "--no-reload", "--worker-id", "ann", env=env)
    scheduler = manage("scheduler", env=env)
    worker.wait_for("Worker started")
    scheduler.wait_for("Leading")
    checks = (("worker", "--check", "--worker-id", "ann"), ("scheduler", "--check"))
    for check in checks:
        assert manage(*check, env=env).wait() == 0
    client = connection.commands()
    client.acl_setuser("app", enabled=True, passwords=["+pass-1234"], keys=["*"], channels=["*"], categories=["+@all"])
    client.execute_command("ACL", "SETUSER", "app", "-fcall", "-function", "-evalsha", "-eval")
    app = own_store.url.replace("unix://", "unix://app:pass-1234@")
    for command in (*checks, ("worker", "--no-reload"), ("scheduler",)):
        refused = manage(*command, env={"REDIS_URL": app})
        assert refused.wait() == 1, refused.output
        assert "does not permit this user a command" in refused.output
        assert "evalsha" in refused.output
        assert "Widen the user's ACL" in refused.output
        assert "pass-1234" not in refused.output
        assert "Traceback" not in refused.output
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    for check in checks:
        refused = manage(*check, env=env)
        assert refused.wait() == 1
        assert "read-only replica" in refused.output
    client.execute_command("REPLICAOF", "NO", "ONE")
    quiet_and_whole([worker, scheduler])


def test_a_password_is_wanted_from_the_start(
    manage: Manage, own_server: Callable[..., embedded.EmbeddedServer]
) -> None:
    server = own_server("--requirepass", "right-one")
    refused = manage("worker", "--no-reload", env={"REDIS_URL": server.url})
    assert refused.wait() == 1
    assert "wants a password and DUCTOR['REDIS_URL'] gives none" in refused.output
    right = server.url.replace("unix://", f"unix://:{quote('right-one')}@")
    worker = manage("worker", "--no-reload", env={"REDIS_URL": right})
    worker.wait_for("Worker started")
    assert worker.stop() == 0


def test_c056_one_spoilt_pool_is_named_and_the_others_are_served(
    own_store: embedded.EmbeddedServer, manage: Manage
) -> None:
    """C056: a key of a wrong type makes the loop fail for ever. Right: one error that names it, no hot loop."""
    pools: dict[str, dict[str, object]] = {"good": {}, "bad": {}}
    client, bad = connection.commands(), shards.keys("bad")
    client.set(bad["workers"], "not ours")
    env = {"REDIS_URL": own_store.url}
    worker = manage("worker", "--no-reload", "--pool", "bad,good,default", env=env, POOLS=pools)
    scheduler = manage("scheduler", env=env, POOLS=pools)
    worker.wait_for(f"The key {bad['workers']}")
    scheduler.wait_for("Leading")
    calls = client.info("stats")["total_commands_processed"]
    for n in range(20):
        assert jobs.noop.enqueue(n).wait(timeout=10).return_value == n
    assert client.info("stats")["total_commands_processed"] - calls < 5000
    client.delete(bad["workers"])
    worker.wait_for("Back after")
    quiet_and_whole([worker, scheduler])
