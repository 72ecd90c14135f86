"""The store goes away in every way that it can: workers and schedulers wait, go on by themselves, and lose nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queueapp import enqueue_many
from queueapp.errors import StoreUnavailable
from queueapp.states import Outcome, State
from queueapp.store import connection, embedded, shards
from tests.integration import jobs
from tests.integration.conftest import Manage, notes, until, warnings_of
from tests.integration.proxy import Proxy, client_of

pytestmark = pytest.mark.faults

AWAY_S = 4.0
"""Shorter than any outage in earnest; what grows with it (messages, pauses) is bounded either way."""


def test_a_store_that_stops_and_comes_back(
    own_store: embedded.EmbeddedServer, directory: Path, manage: Manage, tmp_path: Path
) -> None:
    env = {"REDIS_URL": own_store.url}
    workers = [manage("worker", "--no-reload", "--slots", "4", env=env, LEASE_SECONDS=3) for _ in range(2)]
    scheduler = manage("scheduler", env=env)
    for running in workers:
        running.wait_for("Worker started")
    scheduler.wait_for("Leading")
    blocked = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    sent = enqueue_many([jobs.sleep.bind(0.02, str(tmp_path)) for _ in range(300)])
    accepted = [one.result for one in sent if one.result is not None]
    assert len(accepted) == 300
    until(lambda: len(notes(tmp_path, "sleep")) > 50)

    own_store.stop()
    (tmp_path / "go").touch()  # its outcome must wait for the store
    with pytest.raises(StoreUnavailable):
        jobs.noop.enqueue()
    time.sleep(AWAY_S)
    again = embedded.start(directory)
    try:
        until(lambda: shards.reads("default").overview().ended >= 301, timeout=60)
        reads, store = shards.reads("default"), shards.store("default")
        for result in (*accepted, blocked):
            found = reads.job(result.id[-22:])
            assert found is not None
            assert found.outcome is Outcome.COMPLETED
        stats = reads.overview().stats
        assert stats["completed"] == 301, "nothing was recorded twice"
        jobs.noop.enqueue().wait(timeout=30)
        for running in [*workers, scheduler]:
            running.wait_for("Back after")
            assert len(warnings_of(running)) < 15, "a flood of messages:\n" + running.output
            assert "Traceback" not in running.output
            assert running.stop() == 0
        assert store.verify() == []
    finally:
        again.stop()


def test_c031_a_store_that_loads_its_data(own_store: embedded.EmbeddedServer, manage: Manage) -> None:
    proxy = Proxy(own_store.url)
    proxy.error = b"-LOADING Redis is loading the dataset in memory\r\n"
    env = {"REDIS_URL": proxy.url}
    worker = manage("worker", "--no-reload", env=env)
    scheduler = manage("scheduler", env=env)
    worker.wait_for("is loading")
    scheduler.wait_for("is loading")
    time.sleep(AWAY_S)
    assert worker.process.poll() is None
    assert scheduler.process.poll() is None
    proxy.error = None
    proxy.thaw()
    worker.wait_for("Worker started")
    assert jobs.noop.enqueue(1).wait(timeout=30).return_value == 1
    scheduler.wait_for("Leading")
    for running in (worker, scheduler):
        assert len(warnings_of(running)) < 8, running.output
        assert "Traceback" not in running.output
        assert running.stop() == 0
    assert proxy.refused < 400, "the pauses must grow"
    proxy.close()


def test_c033_a_network_that_dies_silently(own_store: embedded.EmbeddedServer, manage: Manage, tmp_path: Path) -> None:
    proxy = Proxy(own_store.url)
    worker = manage("worker", "--no-reload", "--slots", "2", env={"REDIS_URL": proxy.url}, LEASE_SECONDS=3)
    worker.wait_for("Worker started")
    jobs.noop.enqueue().wait(timeout=10)
    blocked = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    proxy.freeze()
    (tmp_path / "go").touch()
    waiting = [jobs.noop.enqueue(n) for n in range(5)]
    # The read timeout of a command is 5 s, and a call is tried twice.
    worker.wait_for("did not answer", timeout=25)
    proxy.thaw()
    worker.wait_for("Back after", timeout=25)
    for result in (blocked, *waiting):
        assert result.wait(timeout=30).is_finished
    reads = shards.reads("default")
    assert reads.overview().stats["completed"] == 7
    assert worker.stop() == 0
    assert shards.store("default").verify() == []
    proxy.close()


def test_a_worker_waits_for_a_store_that_is_not_there_yet(directory: Path, manage: Manage, namespace: str) -> None:
    url = embedded.url(directory)
    worker = manage("worker", "--no-reload", env={"REDIS_URL": url})
    worker.wait_for("Trying again with growing pauses")
    server = embedded.start(directory)
    try:
        worker.wait_for("Worker started")
        assert worker.stop() == 0
    finally:
        server.stop()


def test_a_wrong_password_is_one_clear_error(manage: Manage, own_server: Callable[..., Any]) -> None:
    server = own_server()
    # Set when it runs: whoever starts a server waits for its answer without a password.
    client_of(server.url).config_set("requirepass", "right")
    url = server.url.replace("unix://", "unix://:wrong-secret@")
    for command in (("worker", "--no-reload"), ("scheduler",)):
        refused = manage(*command, env={"REDIS_URL": url})
        assert refused.wait() == 1
        assert "refuses the user name or password" in refused.output
        assert "wrong-secret" not in refused.output
        assert "Traceback" not in refused.output


def test_a_stop_while_the_store_is_away(
    own_store: embedded.EmbeddedServer, directory: Path, manage: Manage, tmp_path: Path
) -> None:
    """The body ended, nobody could be told: the worker says so and goes, and the job runs again later."""
    env = {"REDIS_URL": own_store.url}
    worker = manage("worker", "--no-reload", "--grace", "1", env=env, LEASE_SECONDS=1)
    blocked = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    own_store.stop()
    (tmp_path / "go").touch()
    worker.wait_for("Trying again")
    began = time.monotonic()
    assert worker.stop() == 4
    assert time.monotonic() - began < 10
    assert "1 outcomes not reported" in worker.output
    again = embedded.start(directory)
    try:
        second = manage("worker", "--no-reload", env=env, LEASE_SECONDS=1)
        blocked.wait(timeout=30)
        found = shards.reads("default").job(blocked.id[-22:])
        assert found is not None
        assert (found.state, found.attempts) == (State.ENDED, 2)
        assert second.stop() == 0
    finally:
        again.stop()


def test_c027_functions_are_loaded_again_unseen(own_store: embedded.EmbeddedServer, manage: Manage) -> None:
    env = {"REDIS_URL": own_store.url}
    worker, scheduler = manage("worker", "--no-reload", env=env), manage("scheduler", env=env)
    worker.wait_for("Worker started")
    scheduler.wait_for("Leading")
    client = connection.commands()
    for n in range(30):
        client.function_flush()
        assert jobs.noop.enqueue(n).wait(timeout=10).return_value == n
    for running in (worker, scheduler):
        assert not warnings_of(running)
        assert running.stop() == 0
    assert shards.store("default").verify() == []
