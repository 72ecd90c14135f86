"""Scheduled dispatch, the way out: pending → ready within a window, ready → active."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis

from queueapp.errors import Fenced, StoreMisconfigured
from queueapp.states import State
from queueapp.store.configuration import ScopeLimits
from queueapp.store.keys import ShardKeys
from tests.lua.harness import LEASE_MS, Shard, completed
from tests.lua.keyed import keyed, used
from tests.lua.readied import armed, limits, ready, slots, state, units, waiting


def test_dispatch_fills_the_window_and_says_what_is_left(shard: Shard) -> None:
    term = shard.schedule()
    ids = shard.add(*(shard.job() for _ in range(5)))
    answer = shard.dispatch(term, window=3)
    assert (answer.jobs, answer.room, answer.runnable, answer.taken) == (3, 0, True, [])
    assert ready(shard) == ids[:3]
    assert {state(shard, job_id) for job_id in ids[:3]} == {State.READY}
    assert armed(shard, "wake")
    assert not armed(shard, "wake:leader")
    answer = shard.dispatch(term, window=9)
    assert (answer.jobs, answer.room, answer.runnable) == (2, 4, False)
    assert waiting(shard) == 5


def test_running_jobs_count_in_the_window(shard: Shard) -> None:
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(5)))
    shard.dispatch(term, window=2)
    [leased, _] = shard.lease(2)
    assert not armed(shard, "wake:leader")
    assert shard.dispatch(term, window=2).jobs == 0
    assert not armed(shard, "wake:leader")
    shard.store.complete([completed(leased)])
    assert armed(shard, "wake:leader")
    assert shard.dispatch(term, window=2).jobs == 1


def test_a_repeat_fills_only_what_is_free(shard: Shard) -> None:
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(5)))
    shard.dispatch(term, window=3)
    before = shard.snapshot()
    assert shard.store.dispatch(term, 250, 3, order=shard.order).jobs == 0
    assert shard.snapshot() == before


def test_a_smaller_window_takes_nothing_back(shard: Shard) -> None:
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(5)))
    shard.dispatch(term, window=4)
    answer = shard.store.dispatch(term, 250, 1, order=shard.order)
    assert (answer.jobs, answer.room, len(ready(shard))) == (0, 0, 4)


def test_what_is_asked_for_bounds_a_call(shard: Shard) -> None:
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(5)))
    answer = shard.dispatch(term, most=2)
    assert (answer.jobs, answer.runnable) == (2, True)
    assert armed(shard, "wake:leader")


def test_a_term_that_is_over_dispatches_nothing(shard: Shard) -> None:
    old = shard.schedule()
    shard.add(shard.job())
    shard.admit(old)
    shard.term()
    before = shard.snapshot()
    with pytest.raises(Fenced):
        shard.store.dispatch(old, 250, 10, order=shard.order)
    assert shard.snapshot() == before


def test_a_term_is_over_also_when_a_failover_gave_its_number_again(shard: Shard) -> None:
    old = shard.schedule()
    shard.add(shard.job())
    shard.admit(old)
    new = shard.term()
    shard.client.hset(shard.keys["fence"], "epoch", old.epoch)
    for term in (old, replace(new, epoch=new.epoch + 1)):
        with pytest.raises(Fenced):
            shard.store.dispatch(term, 250, 10, order=shard.order)


def test_a_full_server_still_dispatches_what_was_admitted(own_server: Callable[..., Any]) -> None:
    """Nothing new is taken; what waits can be dispatched, leased and ended, so that memory comes back."""
    client = redis.Redis.from_url(own_server().url, protocol=2)
    shard = Shard(client, ShardKeys("full", "full00", 0))
    term = shard.schedule()
    shard.add(shard.job(), shard.job())
    shard.admit(term)
    shard.add(shard.job())
    entries = [(entry.entry, entry.id, None) for entry in shard.store.read_ingress(term.nonce)]
    client.config_set("maxmemory", 1)
    for refused in (
        lambda: shard.store.admit(term, entries, order=shard.order),
        lambda: shard.store.flush_policy(term, 1, b"state", order=shard.order),
        lambda: shard.store.enqueue([shard.job()]),
    ):
        with pytest.raises(StoreMisconfigured, match="maxmemory"):
            refused()
    assert shard.store.dispatch(term, 250, 100, order=shard.order).jobs == 2
    assert len(shard.lease(2)) == 2
    client.config_set("maxmemory", 0)
    assert shard.store.admit(term, entries, order=shard.order).admitted == 1
    client.close()


def test_a_dispatched_job_is_stamped_with_the_term(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job())
    shard.dispatch(term)
    stamp = shard.client.hmget(shard.keys.run(job_id), "s", "ep", "dt")
    assert stamp == [b"r", str(term.epoch).encode(), str(shard.now_ms).encode()]


def test_ceilings_are_held_by_dispatch_and_never_by_the_lease(shard: Shard) -> None:
    term = shard.schedule(max_in_flight=3)
    limits(shard, ScopeLimits(tenant="acme", max_in_flight=2), ScopeLimits(tenant="beta", lane="main", max_in_flight=1))
    shard.add(*(shard.job(tenant) for tenant in ("acme", "beta") for _ in range(3)))
    assert shard.dispatch(term).jobs == 3
    assert (slots(shard, "p"), slots(shard, "t:acme"), slots(shard, "l:beta|main")) == (3, 2, 1)
    assert shard.store.dispatch(term, 250, 100, order=shard.order).jobs == 0
    leased = shard.lease(5)
    assert sorted(job.tenant for job in leased) == ["acme", "acme", "beta"]
    assert slots(shard, "p") == 3
    shard.store.complete([completed(job) for job in leased])
    assert (slots(shard, "p"), slots(shard, "t:acme")) == (0, 0)
    assert shard.store.dispatch(term, 250, 100, order=shard.order).jobs == 2


def test_a_key_is_held_from_dispatch_on(shard: Shard) -> None:
    term = shard.schedule()
    ids = shard.add(*(keyed(shard, "customer:7") for _ in range(2)))
    [other] = shard.add(shard.job())
    assert shard.dispatch(term).jobs == 2
    assert ready(shard) == [ids[0], other]
    assert used(shard, "customer:7") == 1
    [first] = shard.lease()
    assert first.id == ids[0]
    shard.store.complete([completed(first)])
    assert shard.store.dispatch(term, 250, 100, order=shard.order).jobs == 1
    assert ready(shard) == [other, ids[1]]


def test_expired_jobs_end_at_the_dispatch(shard: Shard) -> None:
    term = shard.schedule()
    [brief, other] = shard.add(shard.job(expires_after_ms=100), shard.job())
    shard.admit(term)
    shard.now_ms += 100
    assert shard.store.dispatch(term, 250, 100, order=shard.order).jobs == 1
    assert (state(shard, brief), ready(shard)) == (State.ENDED, [other])


def test_a_paused_pool_dispatches_nothing(shard: Shard) -> None:
    term = shard.schedule(paused=True)
    shard.add(shard.job())
    answer = shard.dispatch(term)
    assert (answer.jobs, answer.runnable) == (0, False)
    assert not armed(shard, "wake")


def test_a_direct_pool_dispatches_nothing(shard: Shard) -> None:
    term = shard.term()
    shard.add(shard.job())
    answer = shard.store.dispatch(term, 250, 100, order=shard.order)
    assert (answer.jobs, answer.runnable, ready(shard)) == (0, False, [])


def test_a_broken_row_is_set_aside_and_stops_nobody(shard: Shard) -> None:
    term = shard.schedule()
    [bad, good, worse] = shard.add(shard.job(), shard.job(), shard.job())
    shard.admit(term)
    shard.client.delete(shard.keys.job(bad))
    shard.client.sadd(shard.keys.run(worse), "what is this")
    shard.store.dispatch(term, 250, 100, order=shard.order)
    assert ready(shard) == [good]
    assert shard.client.smembers(shard.keys["quarantine"]) == {bad.encode(), worse.encode()}
    shard.client.delete(shard.keys.run(worse), shard.keys.job(worse))


def test_workers_take_what_is_ready_in_the_order_of_its_dispatch(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(*(shard.job() for _ in range(4)))
    shard.dispatch(term, window=3)
    leased = shard.lease(2)
    assert [job.id for job in leased] == ids[:2]
    assert {job.attempts for job in leased} == {1}
    assert [job.id for job in shard.lease(2, "w2")] == [ids[2]]
    assert not shard.lease(2, "w3")
    assert state(shard, ids[3]) is State.PENDING


def test_the_same_call_answers_the_same_jobs(shard: Shard) -> None:
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(2)))
    shard.dispatch(term)
    [first] = shard.store.check_and_lease("w1", 1, want=1, begin=1, lease_ms=LEASE_MS).jobs
    [again] = shard.store.check_and_lease("w1", 1, want=1, begin=1, lease_ms=LEASE_MS).jobs
    assert again == first


def test_cycle_leases_what_is_ready(shard: Shard) -> None:
    term = shard.schedule()
    [one, two] = shard.add(shard.job(), shard.job())
    shard.dispatch(term, window=1)
    answer = shard.store.cycle("w1", 1, want=5, begin=5, lease_ms=LEASE_MS)
    assert ([job.id for job in answer.jobs], answer.runnable) == ([one], False)
    shard.store.dispatch(term, 250, 2, order=shard.order)
    answer = shard.store.cycle("w1", 2, want=5, begin=5, lease_ms=LEASE_MS, finished=[completed(answer.jobs[0])])
    assert [job.id for job in answer.jobs] == [two]


def test_service_is_counted_once_at_the_dispatch(shard: Shard) -> None:
    term = shard.schedule()
    shard.add(shard.job(cost=3))
    shard.dispatch(term)
    assert units(shard, "acme") == (3, 1)
    shard.lease()
    assert units(shard, "acme") == (3, 1)


def test_a_lost_lease_goes_back_to_its_place_without_admission(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(*(shard.job() for _ in range(3)))
    shard.dispatch(term, window=1)
    shard.lease(begin=0)
    shard.now_ms += LEASE_MS
    assert shard.store.partition_recover().pending == 1
    shard.dispatch(term, window=2)
    assert ready(shard) == ids[:2]
    assert [(job.id, job.attempts) for job in shard.lease()] == [(ids[0], 2)]


def test_a_suspect_is_dispatched_like_any_other_and_leased_alone(shard: Shard) -> None:
    term = shard.schedule(policy="priority")
    ids = shard.add(*(shard.job(max_crashes=9) for _ in range(3)))
    for _ in range(2):
        shard.dispatch(term, window=1)
        assert [job.id for job in shard.lease()] == [ids[0]]
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    [urgent] = shard.add(shard.job(priority=50))
    shard.dispatch(term)
    assert ready(shard) == [urgent, *ids]
    assert shard.store.cancel([urgent]) == ["cancelled"]
    [suspect] = shard.lease(3)
    assert suspect.id == ids[0]
    assert not shard.lease(3)  # its worker takes nothing beside it
    assert [job.id for job in shard.lease(1, "w2")] == [ids[1]]


def test_a_busy_worker_passes_over_a_suspect_until_it_must_drain(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    suspect, other, *rest = shard.add(*(shard.job(max_crashes=9) for _ in range(5)))
    shard.dispatch(term, window=2)
    for _ in range(2):
        assert [job.id for job in shard.lease()] == [suspect]
        if state(shard, other) is State.READY:
            assert [job.id for job in shard.lease(1, "busy")] == [other]
        shard.now_ms += LEASE_MS - 1
        assert shard.store.extend_lease([(other, 1)], LEASE_MS) == []
        shard.now_ms += 1
        assert shard.store.partition_recover().pending == 1
        shard.dispatch(term, window=2)
    shard.dispatch(term)
    assert ready(shard) == [suspect, *rest]
    assert [job.id for job in shard.lease(1, "busy")] == rest[:1]
    shard.now_ms += 5_000
    assert not shard.lease(1, "busy")  # it shall become empty, so that the suspect can run alone
    assert [job.id for job in shard.lease(2, "free")] == [suspect]
