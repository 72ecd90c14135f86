"""Scheduled dispatch, all other ways out of ready: back to the line, or to an end; and what lookers-on see of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queueapp.states import State
from queueapp.store import calls
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.leader_records import Term
from queueapp.store.records import LeasedJob
from tests.lua.harness import LEASE_MS, Shard, commands
from tests.lua.keyed import use, used
from tests.lua.readied import armed, limits, ready, slots, state, units, waiting

READY_MS = 30_000


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
    shard.store.dispatch(term, 250, window, [("acme", "main")] * window, order=shard.order)
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
    shard.store.dispatch(term, 250, 1, order=shard.order)
    assert ready(shard) == ids[:1]


def test_a_busy_workers_call_sweeps_too(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job())
    shard.dispatch(term)
    shard.now_ms += READY_MS
    shard.store.cycle("w1", 1, want=0, begin=0, lease_ms=LEASE_MS)
    assert state(shard, job_id) is State.PENDING


def test_a_pause_withdraws_what_stands_behind_others_too(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(*(shard.job(tenant) for tenant in ("a", "b", "a", "b")))
    shard.dispatch(term)
    limits(shard, ScopeLimits(tenant="b", paused=True))
    assert ready(shard) == [ids[0], ids[2]]


@pytest.mark.parametrize("want", [0, 3])
def test_a_busy_workers_call_looks_at_the_first_that_stays_and_no_further(shard: Shard, want: int) -> None:
    """Who was dispatched later has not waited too long either."""
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(80)))
    costs = []
    for window in (4, 40):
        shard.dispatch(term, window=window)
        for seq in (1, 2):  # the first call of a worker reads more than the next
            ran = commands(shard)
            shard.store.cycle(f"w{window}", seq, want=want if seq == 2 else 0, begin=0, lease_ms=LEASE_MS)
        costs.append(commands(shard) - ran)
    assert costs[1] <= costs[0] + 2


def test_a_busy_workers_call_sweeps_behind_what_it_leases(shard: Shard) -> None:
    term = shard.schedule()
    ids = shard.add(*(shard.job() for _ in range(20)))
    shard.dispatch(term, window=19)
    shard.now_ms += READY_MS
    shard.dispatch(term, window=20)
    assert [job.id for job in shard.store.cycle("w1", 1, want=2, begin=0, lease_ms=LEASE_MS).jobs] == ids[:2]
    assert ready(shard) == ids[18:]
    assert {state(shard, job_id) for job_id in ids[2:18]} == {State.PENDING}


def test_a_worker_that_comes_late_leases_before_it_sweeps(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job())
    shard.dispatch(term)
    shard.now_ms += READY_MS
    assert [job.id for job in shard.store.cycle("w1", 1, want=1, begin=1, lease_ms=LEASE_MS).jobs] == [job_id]


@pytest.mark.parametrize("leased", [0, 1])
def test_a_ceiling_set_later_counts_what_is_ready(shard: Shard, leased: int) -> None:
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(4)))
    shard.dispatch(term, window=2)
    shard.lease(leased)
    limits(shard, ScopeLimits(tenant="acme", max_in_flight=2))
    assert slots(shard, "t:acme") == 2
    shard.store.configure(shard.versions + 1, pool=PoolConf(dispatch="scheduled", max_in_flight=2))
    assert slots(shard, "p") == 2
    assert shard.store.dispatch(term, 250, 100, order=shard.order).jobs == 0


@pytest.mark.parametrize("scope", ["pool", "tenant", "lane"])
def test_a_ceiling_set_later_counts_what_is_ready_page_by_page(shard: Shard, scope: str) -> None:
    """More than one call reads; what is leased between two of them counts once."""
    term = shard.schedule()
    shard.add(*(shard.job() for _ in range(450)))
    assert shard.dispatch(term, most=250).jobs + shard.dispatch(term, most=250).jobs == 450
    shard.lease(7)
    pool = PoolConf(dispatch="scheduled", max_in_flight=450) if scope == "pool" else None
    lane = "main" if scope == "lane" else ""
    scopes = [ScopeLimits(tenant="acme", lane=lane, max_in_flight=450)] if scope != "pool" else []
    cursors: list[str] = []
    cursor = "0"
    while not cursors or cursor != "0":
        before = commands(shard)
        cursor = shard.store._run(calls.configure(200, pool, scopes, cursor, shard.now_ms))
        assert commands(shard) - before < 200 * 4 + (500 * 4 if cursor == "0" else 0) + 60
        cursors.append(cursor)
        shard.lease(5)
    assert [cursor[0] for cursor in cursors] == ["r", "r", "0"]
    assert slots(shard, {"pool": "p", "tenant": "t:acme", "lane": "l:acme|main"}[scope]) == 450
    shard.add(shard.job())
    assert shard.dispatch(term).jobs == 0


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
