"""The fence has teeth: a leader that does not know that its term is over writes nothing; without the check it would.

Leaders are asked here in the order that hurts most, as no signal could time it: one asks for its term, freezes, another
leads, the first one wakes and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from queueapp.errors import Fenced, StoreError
from queueapp.store import scripts
from queueapp.store.keys import ShardKeys
from queueapp.store.leader_records import Term
from tests.lua.harness import LEASE_MS, Shard, completed

TTL_MS = 5_000


@pytest.fixture
def shard(redis_client: redis.Redis, shard_keys: ShardKeys) -> Iterator[Shard]:
    made = Shard(redis_client, shard_keys)
    yield made
    assert made.store.verify() == []


def acquire(shard: Shard, name: str) -> Term:
    return shard.store.lead_acquire(name, f"nonce-{name}", TTL_MS)


def frozen_leader(shard: Shard) -> int:
    """How many jobs the dead term dispatched, after the next one had begun; the dispatch log is read back."""
    shard.schedule(window=100)
    shard.client.delete(shard.keys["leader"])
    first = acquire(shard, "first")
    ids = shard.add(*[shard.job() for _ in range(40)])
    shard.admit(first)
    shard.store.dispatch(first, 10, 100)
    shard.now_ms += TTL_MS  # it freezes here
    second = acquire(shard, "second")
    shard.store.dispatch(second, 10, 100)
    shard.now_ms += 1
    with suppress(Fenced):
        shard.store.dispatch(first, 10, 100)
    log = []
    for job_id in ids:
        stamps: Any = shard.client.hmget(shard.keys.run(job_id), "dt", "ep")
        if stamps[0]:
            log.append((int(stamps[0]), int(stamps[1])))
    newest, late = 0, 0
    for _, epoch in sorted(log):
        late += epoch < newest
        newest = max(newest, epoch)
    return late


@pytest.fixture
def fenceless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts without the check."""
    whole = scripts.source
    check = "return newest[1] ~= epoch or newest[2] ~= nonce"
    assert whole("include/fence.lua").count(check) == 1
    monkeypatch.setattr(scripts, "source", lambda path: whole(path).replace(check, "return false"))
    scripts.script.cache_clear()
    yield
    scripts.script.cache_clear()


def test_a_frozen_leader_that_wakes_dispatches_nothing(shard: Shard) -> None:
    assert frozen_leader(shard) == 0


def test_without_the_fence_the_same_test_counts_what_the_dead_term_dispatched(shard: Shard, fenceless: None) -> None:
    assert frozen_leader(shard) == 10


Write = Callable[[Shard, Term], object]
WRITES: dict[str, Write] = {
    "admit": lambda shard, term: shard.store.admit(term, []),
    "dispatch": lambda shard, term: shard.store.dispatch(term, 1, 100),
    "flush_policy": lambda shard, term: shard.store.flush_policy(term, 1, b"what it knows"),
    "renew": lambda shard, term: shard.store.lead_renew(term.nonce, TTL_MS),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_write_of_a_leader_is_refused_under_a_term_that_is_over(shard: Shard, name: str) -> None:
    shard.schedule()
    shard.client.delete(shard.keys["leader"])
    first = acquire(shard, "first")
    shard.now_ms += TTL_MS
    acquire(shard, "second")
    before = shard.snapshot()
    with pytest.raises(Fenced):
        WRITES[name](shard, first)
    assert shard.snapshot() == before


def accepted(shard: Shard, terms: list[Term]) -> list[str]:
    """The nonces whose write the store takes now."""
    taken = []
    for term in terms:
        try:
            shard.store.dispatch(term, 1, 100)
        except StoreError:
            continue
        taken.append(term.nonce)
    return taken


def test_a_counter_that_was_lost_in_a_failover_lets_no_two_leaders_write(shard: Shard) -> None:
    """The store loses its newest writes; the next leader gets the epoch that another one had before. Nonces differ."""
    shard.schedule()
    shard.client.delete(shard.keys["leader"])
    first = acquire(shard, "first")
    kept: dict[str, Any] = {name: shard.client.dump(shard.keys[name]) for name in ("leader", "fence")}
    shard.now_ms += TTL_MS
    lost = acquire(shard, "lost")
    assert accepted(shard, [first, lost]) == [lost.nonce]
    for name, value in kept.items():
        shard.client.restore(shard.keys[name], 0, value, replace=True)
    assert accepted(shard, [first, lost]) == [first.nonce]
    third = acquire(shard, "third")
    assert third.epoch == lost.epoch, "the same number was given twice"
    assert accepted(shard, [first, lost, third]) == [third.nonce]
    with pytest.raises(Fenced):
        shard.store.lead_renew(lost.nonce, TTL_MS)


def test_a_lease_that_was_lost_in_a_failover_and_given_again_is_heard_from_its_new_holder_alone(shard: Shard) -> None:
    """The store loses a grant of a lease, and gives the same number of attempts to another worker."""
    (job_id,) = shard.add(shard.job())
    every: list[Any] = shard.client.keys(f"{shard.keys.prefix}*")
    kept: dict[Any, Any] = {name: shard.client.dump(name) for name in every}
    (lost,) = shard.lease(worker="w1")
    shard.client.delete(*shard.client.keys(f"{shard.keys.prefix}*"))
    for name, value in kept.items():
        shard.client.restore(name, 0, value, replace=True)
    (again,) = shard.lease(worker="w2")
    assert (again.id, again.attempts) == (lost.id, lost.attempts) == (job_id, 1)
    before = shard.store.cycle("w1", 2, want=0, begin=0, lease_ms=LEASE_MS, extend=[(job_id, 1)])
    assert before.lost == [job_id], "its worker hears of it at the next heartbeat"
    late = shard.store.cycle("w1", 3, want=0, begin=0, lease_ms=LEASE_MS, finished=[completed(lost, result=b"1")])
    assert late.finished == ["stale"]
    ended = shard.store.cycle("w2", 2, want=0, begin=0, lease_ms=LEASE_MS, finished=[completed(again, result=b"2")])
    assert ended.finished == ["done"]
    repeated = shard.store.cycle("w1", 4, want=0, begin=0, lease_ms=LEASE_MS, finished=[completed(lost, result=b"1")])
    assert repeated.finished == ["stale"]
    assert shard.client.get(shard.keys[f"result:{job_id}"]) == b"2"
