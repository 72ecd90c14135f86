"""A replica is promoted by Sentinels while schedulers lead and workers work.

What had reached the replica goes on there: nothing of it is lost or recorded twice, and the pool is whole. What had
not is gone with the old primary, whatever the answers were; `doctor` warns of servers that permit it, and with
`min-replicas-to-write` they refuse instead. Whoever led: terms and their order never go back, so that no two leaders
are both heard.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test.utils import override_settings

from queueapp import enqueue_many
from queueapp.errors import StoreError, StoreUnavailable
from queueapp.store import connection, embedded, examination, shards
from queueapp.store.keys import ShardKeys
from tests import freezing
from tests.faults.sentinels import FIXED_S, Node, Watched, has_sentinel, wait_for_promotion, watched
from tests.faults.wire import Wire
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, until

FAST: dict[str, Any] = {
    "LEASE_SECONDS": 2.0,
    "LEADER_TTL_SECONDS": 1.0,
    "LEADER_RETRY_SECONDS": 0.2,
    "MAX_CRASHES": 50,
    "POOLS": {"default": {"DISPATCH": "scheduled"}},
}
Start = Callable[..., Watched]


@pytest.fixture
def sentinels(own_server: Callable[..., embedded.EmbeddedServer], namespace: str, directory: Path) -> Iterator[Start]:
    """Starts the servers, and lets the test's own code find them as a host's code does."""
    program = embedded.BINARY or embedded.find_binary()
    if not has_sentinel(program):
        pytest.skip(f"{program} has no Sentinel: install redis-server or valkey-server with it")
    managers: list[Any] = []

    def start(*extra: str) -> Watched:
        manager = watched(own_server, directory, *extra)
        nodes: Watched = manager.__enter__()
        managers.append(manager)
        pointed = override_settings(
            DUCTOR={**django_settings.DUCTOR, "REDIS_URL": nodes.setting, "NAMESPACE": namespace}
        )
        pointed.enable()
        managers.append(pointed)
        connection.reset()
        return nodes

    yield start
    connection.reset()
    for manager in reversed(managers):
        manager.disable() if isinstance(manager, override_settings) else manager.__exit__(None, None, None)


def send(number: int, *, patience_s: float = 20.0) -> list[str]:
    """The ids of so many accepted jobs. While the store is away it is tried again, as a host's code would."""
    accepted: list[str] = []

    def all_sent() -> bool:
        with suppress(StoreError):
            for sent in enqueue_many([jobs.noop.bind(n) for n in range(number - len(accepted))]):
                if sent.result is not None:
                    accepted.append(sent.result.id.rpartition(".")[2])
        return len(accepted) >= number

    until(all_sent, timeout=patience_s, what="jobs are taken again")
    return accepted


def unfinished(ids: list[str]) -> list[str]:
    reads = shards.reads("default")
    found = []
    for job_id in ids:
        record = reads.job(job_id)
        if record is None or record.state.value != "ended":
            found.append(job_id)
    return found


def all_end(ids: list[str], what: str) -> None:
    def over() -> bool:
        try:
            return not unfinished(ids)
        except StoreError:
            return False

    until(over, timeout=40, what=what)


def dispatch_log(node: Node, keys: ShardKeys, ids: list[str]) -> list[tuple[int, int]]:
    """(moment, epoch) of each job that this server knows to have been dispatched, in order."""
    with node.client as client:
        stamps: list[Any] = [client.hmget(keys.run(job_id), "dt", "ep") for job_id in ids]
    return sorted((int(at), int(epoch)) for at, epoch in stamps if at)


def in_order(log: list[tuple[int, int]]) -> bool:
    epochs = [epoch for _, epoch in log]
    return epochs == sorted(epochs)


def term(node: Node, keys: ShardKeys) -> tuple[int, str]:
    with node.client as client:
        found: Any = client.hmget(keys["fence"], "epoch", "nonce")
    return int(found[0] or 0), (found[1] or b"").decode()


def leads(process: ManagedProcess, node: Node, keys: ShardKeys) -> bool:
    """The lease names this process, by its process id."""
    with node.client as client:
        owner: Any = client.hget(keys["leader"], "owner")
    return owner is not None and str(process.pid) in owner.decode()


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_c030_a_primary_goes_and_everybody_goes_on_with_its_replica(
    sentinels: Start, worker: Manage, manage: Manage, shard_keys: ShardKeys, how: str
) -> None:
    nodes = sentinels()
    settings = {**FAST, "REDIS_URL": nodes.setting}
    schedulers = [manage("scheduler", **settings) for _ in range(2)]
    workers = [worker("--slots", "2", **settings) for _ in range(2)]
    until(lambda: shards.reads("default").in_force()[0].dispatch == "scheduled")
    until(lambda: len(shards.reads("default").overview().workers) == 2)
    first = send(40)
    until(lambda: len(unfinished(first)) < 30)
    nodes.in_step()
    before = term(nodes.primary, shard_keys)
    if how == "killed":
        nodes.primary.kill()
    else:
        nodes.primary.freeze()
    wait_for_promotion(nodes)
    late = send(20, patience_s=30)
    all_end(first + late, "what was in step, and what came afterwards, is done")
    if how == "frozen":
        nodes.primary.thaw()
        until(lambda: nodes.primary.ask().get("role") == "slave", what="the old primary follows the new one")
        later = send(20)
        all_end(later, "nobody is misled by the old primary")
        late += later
    seen = shards.reads("default").overview()
    assert seen.stats["completed"] == seen.ended >= len(first) + len(late), "an outcome was recorded twice"
    assert term(nodes.replica, shard_keys)[0] >= before[0]
    log = dispatch_log(nodes.replica, shard_keys, first + late)
    assert len(log) == len(first) + len(late)
    assert in_order(log)
    assert [process.stop() for process in [*workers, *schedulers]] == [0, 0, 0, 0]
    assert shards.store("default").verify() == []


def test_a_term_that_a_failover_lost_is_heard_nowhere_else(
    sentinels: Start, worker: Manage, manage: Manage, shard_keys: ShardKeys
) -> None:
    """The newest writes are lost: a grant of leadership among them, and jobs that were accepted and run."""
    nodes = sentinels()
    told = [*examination.of_server(connection.reads(), shard_keys)]
    assert [remark.level for remark in told if remark.check == "sentinels"] == ["well"]
    assert [remark.level for remark in told if remark.check == "replicas"] == ["warning"], (
        "doctor tells beforehand what can be lost"
    )
    settings = {**FAST, "REDIS_URL": nodes.setting}
    first = manage("scheduler", **settings)
    first.wait_for("Leading")
    second = manage("scheduler", **settings)
    second.wait_for("Scheduler started")
    running = worker("--slots", "2", **settings)
    until(lambda: shards.reads("default").in_force()[0].dispatch == "scheduled")
    kept = send(10)
    all_end(kept, "all runs")
    replica_follows_over = Wire(f"redis://127.0.0.1:{nodes.primary.port}/0")
    try:
        nodes.follow(int(replica_follows_over.url.rpartition(":")[2].partition("/")[0]))
        old = term(nodes.replica, shard_keys)
        replica_follows_over.freeze()
        freezing.freeze(first.pid)
        until(lambda: term(nodes.primary, shard_keys)[0] > old[0], timeout=FIXED_S / 2, what="the second one leads")
        lost_term = term(nodes.primary, shard_keys)
        lost = send(10)
        all_end(lost, "the second one dispatches")
        assert term(nodes.replica, shard_keys) == old, "none of it has reached the replica"
        nodes.primary.kill()
    finally:
        replica_follows_over.close()
    first.signal(signal.SIGCONT)
    wait_for_promotion(nodes)
    late = send(20, patience_s=30)
    all_end(late, "it goes on")
    reads = shards.reads("default")
    assert [reads.job(job_id) for job_id in lost] == [None] * 10, "what the failover lost is not there, and said so"
    now = term(nodes.replica, shard_keys)
    assert now[1] != lost_term[1], "the lost term is heard nowhere"
    assert now[0] >= old[0]
    log = dispatch_log(nodes.replica, shard_keys, kept + late)
    assert len(log) == len(kept) + len(late)
    assert in_order(log)
    assert sum("No longer leading" in process.output for process in (first, second)) >= 1
    assert sum(leads(process, nodes.replica, shard_keys) for process in (first, second)) == 1
    seen = reads.overview()
    assert seen.stats["completed"] == seen.ended == len(kept) + len(late)
    assert [process.stop() for process in (running, first, second)] == [0, 0, 0]
    assert shards.store("default").verify() == []


def test_with_min_replicas_a_primary_that_is_cut_off_takes_nothing_that_would_be_lost(
    sentinels: Start, worker: Manage, manage: Manage, shard_keys: ShardKeys
) -> None:
    nodes = sentinels("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
    settings = {**FAST, "REDIS_URL": nodes.setting}
    scheduler = manage("scheduler", **settings)
    running = worker("--slots", "2", **settings)
    until(lambda: shards.reads("default").in_force()[0].dispatch == "scheduled")
    kept = send(10)
    all_end(kept, "all runs")
    replica_follows_over = Wire(f"redis://127.0.0.1:{nodes.primary.port}/0")
    try:
        nodes.follow(int(replica_follows_over.url.rpartition(":")[2].partition("/")[0]))
        replica_follows_over.freeze()
        until(lambda: nodes.primary.ask().get("min_slaves_good_slaves") == 0, timeout=FIXED_S / 2)
        with pytest.raises(StoreUnavailable, match="min-replicas-to-write"):
            jobs.noop.enqueue(1)
        nodes.primary.kill()
    finally:
        replica_follows_over.close()
    wait_for_promotion(nodes)
    # The new primary has no replica, and refuses as well until it has one: here, until it is told otherwise.
    assert unfinished(kept) == [], "all that was accepted is there"
    with nodes.replica.client as client:
        client.config_set("min-replicas-to-write", 0)
    late = send(10, patience_s=30)
    all_end(late, "it goes on")
    seen = shards.reads("default").overview()
    assert seen.stats["completed"] == seen.ended == len(kept) + len(late)
    assert [process.stop() for process in (running, scheduler)] == [0, 0]
    assert shards.store("default").verify() == []


def test_what_was_committed_goes_out_to_the_new_primary(sentinels: Start) -> None:
    """Who only enqueues, as a web process does, finds the new primary with its next call."""
    nodes = sentinels()
    kept = send(5)
    nodes.in_step()
    nodes.primary.kill()
    with pytest.raises(StoreUnavailable):
        jobs.noop.enqueue(1)
    wait_for_promotion(nodes)
    with nodes.replica.client as client:
        assert client.ping()
    late = [jobs.noop.enqueue(n).id.rpartition(".")[2] for n in range(3)]
    assert [shards.reads("default").job(job_id) is not None for job_id in kept + late] == [True] * 8
    assert shards.store("default").verify() == []
