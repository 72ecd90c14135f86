"""A change of policy under scheduled dispatch: what a leader ranks, what it had dispatched, what comes back to it."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import ScopeLimits
from queueapp.store.records import Returned
from tests.lua.generations import change, drained, led, moved_over, some, state
from tests.lua.harness import LEASE_MS, Shard


def test_where_only_a_leader_can_rank_the_jobs_go_to_ingress(shard: Shard) -> None:
    ids = shard.add(*some(shard, 4))
    shard.lease(1, begin=0)
    shard.now_ms += LEASE_MS
    shard.store.partition_recover()  # one that has a hash
    term = led(shard, "drr", 2)
    shard.store.cancel(ids[3:])
    moved_over(shard)
    assert {state(shard, job_id) for job_id in ids[:3]} == {"ingress"}
    entries = shard.store.read_ingress("me")
    assert [entry.id for entry in sorted(entries, key=lambda entry: entry.seq)] == ids[:3]
    assert shard.store.verify() == []
    shard.store.admit(term, [(entry.entry, entry.id, float(entry.seq)) for entry in entries], order=shard.order)
    assert shard.store.verify() == []


def test_the_order_of_a_leader_moves_over_to_one_of_the_store(shard: Shard) -> None:
    term = led(shard, "lottery", 1)
    ids = shard.add(*some(shard, 6))
    shard.admit(term)
    change(shard, "fifo")
    assert shard.store.verify() == []
    assert drained(shard) == ids


@pytest.mark.parametrize("policy", ["fifo", "wfq"])
def test_a_leader_dispatches_what_has_come_over_by_its_own_calls(shard: Shard, policy: str) -> None:
    """And workers are not asked to call again: they cannot lease what they move."""
    ids = shard.add(*(shard.job(f"t{index % 5}") for index in range(100)))
    term = led(shard, policy, 2)
    assert "wake:leader" in shard.snapshot()
    answer = shard.store.cycle("w", 1, want=4, begin=0, lease_ms=LEASE_MS)
    assert not answer.jobs
    assert not answer.more
    taken = 0
    while taken < 100:
        found = shard.store.dispatch(term, 30, 1_000, order=shard.order).jobs
        assert found == min(30, 100 - taken)
        taken += found
    assert sorted(drained(shard)) == sorted(ids)


def test_what_was_dispatched_before_a_change_goes_back_into_the_new_order(shard: Shard) -> None:
    term = led(shard, "tiered", 1)
    ids = shard.add(*some(shard, 6))
    shard.dispatch(term, window=2)
    change(shard, "wfq", dispatch="scheduled")
    before = shard.snapshot().get("~policy", {})
    shard.now_ms += 31_000
    shard.store.promote_due()
    assert "ready" not in shard.snapshot()
    assert sum(len(value) for key, value in shard.snapshot().items() if key.startswith("~q:")) == 2
    assert before.get(b"V", b"0") == shard.snapshot().get("~policy", {}).get(b"V", b"0")
    change(shard, "wfq", 3)
    assert sorted(drained(shard)) == sorted(ids)


@pytest.mark.parametrize("how", ["requeue", "recover", "ready_ttl", "pause", "paused at the lease"])
def test_what_comes_back_into_an_order_that_only_a_leader_knows_is_ranked_by_it(shard: Shard, how: str) -> None:
    """It was taken under another policy: whatever rank the store gave it would be one of nobody's order."""
    term = led(shard, "tiered", 1)
    first, *others = shard.add(*(shard.job(task=f"t{number}") for number in range(4)))
    shard.dispatch(term, window=1)
    leased = shard.lease(1) if how in ("requeue", "recover") else []
    change(shard, "drr", dispatch="scheduled")
    moved_over(shard)
    shard.admit(term, rank=lambda entry: 1e12 + entry.seq)
    if how == "requeue":
        shard.store.partition_requeue([Returned(id=leased[0].id, attempts=1)])
    elif how == "pause":
        shard.store.configure(3, scopes=[ScopeLimits(tenant="acme", paused=True)])
    elif how == "paused at the lease":
        shard.client.hset(shard.keys["limits"], "t:acme", "1||1||")
        shard.lease()
        shard.client.hdel(shard.keys["limits"], "t:acme")
    else:
        shard.now_ms += 31_000
        shard.store.partition_recover()
        shard.store.promote_due()
    found = shard.reads.job(first)
    assert found is not None
    assert found.state == "ingress"
    assert "ready" not in shard.snapshot()
    assert (b"i", 0.0) in shard.snapshot()["wake:leader"]
    (entry,) = shard.store.read_ingress(term.nonce)
    assert (entry.id, entry.seq, entry.tenant) == (first, 1, "acme")
    if how == "pause":
        shard.store.configure(4, scopes=[ScopeLimits(tenant="acme", clear=True)])
    shard.admit(term, rank=lambda entry: 1e12 + entry.seq)
    queue = shard.snapshot()["~q:acme|main"]
    assert [(member[12:].decode(), rank) for member, rank in queue] == [
        (job_id, 1e12 + number) for number, job_id in enumerate((first, *others), 1)
    ]


def test_what_comes_back_into_the_order_that_it_left_waits_for_no_leader(shard: Shard) -> None:
    term = led(shard, "drr", 1)
    ids = shard.add(*(shard.job() for _ in range(3)))
    shard.admit(term, rank=lambda entry: 100.0 + entry.seq)
    shard.store.dispatch(term, 1, 1, picks=[("acme", "main")], order=1)
    (job,) = shard.lease()
    shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
    assert [(member[12:].decode(), rank) for member, rank in shard.snapshot()["q:acme|main"]] == [
        (job_id, 100.0 + number) for number, job_id in enumerate(ids, 1)
    ]
