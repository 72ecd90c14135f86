"""Corners of the store that random traffic seldom reaches, each as one short story."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import redis

from queueapp.errors import StaleCall
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Completed, NewJob, Returned
from queueapp.store.store import Store
from tests.model.pair import Clock

_numbers = itertools.count(1)


def job(tenant: str = "ant", **options: object) -> NewJob:
    """A job with a fresh id."""
    fields = {"task": "demo.task", "payload": b"{}", "fingerprint": "f", **options}
    return NewJob(id=f"{next(_numbers):022d}", tenant=tenant, **fields)  # type: ignore[arg-type]  # each has its own type


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(redis_client: redis.Redis, shard_keys: ShardKeys, clock: Clock, store: Store) -> Store:
    """The test's store under a clock of its own; `store` verifies the shard at the end."""
    return Store(redis_client, shard_keys, clock_ms=clock)


def lease(store: Store, worker: str, seq: int, want: int = 1, lease_ms: int = 1000) -> list[tuple[str, int]]:
    found = store.check_and_lease(worker, seq, want=want, begin=want, lease_ms=lease_ms)
    return [(leased.id, leased.attempts) for leased in found.jobs]


def walk_of(store: Store) -> dict[bytes, float]:
    """Tenants in the walk with their tags."""
    walk: Any = store.client.zrange(store.keys["walk"], 0, -1, withscores=True)
    return dict(walk)


def crash(store: Store, clock: Clock, times: int) -> None:
    """The first job in line takes `times` workers with it."""
    for _ in range(times):
        lease(store, f"crashed-{next(_numbers)}", 1, lease_ms=10)
        clock.now_ms += 20
        store.partition_recover()


def test_a_late_finish_of_a_lost_attempt_is_not_called_done(timed: Store, clock: Clock) -> None:
    timed.enqueue([job()])
    [(job_id, attempts)] = lease(timed, "w", 1)
    clock.now_ms += 2000
    timed.partition_recover()
    assert timed.complete([Completed(id=job_id, attempts=attempts, run_ms=1)]) == ["stale"]


@pytest.mark.parametrize("verb", ["cancel", "discard", "retry_from_dlq", "move_to_dlq"])
def test_an_id_that_stands_twice_in_a_call_is_moved_once(timed: Store, verb: str) -> None:
    new = job()
    timed.enqueue([new, job()])
    if verb in ("discard", "retry_from_dlq"):
        timed.move_to_dlq([new.id], "by_hand")
    calls: dict[str, Callable[[list[str]], list[str]]] = {
        "cancel": timed.cancel,
        "discard": timed.discard,
        "retry_from_dlq": timed.retry_from_dlq,
        "move_to_dlq": lambda ids: timed.move_to_dlq(ids, "by_hand"),
    }
    assert calls[verb]([new.id, new.id])[1] == "already"
    assert timed.verify() == []


def test_a_continued_job_can_be_redriven_and_cancelled(timed: Store) -> None:
    new = job(tier="continue")
    timed.enqueue([new, job()])
    timed.move_to_dlq([new.id], "by_hand")
    assert timed.retry_from_dlq([new.id]) == ["retried"]
    assert timed.cancel([new.id]) == ["cancelled"]
    assert timed.verify() == []


def test_a_redriven_job_runs_although_its_expiry_has_passed(timed: Store, clock: Clock) -> None:
    new = job(expires_after_ms=100)
    timed.enqueue([new])
    timed.move_to_dlq([new.id], "by_hand")
    clock.now_ms += 200
    timed.retry_from_dlq([new.id])
    assert timed.verify() == []
    assert timed.promote_due().expired == 0
    assert timed.peek(1)[0][2] == new.id


def test_a_suspect_runs_alone_until_it_ends(timed: Store, clock: Clock) -> None:
    suspect = job()
    timed.enqueue([suspect])
    crash(timed, clock, 2)
    timed.enqueue([job(), job()])
    assert lease(timed, "w", 1, want=3) == [(suspect.id, 3)]
    assert lease(timed, "w", 2, want=3) == []
    assert lease(timed, "w", 3, want=3) == []
    timed.complete([Completed(id=suspect.id, attempts=3, run_ms=1)])
    assert len(lease(timed, "w", 4, want=3)) == 2


def test_a_suspect_that_expired_holds_nobody_up(timed: Store, clock: Clock) -> None:
    timed.enqueue([job(expires_after_ms=500)])
    crash(timed, clock, 2)
    timed.enqueue([job()])
    clock.now_ms += 1000
    assert len(lease(timed, "w", 1, want=2)) == 1


def test_a_refused_cycle_changes_nothing(timed: Store) -> None:
    timed.enqueue([job(), job()])
    [(job_id, attempts)] = lease(timed, "w", 5)
    with pytest.raises(StaleCall):
        timed.cycle(
            "w", 4, want=1, begin=1, lease_ms=1000, finished=[Completed(id=job_id, attempts=attempts, run_ms=1)]
        )
    assert timed.client.hget(timed.keys["stats"], "completed") is None
    assert timed.complete([Completed(id=job_id, attempts=attempts, run_ms=1)]) == ["done"]


def test_peek_passes_expired_jobs_without_writing(timed: Store, clock: Clock) -> None:
    """Every tenant that a first look can see has only expired jobs."""
    timed.enqueue([job(f"t{number}", expires_after_ms=100, cost=1) for number in range(6)])
    late = job("z")
    timed.enqueue([late])
    clock.now_ms += 200
    assert [job_id for _, _, job_id in timed.peek(1)] == [late.id]


def test_a_ceiling_holds_when_the_reply_of_its_first_page_was_lost(timed: Store) -> None:
    """300 leases are counted page by page before the ceiling applies; the call is begun anew in between."""
    timed.configure(1, pool=PoolConf())
    timed.enqueue([job() for _ in range(400)])
    for seq in range(3):
        lease(timed, "w", seq, want=100, lease_ms=60_000)
    scope = ScopeLimits(tenant="ant", max_in_flight=301)
    run = timed._run

    def lose(call: object) -> object:
        run(call)  # type: ignore[arg-type]  # each has its own type
        raise ConnectionError

    timed._run = lose  # type: ignore[method-assign, assignment]  # stands in for it in this test
    with pytest.raises(ConnectionError):
        timed.configure(2, scopes=[scope])
    timed._run = run  # type: ignore[method-assign]  # stands in for it in this test
    timed.configure(2, scopes=[scope])
    assert len(lease(timed, "w", 3, want=10)) == 1
    assert timed.verify() == []


def test_a_change_of_policy_leaves_a_clean_shard(timed: Store) -> None:
    timed.configure(1, pool=PoolConf(policy="tiered"))
    timed.enqueue([job(lane="one", cost=100), job(lane="two", cost=1), job("bee", cost=1), job("bee", cost=1)])
    lease(timed, "w", 1, want=4)
    timed.configure(2, pool=PoolConf(policy="fifo"))
    assert timed.verify() == []


def test_a_cost_in_words_is_not_settled_by_run_time(timed: Store, clock: Clock) -> None:
    timed.configure(1, pool=PoolConf(cost_unit="pages"))
    timed.enqueue([job(tenant) for _ in range(6) for tenant in ("ant", "bee")])
    for seq in range(4):
        [(job_id, attempts)] = lease(timed, "w", seq)
        clock.now_ms += 500
        timed.complete([Completed(id=job_id, attempts=attempts, run_ms=500)])
    walk = walk_of(timed)
    assert walk == {b"ant": 2.0, b"bee": 2.0}


def test_a_refund_forgets_a_tenant_that_is_done(timed: Store, clock: Clock) -> None:
    timed.enqueue([job("ant"), job("bee", cost=1), job("bee", cost=1)])
    [(first, attempts), _] = lease(timed, "w", 1, want=2)
    clock.now_ms += 10
    timed.complete([Completed(id=first, attempts=attempts, run_ms=0)])
    assert timed.verify() == []


@pytest.mark.parametrize("rising", [True, False])
def test_tenants_enter_in_the_order_in_which_a_call_names_them(timed: Store, rising: bool) -> None:
    """The walk is empty and each is ahead of the clock: who enters lifts the clock for those that enter after it."""
    costs = {f"t{number}": 10.0 * number for number in range(1, 7)}
    timed.enqueue([job(tenant, cost=cost) for tenant, cost in costs.items()] + [job("z", cost=1)])
    assert len(lease(timed, "w", 1, want=7)) == 7
    timed.enqueue([job(tenant, cost=1) for tenant in sorted(costs, reverse=not rising)])
    walk = walk_of(timed)
    assert walk == {tenant.encode(): cost if rising else 60.0 for tenant, cost in costs.items()}


def test_work_given_back_twice_is_given_back_once(timed: Store) -> None:
    timed.enqueue([job()])
    [(job_id, attempts)] = lease(timed, "w", 1)
    back = Returned(id=job_id, attempts=attempts)
    assert timed.partition_requeue([back]) == ["done"]
    assert timed.partition_requeue([back, back]) == ["done", "done"]
    assert lease(timed, "w", 2) == [(job_id, 2)]
