"""Rows, hashes and indexes that something else damaged: set aside once, without holding up what stands beside them."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.records import Finish
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.keyed import keyed

pytestmark = pytest.mark.dirty_store


def waiting(shard: Shard) -> dict[bytes, bytes]:
    """The counters of waiting jobs that are not zero."""
    counts: dict[bytes, bytes] = shard.snapshot().get("counts", {})
    return {field: number for field, number in counts.items() if number != b"0"}


def make_wrong(shard: Shard, key: str) -> None:
    """Another program puts a key of a type that is never ours in its place."""
    shard.client.delete(shard.keys[key])
    shard.client.zadd(shard.keys[key], {"x": 1})


def retrying(shard: Shard) -> str:
    """A job that failed once and waits for its next attempt: its hash holds its state."""
    (job_id,) = shard.add(shard.job(max_attempts=3))
    assert shard.store.fail([failed(shard.lease()[0], retry_ms=5)]) == ["retry"]
    return job_id


def test_what_is_set_aside_is_not_counted_as_waiting(shard: Shard) -> None:
    """Or the policy of the pool could never be changed again."""
    (bad,) = shard.add(shard.job())
    shard.client.delete(shard.keys.job(bad))
    assert shard.lease() == []
    assert waiting(shard) == {}
    assert not {"walk", "lanes:acme", "wake"} & shard.snapshot().keys()
    shard.store.configure(1, pool=PoolConf(policy="fifo"))


def test_a_row_of_another_tenant_is_set_aside(shard: Shard) -> None:
    """It stands in a queue that is not its own: running it would charge the wrong tenant."""
    bad, good = shard.add(shard.job(), shard.job())
    text = shard.snapshot()[f"job:{bad}"]
    shard.client.set(shard.keys.job(bad), text.replace(b"acme", b"globex"))
    assert [job.id for job in shard.lease(2)] == [good]
    assert shard.snapshot()["quarantine"] == {bad.encode()}


def test_a_job_whose_hash_is_gone_is_set_aside_at_the_pick(shard: Shard) -> None:
    """Without it nobody knows how often it ran: it must not begin anew at attempt 1."""
    bad = retrying(shard)
    (good,) = shard.add(shard.job(delay_ms=5))
    shard.now_ms += 5
    shard.store.promote_due()
    shard.client.delete(shard.keys.run(bad))
    assert [job.id for job in shard.lease(2)] == [good]
    assert shard.snapshot()["quarantine"] == {bad.encode()}
    assert waiting(shard) == {}


@pytest.mark.parametrize("lost", ["row", "hash"])
def test_a_scheduled_job_that_cannot_be_read_is_set_aside_when_it_is_due(shard: Shard, lost: str) -> None:
    bad = retrying(shard)
    shard.client.delete(shard.keys.job(bad) if lost == "row" else shard.keys.run(bad))
    shard.now_ms += 10
    assert shard.store.promote_due().pending == 0
    assert shard.snapshot()["quarantine"] == {bad.encode()}
    assert "scheduled" not in shard.snapshot()
    assert waiting(shard).get(b"w") is None
    shard.store.configure(1, pool=PoolConf(policy="fifo"))


def test_an_expiring_job_that_cannot_be_read_is_set_aside(shard: Shard) -> None:
    (bad,) = shard.add(shard.job(delay_ms=60_000, expires_after_ms=10))
    shard.client.delete(shard.keys.job(bad))
    shard.now_ms += 10
    assert shard.store.promote_due().expired == 0
    assert shard.snapshot()["quarantine"] == {bad.encode()}
    assert "expiring" not in shard.snapshot()


@pytest.mark.parametrize("index", ["pending", "scheduled", "active"])
def test_nobody_waits_for_what_was_set_aside(shard: Shard, index: str) -> None:
    (bad,) = shard.add(shard.job(delay_ms=5 if index == "scheduled" else 0))
    shard.store.await_result(bad, "web1")
    if index == "active":
        shard.lease()
    shard.client.delete(shard.keys.job(bad))
    shard.now_ms += LEASE_MS + 1
    shard.store.promote_due()
    shard.store.partition_recover()
    shard.lease()
    assert shard.snapshot()["done:web1"] == [bad.encode()]
    assert "waiters" not in shard.snapshot()


def test_a_running_job_whose_row_is_gone_frees_its_slots_at_its_deadline(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=1)])
    bad, good = shard.add(shard.job(), shard.job())
    shard.lease()
    shard.client.delete(shard.keys.job(bad))
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()
    assert [job.id for job in shard.lease(1, "w2")] == [good]
    assert not {"held:w1"} & shard.snapshot().keys()
    assert shard.snapshot()["quarantine"] == {bad.encode()}


def test_a_running_job_whose_hash_is_gone_is_set_aside_at_its_deadline(shard: Shard) -> None:
    (bad,) = shard.add(shard.job())
    shard.lease()
    shard.client.delete(shard.keys.run(bad))
    shard.now_ms += LEASE_MS + 1
    moved = shard.store.partition_recover()
    assert (moved.pending, moved.dead) == (0, 0)
    assert "active" not in shard.snapshot()
    assert shard.snapshot()["quarantine"] == {bad.encode()}


@pytest.mark.parametrize("key", ["job", "run", "errors"])
@pytest.mark.parametrize("script", ["cycle", "partition_recover"])
def test_a_key_of_a_wrong_type_does_not_stop_recovery(shard: Shard, script: str, key: str) -> None:
    bad, good = shard.add(shard.job("a"), shard.job("b"))
    shard.lease(2)
    make_wrong(shard, f"{key}:{bad}")
    shard.now_ms += LEASE_MS + 1
    if script == "cycle":
        shard.store.cycle("w9", 1, want=0, begin=0, lease_ms=LEASE_MS)
    else:
        shard.store.partition_recover()
    assert good in [job.id for job in shard.lease(5, "w2")]


@pytest.mark.parametrize("key", ["job", "result", "errors"])
def test_a_key_of_a_wrong_type_does_not_hold_up_what_ended_beside_it(shard: Shard, key: str) -> None:
    shard.add(shard.job("a"), shard.job("b"))
    bad, good = sorted(shard.lease(2), key=lambda job: job.tenant)
    make_wrong(shard, f"{key}:{bad.id}")
    finish: Finish = completed(bad, result=b"1") if key == "result" else failed(bad, retry_ms=5)
    shard.store.cycle("w1", 2, want=0, begin=0, lease_ms=LEASE_MS, finished=[finish, completed(good)])
    assert good.id.encode() in dict(shard.snapshot()["ended"])
    assert "held:w1" not in shard.snapshot()


def test_a_hash_of_a_wrong_type_takes_no_slot(shard: Shard) -> None:
    """It is met when the lease is written; the ceiling must not count what was not leased."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=1)])
    bad, good = shard.add(shard.job(), shard.job())
    make_wrong(shard, f"run:{bad}")
    leased = [job.id for _ in range(2) for job in shard.lease(2)]
    assert leased == [good]
    assert len(shard.snapshot()["slots:t:acme"]) == 1
    assert shard.snapshot()["quarantine"] == {bad.encode()}
    assert waiting(shard) == {}


def test_a_dead_letter_whose_hash_is_of_a_wrong_type_is_trimmed(shard: Shard) -> None:
    (bad,) = shard.add(shard.job())
    shard.store.fail([failed(shard.lease()[0])])
    make_wrong(shard, f"run:{bad}")
    shard.now_ms += 60_000
    shard.store.trim(result_ttl_ms=1, result_max=1, dead_ttl_ms=10, dead_max=10)
    assert not {"dead", "dead:acme", f"run:{bad}", f"job:{bad}"} & shard.snapshot().keys()


def test_a_dead_letter_without_its_hash_leaves_its_tenant_too(shard: Shard) -> None:
    (bad,) = shard.add(shard.job())
    shard.store.fail([failed(shard.lease()[0])])
    shard.client.delete(shard.keys.run(bad))
    shard.now_ms += 60_000
    shard.store.trim(result_ttl_ms=1, result_max=1, dead_ttl_ms=10, dead_max=10)
    assert not {"dead", "dead:acme"} & shard.snapshot().keys()


def test_a_failure_of_a_job_whose_row_is_gone_makes_no_stub_of_a_row(shard: Shard) -> None:
    (bad,) = shard.add(shard.job(max_attempts=3))
    (job,) = shard.lease()
    shard.client.delete(shard.keys.job(bad))
    assert shard.store.fail([failed(job, retry_ms=1)]) == ["dead"]
    assert f"job:{bad}" not in shard.snapshot()


def test_a_repeated_lease_leaves_out_what_has_vanished(shard: Shard) -> None:
    bad, good = shard.add(shard.job(), shard.job())
    shard.lease(2)
    shard.client.delete(shard.keys.job(bad))
    again = shard.store.check_and_lease("w1", 1, want=2, begin=2, lease_ms=LEASE_MS).jobs
    assert [job.id for job in again] == [good]


@pytest.mark.parametrize("index", ["line", "sub-lane", "scheduled", "old order", "ingress", "backlog"])
def test_what_two_indices_meet_is_set_aside_once(shard: Shard, index: str) -> None:
    """A job with an expiry stands in `expiring`, and in the index where it waits: only that one counts it."""
    term = shard.schedule() if index == "ingress" else None
    if index == "backlog":
        rate = Rate(rate=1, period_ms=2_000)
        shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=rate), ScopeLimits(tenant="zeta", rate=rate)])
        shard.add(shard.job())
        shard.store.complete([completed(shard.lease()[0])])
    options: dict[str, Any] = {"expires_after_ms": 1_000, "delay_ms": 2_000 if index == "scheduled" else 0}
    bad = shard.job(parks=index == "backlog", **options) if index != "sub-lane" else keyed(shard, "k", **options)
    good = shard.job("zeta", delay_ms=options["delay_ms"])
    shard.store.enqueue([bad, good])
    make_wrong(shard, f"job:{bad.id}")
    if index == "old order":
        shard.store.configure(2, pool=PoolConf(policy="fifo"))
    shard.now_ms += 1_000
    assert shard.store.promote_due().expired == 0
    shard.now_ms += 1_000
    shard.store.promote_due()
    shard.store.backlog_promote(7)
    if term is not None:
        entries = shard.store.read_ingress(term.nonce)
        for _ in range(2):
            shard.store.admit(term, [(entry.entry, entry.id, None) for entry in entries])
        shard.store.dispatch(term, 9, 9)
    assert [job.id for job in shard.lease(3)] == [good.id]
    assert shard.snapshot()["quarantine"] == {bad.id.encode()}
    assert shard.snapshot()["stats"][b"quarantined"] == b"1"
    assert waiting(shard) == {}
    unknown = 1.0 if index == "scheduled" else 0.0  # nothing tells its tenant
    assert dict(shard.snapshot()["tenants"]) == {b"acme": unknown, b"zeta": 0.0}
    assert shard.client.xlen(shard.keys["ingress"]) == 0
    assert not {"keysets", "keyusers", "keynames", "expiring", "backlog"} & shard.snapshot().keys()
