"""Scheduled dispatch, the way out: pending → ready within a window, ready → active, and all other ways out of ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis

from queueapp.errors import Fenced, StoreMisconfigured
from queueapp.states import State
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.leader_records import Term
from queueapp.store.records import LeasedJob
from tests.lua.harness import LEASE_MS, Shard, completed
from tests.lua.keyed import keyed, use, used

READY_MS = 30_000


def state(shard: Shard, job_id: str) -> State:
    record = shard.reads.job(job_id)
    assert record is not None
    return record.state


def ready(shard: Shard) -> list[str]:
    members: Any = shard.client.zrange(shard.keys["ready"], 0, -1)
    return [member.decode() for member in members]


def armed(shard: Shard, key: str) -> bool:
    return bool(shard.client.exists(shard.keys[key]))


def slots(shard: Shard, scope: str) -> int:
    return int(shard.client.zcard(shard.keys[f"slots:{scope}"]))


def waiting(shard: Shard) -> int:
    return int(shard.client.hget(shard.keys["counts"], "w") or 0)


def limits(shard: Shard, *scopes: ScopeLimits) -> None:
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=scopes)


def units(shard: Shard, tenant: str) -> tuple[float, int]:
    """What the tenant has had in this minute: units and jobs."""
    packed: Any = shard.client.hget(shard.keys[f"served:{shard.now_ms // 60_000}"], tenant)
    had, jobs, *_ = packed.decode().split("|")
    return float(had), int(jobs)


# -- into ready --------------------------------------------------------------------------------------------------------


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
    assert shard.store.dispatch(term, 250, 3).jobs == 0
    assert shard.snapshot() == before


def test_a_smaller_window_takes_nothing_back(shard: Shard) -> None:
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(5)))
    shard.dispatch(term, window=4)
    answer = shard.store.dispatch(term, 250, 1)
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
        shard.store.dispatch(old, 250, 10)
    assert shard.snapshot() == before


def test_a_term_is_over_also_when_a_failover_gave_its_number_again(shard: Shard) -> None:
    old = shard.schedule()
    shard.add(shard.job())
    shard.admit(old)
    new = shard.term()
    shard.client.hset(shard.keys["fence"], "epoch", old.epoch)
    for term in (old, replace(new, epoch=new.epoch + 1)):
        with pytest.raises(Fenced):
            shard.store.dispatch(term, 250, 10)


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
        lambda: shard.store.admit(term, entries),
        lambda: shard.store.flush_policy(term, 1, b"state"),
        lambda: shard.store.enqueue([shard.job()]),
    ):
        with pytest.raises(StoreMisconfigured, match="maxmemory"):
            refused()
    assert shard.store.dispatch(term, 250, 100).jobs == 2
    assert len(shard.lease(2)) == 2
    client.config_set("maxmemory", 0)
    assert shard.store.admit(term, entries).admitted == 1
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
    assert shard.store.dispatch(term, 250, 100).jobs == 0
    leased = shard.lease(5)
    assert sorted(job.tenant for job in leased) == ["acme", "acme", "beta"]
    assert slots(shard, "p") == 3
    shard.store.complete([completed(job) for job in leased])
    assert (slots(shard, "p"), slots(shard, "t:acme")) == (0, 0)
    assert shard.store.dispatch(term, 250, 100).jobs == 2


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
    assert shard.store.dispatch(term, 250, 100).jobs == 1
    assert ready(shard) == [other, ids[1]]


def test_expired_jobs_end_at_the_dispatch(shard: Shard) -> None:
    term = shard.schedule()
    [brief, other] = shard.add(shard.job(expires_after_ms=100), shard.job())
    shard.admit(term)
    shard.now_ms += 100
    assert shard.store.dispatch(term, 250, 100).jobs == 1
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
    answer = shard.store.dispatch(term, 250, 100)
    assert (answer.jobs, answer.runnable, ready(shard)) == (0, False, [])


def test_a_broken_row_is_set_aside_and_stops_nobody(shard: Shard) -> None:
    term = shard.schedule()
    [bad, good, worse] = shard.add(shard.job(), shard.job(), shard.job())
    shard.admit(term)
    shard.client.delete(shard.keys.job(bad))
    shard.client.sadd(shard.keys.run(worse), "what is this")
    shard.store.dispatch(term, 250, 100)
    assert ready(shard) == [good]
    assert shard.client.smembers(shard.keys["quarantine"]) == {bad.encode(), worse.encode()}
    shard.client.delete(shard.keys.run(worse), shard.keys.job(worse))


# -- ready → active ----------------------------------------------------------------------------------------------------


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
    shard.store.dispatch(term, 250, 2)
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


# -- out of ready ------------------------------------------------------------------------------------------------------


def dispatched(shard: Shard, *, cost: float = 4) -> tuple[Term, str]:
    """A job in ready whose tenant, lane and key have ceilings."""
    term = shard.schedule(max_in_flight=9)
    limits(shard, ScopeLimits(tenant="acme", max_in_flight=2), ScopeLimits(tenant="acme", lane="mail", max_in_flight=2))
    [job_id] = shard.add(shard.job("acme", lane="mail", cost=cost, keys=(use("k"),), expires_after_ms=90_000))
    assert shard.dispatch(term, window=1).jobs == 1
    return term, job_id


def nothing_is_held(shard: Shard) -> bool:
    held = [slots(shard, scope) for scope in ("p", "t:acme", "l:acme|mail")]
    return held == [0, 0, 0] and used(shard, "k") == 0


def paused(shard: Shard, scope: str) -> None:
    shard.versions += 1
    if scope == "pool":
        shard.store.configure(shard.versions, pool=PoolConf(dispatch="scheduled", max_in_flight=9, paused=True))
    else:
        lane = "mail" if scope == "lane" else ""
        shard.store.configure(
            shard.versions, scopes=[ScopeLimits(tenant="acme", lane=lane, max_in_flight=2, paused=True)]
        )


def waited(shard: Shard) -> None:
    shard.now_ms += READY_MS
    shard.store.promote_due()


BACK: dict[str, Callable[[Shard], object]] = {
    "pool paused": lambda shard: paused(shard, "pool"),
    "tenant paused": lambda shard: paused(shard, "tenant"),
    "lane paused": lambda shard: paused(shard, "lane"),
    "nobody leased it": waited,
}


@pytest.mark.parametrize("way", BACK)
def test_back_to_the_line_with_slots_given_back_and_the_charge_refunded(shard: Shard, way: str) -> None:
    _, job_id = dispatched(shard)
    had = units(shard, "acme")
    BACK[way](shard)
    assert (state(shard, job_id), ready(shard)) == (State.PENDING, [])
    assert (nothing_is_held(shard), had) == (True, (4, 1))
    charged: Any = shard.client.hget(shard.keys.run(job_id), "ch")
    assert charged == b""
    if way != "nobody leased it":
        assert units(shard, "acme") == (0, 0)


@pytest.mark.parametrize("way", ["cancel", "move", "expire at the sweep", "expire at the lease"])
def test_ends_out_of_ready_with_slots_given_back(shard: Shard, way: str) -> None:
    _, job_id = dispatched(shard)
    match way:
        case "cancel":
            assert shard.store.cancel([job_id]) == ["cancelled"]
        case "move":
            assert shard.store.move_to_dlq([job_id], "why") == ["moved"]
        case _:
            shard.now_ms += 90_000
            if way == "expire at the lease":
                assert not shard.lease()
            else:
                assert shard.store.promote_due().expired == 1
    assert state(shard, job_id) is (State.DEAD if way == "move" else State.ENDED)
    assert (nothing_is_held(shard), ready(shard)) == (True, [])
    assert waiting(shard) == 0


@pytest.mark.parametrize("policy", ["fifo", "wfq", "aging", "edf", "priority", "tiered", "drr"])
def test_the_old_place_is_kept(shard: Shard, policy: str) -> None:
    term = shard.schedule(policy=policy)
    ids = shard.add(*(shard.job(priority=0) for _ in range(3)))
    shard.admit(term)
    first = ready_of(shard, term, 1)
    assert first == ids[:1]
    waited(shard)
    assert ready(shard) == []
    assert [job_id for _, _, job_id in shard.store.peek(5)] == ids
    shard.store.cancel(ids)


def ready_of(shard: Shard, term: Term, window: int) -> list[str]:
    shard.store.dispatch(term, 250, window, [("acme", "main")] * window)
    return ready(shard)


def test_a_lease_that_meets_a_paused_job_sends_it_back(shard: Shard) -> None:
    """What the pause itself did not reach, because much was ready."""
    _, job_id = dispatched(shard)
    shard.client.hset(shard.keys["limits"], "t:acme", "1|2|1||")
    assert shard.lease() == []
    assert (state(shard, job_id), nothing_is_held(shard)) == (State.PENDING, True)
    limits(shard, ScopeLimits(tenant="acme", clear=True))


def test_who_waited_too_long_makes_room_for_others(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(*(shard.job() for _ in range(2)))
    shard.dispatch(term, window=1)
    waited(shard)
    assert armed(shard, "wake:leader")
    shard.store.dispatch(term, 250, 1)
    assert ready(shard) == ids[:1]


def test_a_busy_workers_call_sweeps_too(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job())
    shard.dispatch(term)
    shard.now_ms += READY_MS
    shard.store.cycle("w1", 1, want=0, begin=0, lease_ms=LEASE_MS)
    assert state(shard, job_id) is State.PENDING


def test_a_worker_that_comes_late_leases_before_it_sweeps(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job())
    shard.dispatch(term)
    shard.now_ms += READY_MS
    assert [job.id for job in shard.store.cycle("w1", 1, want=1, begin=1, lease_ms=LEASE_MS).jobs] == [job_id]


def test_a_ceiling_set_later_counts_what_is_ready(shard: Shard) -> None:
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(4)))
    shard.dispatch(term, window=2)
    shard.lease()
    limits(shard, ScopeLimits(tenant="acme", max_in_flight=2))
    assert slots(shard, "t:acme") == 2
    shard.store.configure(shard.versions + 1, pool=PoolConf(dispatch="scheduled", max_in_flight=2))
    assert slots(shard, "p") == 2
    assert shard.store.dispatch(term, 250, 100).jobs == 0


def test_broken_members_of_ready_are_set_aside_at_the_lease(shard: Shard) -> None:
    term = shard.schedule(max_in_flight=9)
    [bad, good] = shard.add(shard.job(), shard.job())
    shard.dispatch(term)
    shard.client.delete(shard.keys.job(bad))
    leased: list[LeasedJob] = shard.lease(2)
    assert [job.id for job in leased] == [good]
    assert (ready(shard), slots(shard, "p")) == ([], 1)
    assert shard.client.smembers(shard.keys["quarantine"]) == {bad.encode()}
    shard.client.delete(shard.keys.run(bad))


# -- looking on --------------------------------------------------------------------------------------------------------


def test_peek_shows_what_is_ready_before_the_walk(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(*(shard.job() for _ in range(4)))
    shard.dispatch(term, window=2)
    assert [job_id for _, _, job_id in shard.store.peek(3)] == ids[:3]
    assert [job_id for _, _, job_id in shard.store.peek(1)] == ids[:1]


def test_the_oldest_may_stand_in_ready_or_in_ingress(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    times = []
    for _ in range(3):
        times.append(shard.now_ms)
        shard.add(shard.job("acme", lane="mail"))
        if len(times) < 3:
            shard.dispatch(term, window=1)
        shard.now_ms += 10
    standing = shard.store.oldest().jobs
    assert [(job.tenant, job.lane, job.since_ms) for job in standing] == [("acme", "mail", at) for at in times]


def test_ready_can_be_browsed_in_the_order_of_dispatch(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(*(shard.job() for _ in range(3)))
    shard.dispatch(term)
    page = shard.store.browse("ready", count=2)
    assert (page.ids, page.size) == (ids[:2], 3)
    assert shard.store.browse("ready", count=2, after=page.cursor).ids == ids[2:]
